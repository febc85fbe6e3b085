"""The eyes of the goal table: the one word that each state sees, and what comes with it."""

from typing import Any

import msgspec
from msgspec import Struct

from stepfold.engine.capabilities.lifecycle import Admitted, Refused, admit
from stepfold.engine.contract.envelope import Action, parse_action
from stepfold.engine.core.machine import AUTO
from stepfold.events.configuration import WORDING_OF_WHAT_IS_THERE
from stepfold.projections.evidence import unmet
from stepfold.projections.fold_goal import checks_of, config_of
from stepfold.projections.state import Run


class Acting(Struct, frozen=True):
    """An action, decoded once: its arguments, and the verdict of the lifecycle for a capability."""

    call_id: str
    arguments: dict[str, Any]
    admission: Admitted | Refused | None = None


class Checking(Struct, frozen=True):
    """Which checks an action still has to run, and which of those it asks for don't exist."""

    call_id: str
    left: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def taken_arguments(run: Run) -> dict[str, Any]:
    """The arguments of the action of this step, decoded."""
    taken = run.goal.action
    return {} if taken is None else msgspec.json.decode(taken.arguments)


def nothing(run: Run) -> tuple[str, Any]:
    """The state waits for nothing."""
    return AUTO, None


def model_landing(run: Run) -> tuple[str, Any]:
    """The reply or the error of the attempt in flight."""
    landed = run.model_landed
    return (AUTO, None) if landed is None else (type(landed).__name__, landed)


def parsed_reply(run: Run) -> tuple[str, Any]:
    """The verdict of the contract. The only place that parses a reply."""
    parsed = parse_action(run.reply)
    return ("accepted", parsed) if isinstance(parsed, Action) else ("rejected", parsed)


def action(run: Run) -> tuple[str, Any]:
    """The action's name, with its arguments decoded and the gates asked once."""
    taken = run.goal.action
    if taken is None:
        return AUTO, None
    call_id = run.slots[0].call_id
    arguments = taken_arguments(run)
    if taken.name == "capability_call":
        admission = _admission(run, arguments["capability"], arguments["arguments"])
        return taken.name, Acting(call_id, arguments, admission)
    if taken.name == "verify":
        return taken.name, _wanted(run)
    return taken.name, Acting(call_id, arguments)


def _admission(run: Run, name: str, arguments: dict[str, Any]) -> Admitted | Refused:
    config = config_of(run)
    return admit(
        name,
        arguments,
        manifests=run.manifests,
        loaded=run.goal.loaded,
        policy=config.policy,
        sandbox=run.backend,
        sandbox_required=config.sandbox_required,
        network=config.network,
        tool_policy=config.tool_policy,
        attended=config.chat,
        keep=config.keep,
        final_newline=config.final_newline,
        project=config.project if config.wording >= WORDING_OF_WHAT_IS_THERE else "",
    )


def _wanted(run: Run) -> Checking:
    there = [check.id for check in checks_of(run)]
    taken = run.goal.action
    named = taken_arguments(run).get("checks") if taken is not None and taken.name == "verify" else None
    asked: list[str] = named or there
    left = tuple(check for check in there if check in asked and check not in run.goal.checked)
    return Checking(run.slots[0].call_id, left, tuple(name for name in asked if name not in there))


def _missing(run: Run) -> Checking:
    goal = run.goal
    missing = unmet(checks_of(run), goal.evidence, goal.mutations)
    return Checking(run.slots[0].call_id, tuple(check for check in missing if check not in goal.checked))


def approval_landing(run: Run) -> tuple[str, Any]:
    """The person's verdict on the call that waits, with the call as it was admitted."""
    _, given = action(run)
    return (AUTO if run.goal.approval is None else "ApprovalAnswered"), given


def tool_landing(run: Run) -> tuple[str, Any]:
    """The result of the call in flight."""
    landed = run.slots[0].landed
    return (AUTO, None) if landed is None else (type(landed).__name__, landed)


def wanted_check(run: Run) -> tuple[str, Any]:
    """In `verifying`: the result of the check in flight, and what the `verify` still wants."""
    return _check_word(run), _wanted(run)


def missing_check(run: Run) -> tuple[str, Any]:
    """In `escalating`: the same, and what is still without evidence."""
    return _check_word(run), _missing(run)


def _check_word(run: Run) -> str:
    landed = run.goal.check_landed
    return AUTO if landed is None else type(landed).__name__


def user_landing(run: Run) -> tuple[str, Any]:
    """The person's answer."""
    return (AUTO, None) if run.goal.answer is None else ("UserAnswered", None)
