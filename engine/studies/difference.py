"""Two runs side by side: aligned by step, the first difference, then the totals."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from stepfold.events import vocabulary as v
from stepfold.projections.outcome import outcome
from stepfold.projections.run import evolve
from stepfold.projections.state import Run


class StepView(Struct, frozen=True):
    """What a step came to, without ids and times: what two runs are compared by."""

    step: int
    reply: str = ""
    did: str = ""
    results: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()


class Difference(Struct, frozen=True):
    """Where two runs part. `step` is None when they never do; `totals` holds what differs, as (a, b)."""

    step: int | None
    what: str
    a: Any
    b: Any
    totals: dict[str, tuple[Any, Any]]

    @property
    def is_empty(self) -> bool:
        """Nothing differs."""
        return self.step is None and not self.totals


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
        for field in ("reply", "did", "results", "guards"):
            was, now = getattr(left, field), getattr(right, field)
            if was != now:
                return Difference(left.step, field, was, now, totals)
    if len(steps_a) != len(steps_b):
        longer = steps_a if len(steps_a) > len(steps_b) else steps_b
        step = longer[min(len(steps_a), len(steps_b))].step
        return Difference(step, "length", len(steps_a), len(steps_b), totals)
    return Difference(None, "", None, None, totals)


def _read(events: Iterable[v.AnyEvent | v.Unknown]) -> tuple[list[StepView], dict[str, Any]]:
    run = Run()
    steps: list[StepView] = []
    counts: dict[str, int] = {}
    step, reply, did = 0, "", ""
    results: list[str] = []
    guards: list[str] = []

    def close() -> None:
        if step or did or results or guards:
            steps.append(StepView(step, reply, did, tuple(results), tuple(guards)))

    for event in events:
        if event.step != step:
            close()
            step, reply, did, results, guards = event.step, "", "", [], []
        evolve(run, event)
        match event:
            case v.ModelReplied():
                calls = "".join(f"\n{call.name} {call.arguments}" for call in event.tool_calls)
                reply = f"{event.text}{calls}"
            case v.ActionParsed():
                did = event.name
            case v.ActionRejected():
                did = f"rejected: {event.error}"
                _count(counts, f"rejections.{event.error}")
            case v.ToolStarted():
                did = f"{did} {event.name}".strip()
                _count(counts, f"tools.{event.name}")
            case v.ToolRejected():
                did = f"{did} refused: {event.hop}".strip()
                _count(counts, f"refusals.{event.hop}")
            case v.ToolReturned():
                results.append(f"{event.error}: {event.content}" if event.error else event.content)
            case v.ToolErred() | v.ModelErred():
                results.append(f"{event.error}: {event.detail}")
            case v.CheckReturned():
                results.append(f"exit code {event.exit_code}")
            case v.GuardTripped():
                guards.append(event.guard)
                _count(counts, f"guards.{event.guard}")
            case v.LimitReached():
                guards.append(event.limit)
                _count(counts, f"guards.{event.limit}")
            case _:
                pass
    close()
    return steps, {**_totals(run), **counts}


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _totals(run: Run) -> dict[str, Any]:
    result = outcome(run)
    return {
        "status": result.status,
        "steps": result.steps,
        "actions": result.actions,
        "rejected": result.rejected,
        "input_tokens": result.usage.input_tokens,
        "output_tokens": result.usage.output_tokens,
        "unmet": result.unmet,
    }
