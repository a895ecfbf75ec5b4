import pytest

from unmask.core import errors


@pytest.mark.parametrize("name", ["ConfigError", "CheckpointError", "RequestError", "CapacityError", "EngineError"])
def test_the_tree_is_flat(name: str) -> None:
    kind = getattr(errors, name)
    assert kind.__bases__ == (errors.UnmaskError,)
    assert str(kind("what went wrong")) == "what went wrong"


def test_a_request_error_names_its_field() -> None:
    error = errors.RequestError("too long", param="messages", code="context_length_exceeded")
    assert (error.param, error.code) == ("messages", "context_length_exceeded")
    assert (errors.RequestError("no").param, errors.RequestError("no").code) == (None, None)


def test_unknown_name_lists_the_known_and_the_closest() -> None:
    error = errors.unknown_name("mode", "diffuson", ["verified", "diffusion", "ar"])
    assert isinstance(error, errors.ConfigError)
    assert str(error) == "unknown mode 'diffuson'; did you mean 'diffusion'? (known: ar, diffusion, verified)"


def test_unknown_name_far_from_all() -> None:
    assert str(errors.unknown_name("mode", "xyz", iter(["b", "a"]))) == "unknown mode 'xyz' (known: a, b)"
