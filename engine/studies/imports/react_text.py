"""ReAct transcripts as plain text (Reflexion's HotpotQA logs): a question, then numbered turns."""

import re
from collections.abc import Iterator

from stepfold.engine.studies.imports.reading import Source
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Ended,
    Noticed,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.events.vocabulary import Score

CAP = 6
"""Steps after which these runs are stopped. The file doesn't say so, hence it is inferred."""
_TURN = re.compile(r"(Thought|Action|Observation) (\d+): ?(.*)", re.DOTALL)
_ACTION = re.compile(r"\s*(\w+)\[(.*)\]\s*", re.DOTALL)
_SECTION = re.compile(r"-{4,}.*-{4,}\s*")
_VERDICT = re.compile(r"Answer is (CORRECT|INCORRECT)")
_FAILED = ("Could not find", "No Results", "Invalid Action", "The last page Searched was not found")
"""How an observation begins that says the action failed: the file has only words for it."""


class _Block:
    """The run that is being read: the part that may go on over the next lines, and what is known so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.part = "Question"
        self.text = ""
        self.thought = ""
        self.replies = 0
        self.finished = ""
        self.correct = ""

    def closed(self) -> Iterator[Said]:
        """What the part says that is whole now."""
        part, text = self.part, self.text.strip("\n")
        self.part = self.text = ""
        match part:
            case "Question":
                yield Spoke("user", text.removeprefix("Question:").strip())
            case "Thought":
                if self.thought:
                    yield from self._reply("")
                self.thought = text
            case "Action":
                yield from self._reply(text)
            case "Observation":
                yield from self._result(text)
            case "Correct answer":
                self.correct = text.strip()

    def _reply(self, action: str) -> Iterator[Said]:
        self.replies += 1
        call = _ACTION.fullmatch(action)
        said = "\n".join(part for part in (self.thought, action) if part)
        self.thought = ""
        yield Replied(text=said, calls=(Call(call[1], call[2]),) if call else ())
        if call is None:
            yield Noticed("reply_without_call", f"question {self.number}", "no Action of the form Tool[text]")
        elif call[1] == "Finish":
            self.finished = "Finish"

    def _result(self, text: str) -> Iterator[Said]:
        verdict = _VERDICT.match(text)
        if verdict is not None and self.finished:
            self.finished = f"Finish, {verdict[1]}"
        error = next((words for words in _FAILED if text.startswith(words)), "")
        yield Answered(text=text, error=error)

    def end(self) -> Iterator[Said]:
        """The block is over."""
        yield from self.closed()
        if self.thought:
            yield from self._reply("")
        if self.correct:
            yield Unplaced("correct answer")
        scores = (Score("verdict", self.finished.partition(", ")[2]),) if ", " in self.finished else ()
        if self.finished:
            yield Ended(recorded=self.finished, status="completed", scores=scores)
        elif self.replies >= CAP:
            yield Ended(
                recorded=f"no Finish after {self.replies} steps",
                status="step_cap",
                inferred=f"{self.replies} steps without a Finish",
            )
        else:
            yield Ended(recorded=f"no Finish after {self.replies} steps")


def runs(source: Source) -> Iterator[Said]:
    """A run is a block from its `Question:` on. The section it stands in is not the end of the run."""
    block: _Block | None = None
    count = 0
    for _, line in source.texts():
        turn = _TURN.match(line)
        if line.startswith("Question:"):
            if block is not None:
                yield from block.end()
            count += 1
            block = _Block(count)
            block.text = line
            yield Began(f"question {count}")
        elif block is None:
            continue
        elif turn is not None or line.startswith("Correct answer:"):
            yield from block.closed()
            block.part = turn[1] if turn else "Correct answer"
            block.text = turn[3] if turn else line.removeprefix("Correct answer:")
        elif _SECTION.fullmatch(line.strip()):
            yield from block.closed()
        else:
            block.text += line
    if block is not None:
        yield from source.noticed()
        yield from block.end()
