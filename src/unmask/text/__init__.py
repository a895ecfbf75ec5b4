"""Text <-> token ids: tokenizer, chat templates, tool-call format, detokeniser."""
