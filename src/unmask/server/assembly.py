"""One choice: chunks of ids in, pieces of the answer out."""

from dataclasses import dataclass

from unmask.core.request import Chunk, FinishReason
from unmask.server.drafts import DraftShown, read_draft
from unmask.server.prepare import PreparedChat, ServedModel
from unmask.server.replies import FinishName
from unmask.server.stops import StopFinder
from unmask.text.detokenizer import Detokenizer
from unmask.text.toolcalls import ContentDelta, ToolCall, ToolCallParser


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The choice is complete.

    Attributes:
        reason: OpenAI's finish reason.
        num_tokens: final tokens up to the end of the answer (a stop string's tokens count, later ones do not).
        num_forwards: model forwards the sequence took part in.
        num_prefix_cached: prompt tokens taken from the prefix cache.
    """

    reason: FinishName
    num_tokens: int
    num_forwards: int
    num_prefix_cached: int


@dataclass(frozen=True, kw_only=True)
class Aborted:
    """The backend gave the choice up: by its deadline, or because the server is stopping."""


Piece = ContentDelta | ToolCall | DraftShown | Finished | Aborted


class ChoiceAssembler:
    """Turns one sequence's chunks into pieces of the answer.

    ids -> text (UTF-8 safe) -> cut at a stop string -> content and tool calls. After `done` nothing more may be pushed;
    if the backend has not finished by then, the caller aborts it.
    """

    def __init__(self, prepared: PreparedChat, served: ServedModel) -> None:
        self._tokenizer = served.tokenizer
        self._include_drafts = prepared.include_drafts
        self._detokenizer = Detokenizer(served.tokenizer)
        self._stops = StopFinder(prepared.stops)
        self._parser = ToolCallParser(served.settings.tool_format) if prepared.parse_tools else None
        self._single_call = prepared.single_call and prepared.parse_tools
        # Where the answer may end inside a burst, ids go one by one, so that the ids behind its end are not counted.
        self._one_by_one = bool(prepared.stops) or self._single_call
        self._num_tokens = 0
        self._num_prefix_cached = 0
        self._num_calls = 0
        self.done = False

    def push(self, chunk: Chunk) -> list[Piece]:
        """Returns the pieces that `chunk` completes."""
        pieces: list[Piece] = []
        self._num_prefix_cached = max(self._num_prefix_cached, chunk.num_prefix_cached)
        bursts = [(i,) for i in chunk.token_ids] if self._one_by_one else [chunk.token_ids]
        for burst in bursts:
            self._num_tokens += len(burst)
            if self._read(self._detokenizer.push(burst), pieces):
                return [*pieces, self._finish("stop", chunk)]
        if chunk.finish_reason is FinishReason.ABORT:
            self.done = True
            return [*pieces, Aborted()]
        if chunk.finish_reason is not None:
            ended_early = self._read_rest(pieces)
            cut = chunk.finish_reason is FinishReason.LENGTH and not ended_early
            return [*pieces, self._finish("length" if cut else "stop", chunk)]
        if self._include_drafts:
            pieces.append(read_draft(chunk.draft_ids, self._num_tokens, chunk.num_forwards, self._tokenizer))
        return pieces

    def _read(self, text: str, pieces: list[Piece]) -> bool:
        """Passes new text on; True when the answer ends here, before the model ended it."""
        text, stopped = self._stops.push(text)
        if self._split(text, pieces):
            return True
        if stopped and self._parser:
            self._add(self._parser.flush(), pieces)
        return stopped

    def _read_rest(self, pieces: list[Piece]) -> bool:
        """Passes on what was held back; True when even that holds an early end."""
        if self._read(self._detokenizer.flush(), pieces) or self._split(self._stops.flush(), pieces):
            return True
        return self._parser is not None and self._add(self._parser.flush(), pieces)

    def _split(self, text: str, pieces: list[Piece]) -> bool:
        """Splits text into content and calls; True after the only call that is allowed."""
        if self._parser is not None:
            return self._add(self._parser.push(text), pieces)
        return self._add([ContentDelta(text=text)] if text else [], pieces)

    def _add(self, found: list[ContentDelta | ToolCall], pieces: list[Piece]) -> bool:
        """Appends pieces, merging content, so that one burst makes one delta; True after the only allowed call."""
        for piece in found:
            last = pieces[-1] if pieces else None
            if isinstance(piece, ContentDelta) and isinstance(last, ContentDelta):
                pieces[-1] = ContentDelta(text=last.text + piece.text)
            else:
                pieces.append(piece)
            if isinstance(piece, ToolCall):
                self._num_calls += 1
                if self._single_call:
                    return True
        return False

    def _finish(self, reason: FinishName, chunk: Chunk) -> Finished:
        self.done = True
        # "length" stays: a client must learn that the answer was cut, even behind a whole call.
        return Finished(
            reason="tool_calls" if reason == "stop" and self._num_calls else reason,
            num_tokens=self._num_tokens,
            num_forwards=chunk.num_forwards,
            num_prefix_cached=self._num_prefix_cached,
        )
