"""Conversion of autoregressive models: data, packing, objectives, adapters, the loop."""
