"""What the server is told at start."""

from dataclasses import dataclass, field

from unmask.core.errors import ConfigError
from unmask.core.request import Mode
from unmask.text.toolcalls import ToolCallFormat


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of one served model.

    Attributes:
        model_id: the name clients send as `model`.
        context_length: most tokens of prompt and answer together.
        created: unix time in seconds shown by /v1/models.
        default_mode: mode of a request that names none.
        default_temperature: temperature of a request that names none. OpenAI's default is 1; ours is 0 because tool
            calls by small models want greedy decoding.
        max_tokens_default: answer length of a request that names none (less where the context ends sooner).
        max_choices: greatest `n`.
        max_body_bytes: greatest request body.
        api_key: key that clients must send as bearer token; None accepts everyone.
        request_timeout_s: seconds after which a request is given up with an error; None never.
        tool_format: how the model writes tool calls.
    """

    model_id: str
    context_length: int
    created: int
    default_mode: Mode = Mode.DIFFUSION
    default_temperature: float = 0.0
    max_tokens_default: int = 256
    max_choices: int = 8
    max_body_bytes: int = 2 * 1024 * 1024
    api_key: str | None = None
    request_timeout_s: float | None = None
    tool_format: ToolCallFormat = field(default_factory=ToolCallFormat)

    def __post_init__(self) -> None:
        if not self.model_id:
            raise ConfigError("model_id must not be empty")
        for name in ("context_length", "max_tokens_default", "max_choices", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.api_key == "":
            raise ConfigError("api_key must not be empty; leave it out to accept everyone")
        if self.request_timeout_s is not None and not self.request_timeout_s > 0:
            raise ConfigError(f"request_timeout_s must be above 0, got {self.request_timeout_s}")
