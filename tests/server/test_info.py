import openai
import pytest

from tests.fakes import FakeBackend
from tests.server.serving import MODEL, http_client, openai_client

pytestmark = pytest.mark.anyio


async def test_models() -> None:
    client = openai_client(FakeBackend("x"))
    (model,) = (await client.models.list()).data
    assert (model.id, model.object, model.created, model.owned_by) == (MODEL, "model", 1_700_000_000, "unmask")
    assert await client.models.retrieve(MODEL) == model
    assert model.model_extra == {"context_length": 4096}
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


async def test_health() -> None:
    backend = FakeBackend("x")
    async with http_client(backend) as client:
        response = await client.get("/health")
        assert response.json() == {"status": "ok", "model": MODEL, "running": 0, "waiting": 0}
        backend.dead = True
        response = await client.get("/health")
        assert response.status_code == 503
        assert response.json()["reason"] == "the engine has died"
