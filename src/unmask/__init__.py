"""unmask: run, measure, convert and post-train diffusion language models for agents."""

__version__ = "0.1.0"
