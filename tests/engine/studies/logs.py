"""The recorded runs that studies are asked of: real ones, told ones, and tool-calling ones."""

from pathlib import Path
from typing import Any

from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.run_policy import RunPolicy
from stepfold.events.journal import Recorded, read_log
from tests.harness_house import Counted, Scripted, calls, play, text
from tests.house import recorded

FIXTURES = {
    path.parent.name: path
    for path in sorted((Path(__file__).parents[3] / "replay_fixtures").glob("*/log.jsonl"))
}
LOGS: dict[str, tuple[Recorded, ...]] = {name: read_log(path).records for name, path in FIXTURES.items()}


def of_kind(records: Any, name: str) -> list[Any]:
    """The events of one kind."""
    return [record.event for record in records if type(record.event).__name__ == name]


def tools_run(turns: int, **policy: Any) -> list[Recorded]:
    """A tool-calling run: so many turns with two calls each, then an answer."""
    script = [*[calls((f"a{n}", "look"), (f"b{n}", "look")) for n in range(turns)], text("done")]
    harness = AgentHarness(Scripted(*script), [Counted("look").tool], policy=RunPolicy(**policy))
    return recorded(play(harness).events)
