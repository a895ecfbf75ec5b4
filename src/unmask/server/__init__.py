"""OpenAI-compatible HTTP in front of a `core.request.Backend`; never sees the engine or a model."""
