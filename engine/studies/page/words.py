"""How each event reads on the page of a run: a sort, a title, and the text that belongs to it."""

from collections.abc import Iterator

from msgspec import Raw, Struct

from stepfold.events import vocabulary as v
from stepfold.projections.state import Run


class Item(Struct, frozen=True):
    """One thing that happened. `came` is what the step came to by it, where it is that."""

    sort: str
    title: str
    text: str = ""
    came: str = ""


def told(event: v.AnyEvent | v.Unknown, run: Run) -> Iterator[Item]:
    """What an event says to a person, `run` being folded up to it; nothing for what is plumbing."""
    match event:
        case v.RunStarted():
            yield from _opening(event)
        case v.UserAnswered():
            yield Item("user", "the user says", event.text)
        case v.UserLoaded():
            yield Item("user", f"the user loads {', '.join(event.names)}")
        case v.SteeringReceived():
            for command in event.commands:
                yield Item("user", f"steering: {command.name}", command.text)
        case v.CancelRequested():
            yield Item("user", "cancel requested", event.reason)
        case v.ApprovalAsked():
            yield Item("gate", f"approval asked for {event.name}", f"by the rule {event.rule}")
        case v.ApprovalAnswered():
            yield Item("gate", "approved" if event.approved else "not approved", event.text)
        case v.CallUndone():
            yield Item("user", f"the user undid {event.name} on {event.path}", event.what)
        case v.ModelReplied():
            yield from _reply(event)
        case v.ModelErred():
            yield Item("failed", f"the model failed: {event.error}", event.detail)
        case v.ActionParsed():
            yield Item("action", event.name, "", event.name)
        case v.ActionRejected():
            yield Item("rejected", event.error, event.detail, f"rejected: {event.error}")
            yield Item("repair", "what the model reads next", _section(event.repair, run))
        case v.ToolRejected():
            yield Item("gate", f"{event.name} refused by {event.hop}", event.reason, f"refused: {event.hop}")
        case v.UnknownToolCalled():
            yield Item("rejected", f"no tool {event.name}", event.recovery, "unknown tool")
        case v.ToolArgumentsRejected():
            yield Item("rejected", f"arguments of {event.name}", event.reason, "arguments rejected")
        case v.FinishRejected():
            yield Item("gate", "finish refused", f"unmet: {', '.join(event.unmet)}", "finish refused")
        case v.GuardTripped():
            yield Item("guard", event.guard, "", f"guard: {event.guard}")
        case v.LimitReached():
            yield Item("guard", f"limit: {event.limit}", "", f"limit: {event.limit}")
        case v.NoProgress():
            yield Item("guard", f"no progress: {event.verdict}", event.message)
        case _:
            yield from _done(event)


def _done(event: v.AnyEvent | v.Unknown) -> Iterator[Item]:
    """What was carried out, and how the run moved on."""
    match event:
        case v.ToolStarted():
            yield Item("call", event.name, _raw(event.arguments), event.name)
        case v.ToolReturned():
            yield Item("failed" if event.error else "result", event.error or "result", event.content)
        case v.ToolErred():
            yield Item("failed", event.error, event.detail)
        case v.EffectLost():
            yield Item("failed", "outcome unknown: the process died while it ran")
        case v.ToolSkipped():
            yield Item("note", f"call {event.call_id} skipped: {event.why}")
        case v.CapabilitiesFound():
            yield Item("result", "found", ", ".join(event.names) or "nothing")
        case v.CapabilitiesLoaded():
            yield Item("result", f"loaded {', '.join(event.loaded) or 'nothing'}", ", ".join(event.failed))
        case v.CheckReturned():
            code = "could not run" if event.exit_code is None else f"exit code {event.exit_code}"
            yield Item("check", code, event.output)
        case v.EvidenceRecorded():
            yield Item("passed" if event.passed else "failed", f"check {event.check_id}")
        case v.ChecksJudged():
            unmet = f"unmet: {', '.join(event.unmet)}" if event.unmet else "nothing unmet"
            yield Item("check", unmet, "", f"verify, {unmet}")
        case v.ProjectListed(whole=False):
            yield Item("note", "more files than a constrained model is told of")
        case v.ProjectListed():
            named = [*event.files, *(f"{path} (gone)" for path in event.gone)]
            yield Item("note", "files that may be named", ", ".join(named))
        case v.WorkspaceChanged():
            yield Item("note", "the project's files were changed from outside")
        case v.ContextCompacted():
            yield Item("note", f"{event.dropped} old turns left the prompt, {event.kept} stay")
        case v.RetryScheduled():
            yield Item("note", f"attempt {event.attempt} after {event.delay:g} s: {event.why}")
        case v.ModelFailed():
            yield Item("failed", "no reply", event.error, "failed")
        case v.FinishAccepted():
            yield Item("passed", f"finish accepted ({event.by})")
        case _:
            yield from _moved(event)


def _moved(event: v.AnyEvent | v.Unknown) -> Iterator[Item]:
    """The ends, the rests, and what only the tool-calling loop knows."""
    match event:
        case v.RunFinished():
            yield Item("end", event.status)
        case v.RunCompleted():
            yield Item("end", "completed", event.stop_reason)
        case v.RunFailed():
            yield Item("end", f"failed: {event.error}")
        case v.RunPaused():
            yield Item("end", "paused")
        case v.RunResumed() | v.RunReopened():
            yield Item("note", "the run goes on")
        case v.LogRepaired():
            yield Item("note", f"the log was repaired: {event.torn_bytes} torn bytes were cut")
        case v.MemoryRecalled() if event.hits:
            yield Item("note", "recalled from earlier runs", "\n".join(event.hits))
        case v.FallbackSelected():
            yield Item("note", f"{event.model} takes the call over")
        case v.FallbackSkipped():
            yield Item("note", f"{event.model} can't take the call: it lacks {event.lacks}")
        case v.CacheHit():
            yield Item("note", "the reply came from the cache")
        case v.MiddlewareStarted():
            yield Item("hook", f"{event.name} {event.hook}", event.call_id)
        case v.HookReturned() if event.control or event.error:
            yield Item("hook", event.control or event.error, event.reason or event.detail)
        case v.Steered():
            yield Item("note", f"{event.command} {'applied' if event.accepted else 'refused'}")
        case v.ControlApplied():
            yield Item("note", event.control)
        case v.SubAgentStarted():
            yield Item("call", f"sub-agent {event.child}")
        case v.SubAgentCompleted():
            yield Item("result", f"sub-agent {event.child} completed")
        case v.SubAgentFailed():
            yield Item("failed", f"sub-agent {event.child} failed", event.error)
        case v.ToolsListed():
            names = ", ".join(tool.name for tool in event.tools)
            yield Item("note", f"{event.server} offers {len(event.tools)} tools", event.error or names)
        case v.SandboxProbed():
            yield Item("note", f"sandbox: {event.backend or 'missing'}", event.why)
        case v.Unknown():
            yield Item("note", f"{event.kind}: of a newer engine")


def _opening(event: v.RunStarted) -> Iterator[Item]:
    goal = getattr(event.config, "goal", "")
    if goal:
        yield Item("user", "the goal", goal)
    for message in event.input:
        yield Item("user", f"{message.role} says", message.content)


def _reply(event: v.ModelReplied) -> Iterator[Item]:
    if event.reasoning:
        yield Item("thinking", "reasoning", event.reasoning)
    yield Item("reply", event.finish_reason or "reply", event.text, "" if event.tool_calls else "replied")
    for call in event.tool_calls:
        yield Item("action", call.name, call.arguments, call.name)


def _section(section: v.Section, run: Run) -> str:
    return section.text or run.goal.texts.get(section.digest, "")


def _raw(arguments: Raw) -> str:
    text = bytes(arguments).decode("utf-8", "replace")
    return "" if text == "null" else text
