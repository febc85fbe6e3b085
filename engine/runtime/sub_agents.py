"""A harness as a tool of another one: a model calling a model, each with a log of its own."""

from msgspec import Raw

from stepfold.engine.runtime.agent_run import HarnessError
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.middleware import RunContext
from stepfold.engine.runtime.run_policy import RunConfig
from stepfold.engine.runtime.tools import Tool
from stepfold.engine.runtime.workers import child_usage
from stepfold.events.configuration import Manifest
from stepfold.events.vocabulary import BLANK, ToolErred, ToolReturned

_SCHEMA = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)
LIMITS = frozenset({"LimitExceeded", "Timeout", "NoProgress"})
"""Ends of a sub-agent that its parent's model may react to."""
NEVER_SWALLOWED = frozenset({"Cancelled", "Interrupted", "Middleware"})
"""Ends that reach the parent as they are, whatever its policy says of tool errors."""


def sub_agent(harness: AgentHarness, *, name: str, description: str) -> Tool:
    """A tool that hands its `input` to a run of `harness` and gives back the answer.

    The sub-agent's run lies in the parent's store, under an id made of the parent's, the step and the
    call, so that a resumed parent finds it again. Its usage is added to the parent's, the parent's
    cancellation and remaining time reach it, and of the two depth caps the stricter holds.
    """

    async def delegate(input: str, context: RunContext) -> ToolReturned | ToolErred:
        depth = context.depth + 1
        cap = min(context.max_depth, harness.policy.max_depth)
        if depth > cap:
            return ToolReturned(
                *BLANK,
                content=f"Error: the sub-agent would run at depth {depth}, and {cap} is the limit",
                error="DepthExceeded",
            )
        config = RunConfig(
            run_id=context.child_run_id,
            depth=depth,
            max_depth=cap,
            timeout=context.remaining,
            parent=context.run_id,
            parent_call=context.call_id,
        )
        try:
            result = await harness.continue_or_begin(context.state, context.data, config, [input])
        except HarnessError as error:
            return _landing_of(error)
        return ToolReturned(*BLANK, content=result.text or "", child=child_usage(result.usage))

    manifest = Manifest(
        name=name, description=description, schema=_SCHEMA, idempotency="idempotent", child=True
    )
    return Tool(manifest, delegate, takes_context="context", child=harness)


def _landing_of(error: HarnessError) -> ToolReturned | ToolErred:
    usage = child_usage(error.run.usage)
    if error.kind in LIMITS:
        text = f"Error: the sub-agent hit its configured run limit: {error.detail}"
        return ToolReturned(*BLANK, content=text, error=error.kind, child=usage)
    return ToolErred(
        *BLANK, error=error.kind, detail=error.detail, fatal=error.kind in NEVER_SWALLOWED, child=usage
    )
