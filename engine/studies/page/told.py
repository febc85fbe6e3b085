"""A run as the data of its page: why it ended, what happened in each step, its path through the table."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from stepfold.engine.studies.page.seen import Conversation, Texts
from stepfold.engine.studies.page.words import Item, told
from stepfold.events import vocabulary as v
from stepfold.projections.outcome import LoopOutcome, goal_of
from stepfold.projections.run import evolve
from stepfold.projections.state import Run, microseconds

Event = v.AnyEvent | v.Unknown


class RunTold:
    """Folds a log and keeps, beside the run, what its page shows. Costs what is new in each event."""

    def __init__(self) -> None:
        self.run = Run()
        self._texts = Texts()
        self._conversation = Conversation(self._texts)
        self._steps: list[dict[str, Any]] = []
        self._started: dict[str, tuple[dict[str, Any], str, str]] = {}
        self._rows: Counter[tuple[str, str]] = Counter()
        self._moves: Counter[tuple[str, str]] = Counter()

    def take(self, event: Event) -> None:
        """One event, in order."""
        run = self.run
        if not self._steps or self._steps[-1]["step"] != event.step:
            self._open(event)
        step = self._steps[-1]
        if isinstance(event, v.ModelStarted):
            step["seen"] = self._conversation.step(run, event)
        before = run.state
        evolve(run, event)
        self._time(event, step)
        self._count(event, before)
        for item in told(event, run):
            self._add(step, event, item)

    def data(self, result: LoopOutcome, why: str, name: str) -> dict[str, Any]:
        """All that the page shows of the run. `name` is that of its file."""
        run = self.run
        origin = microseconds(run.started_ts)
        steps = [
            {
                **step,
                "started": microseconds(step["started"]) - origin,
                "ended": microseconds(step["ended"]) - origin,
            }
            for step in self._steps
        ]
        return {
            **result.as_json(),
            "name": name,
            "why": why,
            "loop": run.loop,
            "goal": goal_of(run),
            "model": run.asking[0] or getattr(run.config, "model", ""),
            "mode": getattr(getattr(run.config, "generation", None), "mode", "chat"),
            "engine": run.engine,
            "parent": run.parent,
            "source": run.source,
            "started": run.started_ts,
            "ended": run.ts,
            "error": result.reason,
            "steps_told": steps,
            "messages": self._conversation.messages,
            "strands": self._conversation.strands,
            "texts": self._texts.listed(),
            "rows": [[row, state, count] for (row, state), count in self._rows.items()],
            "moves": [[source, dest, count] for (source, dest), count in self._moves.items()],
            "state": run.state,
        }

    def _open(self, event: Event) -> None:
        self._steps.append(
            {
                "step": event.step,
                "started": event.ts,
                "ended": event.ts,
                "model": 0,
                "tools": 0,
                "checks": 0,
                "tokens": [0, 0],
                "came": "",
                "items": [],
            }
        )

    def _add(self, step: dict[str, Any], event: Event, item: Item) -> None:
        text = self._texts.number(item.text) if item.text else -1
        step["items"].append([item.sort, item.title, text, event.seq])
        if item.came:
            step["came"] = item.came

    def _time(self, event: Event, step: dict[str, Any]) -> None:
        """Add what a landing took to the step that asked for it."""
        step["ended"] = max(step["ended"], event.ts)
        match event:
            case v.ModelStarted():
                self._started["model"] = (step, "model", event.ts)
            case v.ToolStarted():
                self._started[event.key] = (step, "tools", event.ts)
            case v.CheckStarted():
                self._started[event.key] = (step, "checks", event.ts)
            case v.ModelReplied():
                step["tokens"] = [
                    step["tokens"][0] + event.input_tokens,
                    step["tokens"][1] + event.output_tokens,
                ]
                self._landed("model", event)
            case v.ModelFailed():
                self._landed("model", event)
            case v.ToolReturned() | v.ToolErred() | v.CheckReturned():
                self._landed(event.key, event)

    def _landed(self, key: str, event: Event) -> None:
        if key in self._started:
            step, part, since = self._started.pop(key)
            step[part] += max(0, microseconds(event.ts) - microseconds(since))

    def _count(self, event: Event, before: str) -> None:
        row = getattr(event, "row", "")
        if row:
            self._rows[row, before] += 1
        if self.run.state != before:
            self._moves[before, self.run.state] += 1


def tell(events: Iterable[Event]) -> RunTold:
    """A run, read whole."""
    reading = RunTold()
    for event in events:
        reading.take(event)
    return reading
