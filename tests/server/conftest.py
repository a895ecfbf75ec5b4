import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio only, as the server does."""
    return "asyncio"
