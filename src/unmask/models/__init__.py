"""Checkpoints: the shared transformer, its families, loading and saving."""
