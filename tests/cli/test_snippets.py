import pytest

from unmask.cli.snippets import Address, snippets


@pytest.mark.parametrize(
    ("host", "url", "is_loopback"),
    [
        ("127.0.0.1", "http://127.0.0.1:80", True),
        ("localhost", "http://localhost:80", True),
        ("::1", "http://[::1]:80", True),
        ("0.0.0.0", "http://127.0.0.1:80", False),
        ("::", "http://[::1]:80", False),
        ("example.org", "http://example.org:80", False),
    ],
)
def test_addresses(host: str, url: str, is_loopback: bool) -> None:
    address = Address(host=host, port=80, api_key=None)
    assert (address.url, address.is_loopback) == (url, is_loopback)


@pytest.mark.parametrize("key", [None, "secret"])
def test_the_python_snippet_compiles_and_keeps_the_key_to_itself(key: str | None) -> None:
    text = snippets(Address(host="127.0.0.1", port=1, api_key=key), "m")
    assert "secret" not in text
    assert ("UNMASK_API_KEY" in text) == (key is not None)
    start = text.index("import os" if key else "from openai")
    compile(text[start:], "snippet", "exec")
