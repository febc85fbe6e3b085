"""A model that answers as a recorded run was answered: the trace of one run, live in another."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from stepfold.engine.models.protocol import Request
from stepfold.events.texts import LostText, TextFolder, TextOf, restored
from stepfold.events.vocabulary import (
    BLANK,
    ModelDelta,
    ModelErred,
    ModelReplied,
    ModelStarted,
)

Outcome = ModelReplied | ModelErred
RECORDING_SPENT = "recording_exhausted"
"""The kind of the error with which a recording answers a call that it has not."""
_NEEDED: dict[str, Any] = {
    kind.__name__: kind for kind in (ModelStarted, ModelDelta, ModelReplied, ModelErred)
}


class RecordingError(ValueError):
    """A trace that can't answer for a model: which file, which line, what is wrong with it."""


class Recording:
    """The n-th logical call gets the n-th recorded one, its attempts in the order they landed."""

    reads_messages = False

    def __init__(self, events: Iterable[object], name: str = "recording") -> None:
        self.name = name
        self._calls = _calls(events)

    @classmethod
    def load(cls, path: str | Path) -> "Recording":
        """Read the model's part of a trace file. A torn last line is left out.

        Raises RecordingError for a file that can't be read, holds a broken line, or no model call.
        """
        try:
            lines = Path(path).read_bytes().split(b"\n")
        except OSError as error:
            raise RecordingError(f"{path}: can't read the trace ({error.strerror})") from None
        # The last piece is empty, or a line that was never finished.
        text_of = TextFolder(Path(path)).text_of
        recording = cls(_events(lines[:-1], str(path), text_of), f"trace:{Path(path).name}")
        if not len(recording):
            raise RecordingError(f"{path}: no model call in this trace: is it a run's JSONL log?")
        return recording

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"Recording({self.name!r}, {len(self)} calls)"

    def reply(self, request: Request) -> Outcome:
        """The recorded outcome of this call and attempt; after the last attempt, that one again."""
        if not 1 <= request.call <= len(self._calls):
            detail = f"{self.name} has {len(self)} model calls, and this is call {request.call}"
            return ModelErred(*BLANK, error=RECORDING_SPENT, detail=detail)
        attempts = self._calls[request.call - 1]
        if not attempts:
            detail = f"{self.name}: model call {request.call} was cut off before an answer came"
            return ModelErred(*BLANK, error=RECORDING_SPENT, detail=detail)
        return attempts[min(max(request.attempt, 0), len(attempts) - 1)]


def _calls(events: Iterable[object]) -> list[list[Outcome]]:
    calls: list[list[Outcome]] = []
    pieces: list[str] = []
    for event in events:
        match event:
            case ModelStarted():
                calls.append([])
                pieces = []
            case ModelDelta(text=text):
                pieces.append(text)
            case ModelReplied() | ModelErred() if calls:
                calls[-1].append(_blank(event, "".join(pieces)))
                pieces = []
    return calls


def _blank(event: Outcome, streamed: str) -> Outcome:
    blank = msgspec.structs.replace(event, v=BLANK[0], run_id="", seq=0, step=0, ts="", key="")
    if isinstance(blank, ModelReplied) and blank.streamed:
        # Where the deltas are in the log, the reply's text is theirs. Whole again, it was not streamed.
        return msgspec.structs.replace(blank, text=blank.text or streamed, streamed=False)
    return blank


def _events(lines: Iterable[bytes], source: str, text_of: TextOf) -> Iterable[object]:
    for number, line in enumerate(lines, 1):
        if b'"Model' not in line:
            continue
        try:
            fields = json.loads(restored(line, text_of).decode("utf-8"))
            kind = _NEEDED.get(fields.pop("kind"))
            if kind is not None:
                yield msgspec.convert(fields, kind)
        except LostText as lost:
            raise RecordingError(f"{source} line {number}: {lost}") from None
        except (ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
            raise RecordingError(f"{source} line {number}: no event ({error})") from None
