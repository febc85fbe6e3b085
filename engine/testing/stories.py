"""given(events).when(observed).then(decided): one guard, one row, one decision at a time.

Nothing runs: the landings are folded, and the table decides, as it does in a live run and in a replay.
"""

from typing import Any

from msgspec.structs import replace

from stepfold.engine.runtime.drive import settle
from stepfold.engine.runtime.run_log import MemoryLog
from stepfold.events import vocabulary as v
from stepfold.events.configuration import GoalConfig, HarnessConfig
from stepfold.events.vocabulary import BLANK
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

_ANSWERS: dict[type, tuple[str, ...]] = {
    v.ModelReplied: ("model:",),
    v.ModelErred: ("model:",),
    v.ToolReturned: ("tool:",),
    v.ToolErred: ("tool:",),
    v.EffectLost: ("tool:", "check:"),
    v.CheckReturned: ("check:",),
    v.MemoryRecalled: ("memory",),
    v.WaitEnded: ("wait:",),
    v.UserAnswered: ("user",),
    v.ApprovalAnswered: ("approval:",),
    v.SteeringReceived: ("steering",),
}
_ENVELOPE = frozenset(("v", "run_id", "seq", "step", "ts", "row", "to", "key"))


class Story:
    """A run in the middle. `run` is its state, `events` its log, `decided` what the last landing led to."""

    def __init__(self) -> None:
        self.run = Run()
        self.log = MemoryLog()
        self.decided: list[Any] = []

    @property
    def events(self) -> list[Any]:
        """The log so far."""
        return self.log.events

    def when(self, *landings: Any) -> "Story":
        """One batch lands: observed events, or texts as the model's reply. Then the table decides."""
        taken: set[str] = set()
        for landing in landings:
            event = v.ModelReplied(*BLANK, text=landing) if isinstance(landing, str) else landing
            key = event.key or key_for(self.run, event, taken)
            taken.add(key)
            ts = self.run.ts or "2026-01-01T00:00:00.000000Z"
            stamped = replace(event, run_id="story", seq=self.run.seq, step=self.run.step, ts=ts, key=key)
            evolve(self.run, stamped)
            self.log.record(stamped)
        before = len(self.events)
        settle(self.run, self.log)
        self.decided = self.events[before:]
        return self

    def then(self, *expected: Any) -> "Story":
        """The decisions were these, in order: kinds, or events whose fields beyond the envelope agree.

        Raises AssertionError, with both lists.
        """
        same = len(expected) == len(self.decided)
        agree = same and all(_agrees(w, d) for w, d in zip(expected, self.decided, strict=True))
        if not agree:
            raise AssertionError(f"expected {_told(expected)}\ndecided  {_told(self.decided)}")
        return self


def key_for(run: Run, event: Any, taken: set[str]) -> str:
    """The effect in flight that an event of this kind answers; empty when there is none but those `taken`."""
    answers = _ANSWERS.get(type(event), ())
    return next((key for key in run.due if answers and key.startswith(answers) and key not in taken), "")


def given(*past: Any) -> Story:
    """A run as far as these events lead it; a configuration alone begins one."""
    story = Story()
    for event in past:
        if isinstance(event, (GoalConfig, HarnessConfig)):
            story.when(v.RunStarted(*BLANK, config=event, engine="story"))
        else:
            evolve(story.run, event)
            story.log.record(event)
    return story


def _agrees(wanted: Any, decided: Any) -> bool:
    if isinstance(wanted, type):
        return isinstance(decided, wanted)
    if isinstance(wanted, str):
        return type(decided).__name__ == wanted
    names = [name for name in wanted.__struct_fields__ if name not in _ENVELOPE]
    return type(wanted) is type(decided) and all(getattr(wanted, n) == getattr(decided, n) for n in names)


def _told(events: Any) -> str:
    names = [e if isinstance(e, str) else e.__name__ if isinstance(e, type) else repr(e) for e in events]
    return ", ".join(names) or "nothing"
