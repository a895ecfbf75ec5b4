"""Sequences, scheduling and ONE denoising step; the only floor that sees models, caches, rules and text together."""
