"""The system turn of a run that begins with capabilities loaded."""

from typing import Any

from msgspec.structs import replace

from stepfold.engine.contract.schemas import TOOLS
from stepfold.engine.core.framing import framing
from stepfold.events.configuration import WORDING, Generation
from stepfold.events.vocabulary import BLANK, AnyEvent, ContextBuilt, ProjectListed, RunStarted, ToolReturned
from stepfold.projections.run import fold
from tests.house import Story, call, config


def test_what_is_loaded_from_the_start_is_shown_with_its_arguments_and_the_rest_by_name() -> None:
    sections = dict(framing(Story(config(preload=("look",))).run))

    listed = sections["capabilities"].splitlines()
    assert listed[0] == "Loaded capabilities, for capability_call:"
    assert listed[1] == "- look(): looks"
    assert listed[-1] == "You may load more: change"


def test_with_all_loaded_there_is_no_more_to_load() -> None:
    sections = dict(framing(Story(config(preload=("look", "change"))).run))

    assert "You may load more" not in sections["capabilities"]


def test_the_example_then_loads_nothing_and_names_no_file() -> None:
    plain = dict(framing(Story(config()).run))["contract"]
    preloaded = dict(framing(Story(config(preload=("look",))).run))["contract"]

    assert "capability_load" in plain
    assert "notes.txt" in plain
    assert "capability_load" not in preloaded
    assert "notes.txt" not in preloaded
    assert plain.splitlines()[-3:] == preloaded.splitlines()[-3:]


CONSTRAINED = Generation(response_format="actions")
LISTED = ProjectListed(*BLANK, files=("a.py", "test_a.py"))


def told(*events: AnyEvent, **changes: Any) -> dict[str, str]:
    settings = config(**{"generation": CONSTRAINED, "wording": WORDING} | changes)
    return dict(framing(fold([RunStarted(*BLANK, config=settings, engine="t"), *events])))


def tools(sections: dict[str, str]) -> set[str]:
    return {line.removeprefix("- ").partition("(")[0] for line in sections["tools"].splitlines()[1:]}


def test_a_constrained_model_reads_only_of_tools_that_something_can_come_of() -> None:
    idle = {"memory_write", "worker_dispatch"}

    assert tools(told()) == set(TOOLS) - idle
    assert tools(told(memory=True, worker_slots=1, worker_depth=1)) == set(TOOLS)
    assert tools(told(unattended=True)) == set(TOOLS) - idle - {"ask_user"}
    assert tools(told(preload=("look",))) == set(TOOLS) - idle - {"capability_search", "capability_load"}


def test_every_other_model_reads_of_all_eight() -> None:
    assert tools(told(generation=Generation())) == set(TOOLS)
    assert tools(told(wording=2)) == set(TOOLS)


def test_the_files_are_shown_as_they_were_before_the_first_step_and_so_the_prefix_stays() -> None:
    first = ContextBuilt(*BLANK, row="pack", tokens=1)
    later = ProjectListed(*BLANK, files=("b.py",))

    assert told(LISTED)["files"] == "Files at the start: a.py, test_a.py"
    assert told(LISTED, replace(first, step=1), later) == told(LISTED)
    assert "files" not in told()
    assert "files" not in told(ProjectListed(*BLANK, files=tuple(f"{n}.py" for n in range(61))))


def test_the_course_says_what_is_kept_and_that_changes_are_verified() -> None:
    plain = told(LISTED, preload=("look",))["contract"]
    both = told(LISTED, preload=("look",), keep=("test_*.py", "docs/*"), verify_changes=True)["contract"]

    assert "test_*.py" not in plain
    assert "What fits test_*.py, docs/* is right as it is, and can't be changed." in both
    assert "run by themselves" in both
    assert "run by themselves" not in plain


def test_a_run_without_checks_reads_of_none_that_run_by_themselves() -> None:
    """A worker has no checks, and read that they run after each change of a file."""
    alone = told(LISTED, preload=("look",), verify_changes=True, checks=())["contract"]

    assert "run by themselves" not in alone


def test_a_call_of_it_needs_no_load() -> None:
    story = Story(config(preload=("look",)))

    assert "ToolStarted" in story.lands(call("look", path="README.md"))
    assert "ObservationRecorded" in story.lands(ToolReturned(*BLANK, content="text"))
