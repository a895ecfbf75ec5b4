"""What is served and whether it lives: /v1/models and /health."""

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.params import Depends
from fastapi.responses import JSONResponse, Response

from unmask.core.errors import EngineError
from unmask.core.request import Backend
from unmask.server.prepare import check_model
from unmask.server.replies import ModelCard, ModelList
from unmask.server.settings import ServerSettings


def models_router(settings: ServerSettings, dependencies: Sequence[Depends]) -> APIRouter:
    """GET /v1/models and /v1/models/{id}."""
    card = ModelCard(
        id=settings.model_id,
        object="model",
        created=settings.created,
        owned_by="unmask",
        context_length=settings.context_length,
    )

    async def list_models() -> Response:
        return JSONResponse(ModelList(object="list", data=[card]).model_dump())

    async def show_model(model_id: str) -> Response:
        check_model(model_id, settings)
        return JSONResponse(card.model_dump())

    routes = APIRouter(dependencies=dependencies)
    routes.add_api_route("/v1/models", list_models, methods=["GET"])
    # ":path" because ids like "owner/name" are common.
    routes.add_api_route("/v1/models/{model_id:path}", show_model, methods=["GET"])
    return routes


def health_router(backend: Backend, settings: ServerSettings) -> APIRouter:
    """GET /health: 200 while the engine runs, 503 after it died; no API key, as probes expect."""

    async def health() -> Response:
        try:
            stats = backend.stats()
        except EngineError as error:
            return JSONResponse({"status": "dead", "model": settings.model_id, "reason": str(error)}, status_code=503)
        live = {"running": stats.num_running, "waiting": stats.num_waiting}
        return JSONResponse({"status": "ok", "model": settings.model_id, **live})

    routes = APIRouter()
    routes.add_api_route("/health", health, methods=["GET"])
    return routes
