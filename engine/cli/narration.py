"""The line or two that a person reads on stderr while a run goes on."""

from collections.abc import Callable

from stepfold.engine.cli.output import note
from stepfold.events import vocabulary as v


def narrate(event: v.Event) -> None:
    """Tell of one event, if it is worth a line."""
    line = narration(event)
    if line:
        note(f"{event.step:>4}  {line}")


def narration(event: v.Event) -> str:
    """The line of an event; empty for what is plumbing."""
    match event:
        case v.ActionParsed(name=name):
            return name
        case v.ActionRejected(error=error, detail=detail):
            return f"rejected  {error}: {detail}"
        case v.ToolRejected(name=name, hop=hop, reason=reason):
            return f"refused   {name} ({hop}): {reason}"
        case v.ToolStarted(name=name):
            return f"running   {name}"
        case v.ToolsListed(server=server, tools=tools, error=error):
            return f"server    {server}: {error or f'{len(tools)} tools'}"
        case v.ToolFailed(error=error):
            return f"failed    {error}"
        case v.CheckStarted(check_id=check_id):
            return f"checking  {check_id}"
        case v.EvidenceRecorded(check_id=check_id, passed=passed):
            return f"{'passed' if passed else 'unmet '}    {check_id}"
        case v.FinishRejected(unmet=unmet):
            return f"finish rejected: unmet {', '.join(unmet)}"
        case v.GuardTripped(guard=guard):
            return f"guard     {guard}"
        case v.ContextCompacted(dropped=dropped):
            return f"compacted {dropped} turns left the prompt"
        case v.ModelErred(error=error, detail=detail):
            return f"model     {error}: {detail}"
        case v.RetryScheduled(attempt=attempt, delay=delay):
            return f"retry     {attempt} in {delay:g} s"
        case _:
            return ""


def quiet(event: v.Event) -> None:
    """Tell nothing."""


def narrator(on_a_terminal: bool) -> Callable[[v.Event], None]:
    """Narration where somebody watches, silence where stderr goes into a file."""
    return narrate if on_a_terminal else quiet
