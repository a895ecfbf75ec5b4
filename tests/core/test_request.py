import math
from typing import Any

import numpy as np
import pytest

from unmask.core.errors import RequestError
from unmask.core.request import Mode, SamplingParams

NAN, INF = math.nan, math.inf

BAD: dict[str, tuple[Any, ...]] = {
    "max_tokens": (0, -1, NAN, INF, 2.5, True, "8", None),
    "temperature": (-0.1, 2.1, NAN, INF, -INF, True, "1"),
    "top_p": (0, 0.0, -0.5, 1.0001, NAN, INF, True, "1"),
    "top_k": (-1, NAN, 1.5, True),
    "seed": (NAN, 0.5, True, "0", None),
    "threshold": (0.0, -1.0, 1.5, NAN, True),
    "block_size": (0, -8, 257, NAN, 8.0, True),
    "num_steps": (0, -1, 257, NAN, 1.5, True),
}
GOOD: dict[str, tuple[Any, ...]] = {
    "max_tokens": (1, 10**9, np.int64(5)),
    "temperature": (0, 0.0, 2, 2.0, 1e-300, np.float32(0.5)),
    "top_p": (1, 1.0, 1e-9),
    "top_k": (0, 1, 10**9),
    "seed": (0, -1, 2**64, -(2**70)),
    "threshold": (None, 1, 1.0, 1e-9),
    "block_size": (None, 1, 256),
    "num_steps": (None, 1, 256),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})
    spelling = f"diffusion.{name}" if name in ("threshold", "block_size", "num_steps") else name
    assert caught.value.param == spelling
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_the_whole_range_is_taken(name: str, value: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value


def test_equal_settings_are_equal_values() -> None:
    assert SamplingParams(mode=Mode.AR) == SamplingParams(mode=Mode("ar"))
    assert len({SamplingParams(), SamplingParams(), SamplingParams(seed=1)}) == 2


def test_a_mode_may_be_named() -> None:
    named: Any = "diffusion"
    assert SamplingParams(mode=named).mode is Mode.DIFFUSION
    unknown: Any = "difusion"
    with pytest.raises(RequestError, match="did you mean 'diffusion'") as caught:
        SamplingParams(mode=unknown)
    assert caught.value.param == "diffusion.mode"
