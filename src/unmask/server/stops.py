"""Stop strings, found on the committed text wherever a burst of tokens happens to end."""

from collections.abc import Sequence

from unmask.text.toolcalls import overlap


class StopFinder:
    """Passes text on until a stop string is complete; the stop string itself is never passed on.

    Of several stop strings the one that is complete first wins (the longest, if several end together), so the outcome
    does not depend on how the text is cut into pushes.

    Args:
        stops: non-empty strings; may be none.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held: str = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Returns (text that is certainly before any stop string, whether a stop string was found)."""
        if not self._stops:
            return text, False
        text = self._held + text
        starts = [(text.find(stop), len(stop)) for stop in self._stops]
        hits = [(start + length, start) for start, length in starts if start >= 0]
        if hits:
            self._held = ""
            return text[: min(hits)[1]], True
        held = max(overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def flush(self) -> str:
        """Returns the text held back; no stop string can follow any more."""
        text, self._held = self._held, ""
        return text
