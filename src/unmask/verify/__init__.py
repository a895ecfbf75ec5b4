"""Recorded cases (logits, ids, forwards) run through our loader, engine and rules, and compared."""
