"""unmask: run, measure, convert and post-train diffusion language models for agents.

`from unmask import LLM, SamplingParams` is the offline API; both are imported when first used, so `import unmask` is
light.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.core.request import SamplingParams
    from unmask.engine.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from unmask.engine.llm import LLM

        return LLM
    if name == "SamplingParams":
        from unmask.core.request import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'unmask' has no attribute {name!r}")
