"""Two runs side by side: aligned by step, the first difference, then the totals."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepfold.events import vocabulary as v
from stepfold.projections.outcome import outcome
from stepfold.projections.run import evolve
from stepfold.projections.state import Run


class StepView(Struct, frozen=True):
    """What a step came to, without ids and times: what two runs are compared by.

    `asked` is what people said: the goal or the messages, an answer, steering.
    """

    step: int
    asked: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    did: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()


class Difference(Struct, frozen=True):
    """Where two runs part, with both sides there. `step` is None when they never do.

    `totals` holds what differs of the whole runs, as (a, b).
    """

    step: int | None
    what: str
    a: Any
    b: Any
    totals: dict[str, tuple[Any, Any]]

    @property
    def is_empty(self) -> bool:
        """Nothing differs."""
        return self.step is None and not self.totals

    def as_json(self) -> dict[str, Any]:
        """The shape that `stepfold diff --json` prints; the ids are added by whoever knows them."""
        first = (
            None if self.step is None else {"step": self.step, "what": self.what, "a": self.a, "b": self.b}
        )
        totals = {name: {"a": a, "b": b} for name, (a, b) in self.totals.items()}
        return {"equal": self.is_empty, "first": first, "totals": totals}


def difference(a: Iterable[v.AnyEvent | v.Unknown], b: Iterable[v.AnyEvent | v.Unknown]) -> Difference:
    """The first step in which two runs differ, and how their totals do."""
    steps_a, totals_a = _read(a)
    steps_b, totals_b = _read(b)
    totals = {
        name: (totals_a.get(name), totals_b.get(name))
        for name in dict.fromkeys([*totals_a, *totals_b])
        if totals_a.get(name) != totals_b.get(name)
    }
    for left, right in zip(steps_a, steps_b, strict=False):
        for field in ("step", "asked", "replies", "did", "results", "guards"):
            was, now = getattr(left, field), getattr(right, field)
            if was != now:
                return Difference(left.step, field, was, now, totals)
    if len(steps_a) != len(steps_b):
        longer = steps_a if len(steps_a) > len(steps_b) else steps_b
        step = longer[min(len(steps_a), len(steps_b))].step
        return Difference(step, "length", len(steps_a), len(steps_b), totals)
    return Difference(None, "", None, None, totals)


class _Step:
    """A step that is still being read."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.parts: dict[str, list[str]] = {
            name: [] for name in ("asked", "replies", "did", "results", "guards")
        }

    def view(self) -> StepView:
        return StepView(self.step, **{name: tuple(items) for name, items in self.parts.items()})


def _read(events: Iterable[v.AnyEvent | v.Unknown]) -> tuple[list[StepView], dict[str, Any]]:
    run = Run()
    steps = [_Step(0)]
    counts: dict[str, int] = {}
    streamed: list[str] = []
    for event in events:
        if event.step != steps[-1].step:
            steps.append(_Step(event.step))
        evolve(run, event)
        match event:
            case v.ModelDelta():
                streamed.append(event.text)
            case v.ModelReplied() if not event.text and streamed:
                event = replace(event, text="".join(streamed))
        if isinstance(event, v.ModelReplied | v.ModelErred):
            streamed.clear()
        told = _told(event)
        if told is not None:
            steps[-1].parts[told[0]].append(told[1])
        counted = _counted(event)
        if counted:
            counts[counted] = counts.get(counted, 0) + 1
    return [step.view() for step in steps], {**_totals(run), **counts}


def _told(event: v.AnyEvent | v.Unknown) -> tuple[str, str] | None:
    """Which part of its step an event belongs to, and how it reads there; None for what is plumbing."""
    match event:
        case v.RunStarted():
            said = [message.content for message in event.input]
            return "asked", "\n".join([getattr(event.config, "goal", ""), *said])
        case v.UserAnswered():
            return "asked", event.text
        case v.SteeringReceived():
            commands = [f"{command.name} {command.text}".strip() for command in event.commands]
            return "asked", "\n".join(commands)
        case v.CancelRequested():
            return "asked", "cancel"
        case v.ModelReplied():
            calls = "".join(f"\n{call.name} {call.arguments}" for call in event.tool_calls)
            return "replies", f"{event.text}{calls}"
        case v.ModelErred():
            return "replies", f"{event.error}: {event.detail}"
        case v.ActionParsed():
            return "did", event.name
        case v.ActionRejected():
            return "did", f"rejected: {event.error}"
        case v.ToolStarted():
            return "did", f"call {event.name}"
        case v.ToolRejected():
            return "did", f"{event.name} refused: {event.hop}"
        case v.ToolSkipped():
            return "did", f"skipped: {event.why}"
        case v.ToolReturned():
            return "results", f"{event.error}: {event.content}" if event.error else event.content
        case v.ToolErred():
            return "results", f"{event.error}: {event.detail}"
        case v.CheckReturned():
            # Not its output: it tells how long the check took, which differs every time.
            return "results", f"exit code {event.exit_code}"
        case v.EffectLost():
            return "results", "lost"
        case v.GuardTripped():
            return "guards", event.guard
        case v.LimitReached():
            return "guards", event.limit
        case v.NoProgress():
            return "guards", f"no progress: {event.verdict}"
        case _:
            return None


def _counted(event: v.AnyEvent | v.Unknown) -> str:
    """The total that an event adds one to, if any."""
    match event:
        case v.ToolStarted():
            return f"tools.{event.name}"
        case v.ActionRejected():
            return f"rejections.{event.error}"
        case v.ToolRejected():
            return f"refusals.{event.hop}"
        case v.GuardTripped():
            return f"guards.{event.guard}"
        case v.LimitReached():
            return f"guards.{event.limit}"
        case _:
            return ""


def _totals(run: Run) -> dict[str, Any]:
    result = outcome(run)
    return {
        "status": result.status,
        "steps": result.steps,
        "actions": result.actions,
        "rejected": result.rejected,
        "model_calls": result.usage.model_calls,
        "input_tokens": result.usage.input_tokens,
        "output_tokens": result.usage.output_tokens,
        "unmet": list(result.unmet),
    }
