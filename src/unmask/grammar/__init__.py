"""What the output must match: JSON Schema, regular expressions and choices as automata over bytes and tokens."""
