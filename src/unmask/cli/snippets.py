"""What `unmask serve` prints: its settings, and two snippets that work as they stand."""

import ipaddress
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unmask.engine.opening import OpenModel
    from unmask.engine.settings import EngineSettings
    from unmask.server.settings import ServerSettings

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the server listens and what its clients must send."""

    host: str
    port: int
    api_key: str | None

    @property
    def url(self) -> str:
        """Base URL for a client on this machine."""
        host = _ANYWHERE.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def settings_text(model: "OpenModel", engine: "EngineSettings", server: "ServerSettings", address: Address) -> str:
    """The resolved settings, one a line."""
    traits = model.loaded.traits
    assert engine.mode is not None, "settings are resolved"
    has_threshold = engine.mode.value == "diffusion" and engine.threshold is not None
    threshold = f", threshold {engine.threshold:g}" if has_threshold else ""
    window = "" if engine.mode.value == "ar" else f", block size {engine.block_size}{threshold}"
    rows = {
        "model": f"{model.model_id} ({model.precision}, {traits.attention.value} attention)",
        "mode": f"{engine.mode.value}{window}",
        "context": f"{server.context_length} tokens",
        "limits": f"{engine.max_running} running, {engine.max_waiting} waiting, {engine.max_cached_tokens} tokens",
        "threads": "chosen by torch" if engine.threads is None else str(engine.threads),
        "timeout": "none" if server.request_timeout_s is None else f"{server.request_timeout_s:g} s",
        "API key": "none" if address.api_key is None else "required",
    }
    if model.draft is not None:
        rows["drafts"] = f"{engine.num_drafts} tokens a forward by the draft model, in mode ar"
    return "\n".join(f"  {name:9}{value}" for name, value in rows.items())


def snippets(address: Address, model_id: str) -> str:
    """A curl call, and a tool call with the openai package. The key stays out of the terminal's history."""
    key = 'os.environ["UNMASK_API_KEY"]' if address.api_key else '"none"'
    header = ' -H "Authorization: Bearer $UNMASK_API_KEY"' if address.api_key else ""
    imports = "import os\n\n" if address.api_key else ""
    first = "\n(first: export UNMASK_API_KEY=<the key>)\n" if address.api_key else ""
    return f'''\
Try it from another terminal:{first}
curl {address.url}/v1/chat/completions{header} -H "Content-Type: application/json" \\
  -d '{{"model": "{model_id}", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'

Or let an agent call a tool ({sys.executable} has the openai package):

{imports}from openai import OpenAI

client = OpenAI(base_url="{address.url}/v1", api_key={key})
city = {{"type": "object", "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}}
function = {{"name": "get_weather", "description": "Current weather in a city.", "parameters": city}}
answer = client.chat.completions.create(
    model="{model_id}",
    messages=[{{"role": "user", "content": "What is the weather in Oslo?"}}],
    tools=[{{"type": "function", "function": function}}],
)
print(answer.choices[0].message.tool_calls or answer.choices[0].message.content)
'''
