"""What a constrained model is offered to say next: each action that is not refused for certain.

The contract and the table judge every reply all the same. What stays out here is what they would refuse
whatever its arguments, and what could only tell again what was told: a model of one or two billion
parameters that is refused repeats itself word for word, and has then spent a step on each. So, too, a tool
is left out while the steps go round: each like an earlier one, in what was said and in what came of it.
"""

from collections.abc import Iterator

from stepfold.engine.capabilities.lifecycle import network_refusal
from stepfold.engine.contract.choices import Schema, alternatives
from stepfold.engine.core import guards
from stepfold.engine.core.arguments import visible_schema
from stepfold.engine.core.goal_sees import Acting
from stepfold.projections.fold_goal import checks_of, config_of
from stepfold.projections.state import Run

WAYS_OUT = frozenset({"finish", "ask_user"})
"""A model may say the same twice to a person who said the same twice."""


def offered(run: Run) -> list[Schema]:
    """The shapes of what the model may say now."""
    network = config_of(run).network
    usable = {
        name: manifest for name, manifest in run.manifests.items() if not network_refusal(manifest, network)
    }
    loadable = tuple(name for name in usable if name not in run.goal.loaded)
    checks = _untold_checks(run)
    again = frozenset(run.goal.again) - WAYS_OUT
    return alternatives(
        [tool for tool in _tools(run, loadable, checks) if tool not in again],
        {
            name: visible_schema(usable[name])
            for name in run.goal.loaded
            if name in usable and name not in again
        },
        loadable=loadable,
        checks=checks,
    )


def _tools(run: Run, loadable: tuple[str, ...], checks: tuple[str, ...]) -> Iterator[str]:
    yield from ("memory_write", "ask_user")
    if loadable:
        yield from ("capability_search", "capability_load")
    if checks:
        yield "verify"
    if not guards.no_worker_free(run, Acting("", {})):
        yield "worker_dispatch"
    if guards.chatting(run, None) or guards.evidence_complete(run, None):
        yield "finish"


def _untold_checks(run: Run) -> tuple[str, ...]:
    """The checks whose answer may be another than the one that the model has read.

    One that ran in this workspace says the same again. One that could not run may do so now.
    """
    goal = run.goal
    told = {
        item.check_id
        for item in goal.evidence.values()
        if item.is_fresh(goal.mutations) and item.exit_code is not None
    }
    return tuple(check.id for check in checks_of(run) if check.id not in told)
