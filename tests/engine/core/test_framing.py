"""The system turn of a run that begins with capabilities loaded."""

from stepfold.engine.core.framing import framing
from stepfold.events.vocabulary import BLANK, ToolReturned
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


def test_a_call_of_it_needs_no_load() -> None:
    story = Story(config(preload=("look",)))

    assert "ToolStarted" in story.lands(call("look", path="README.md"))
    assert "ObservationRecorded" in story.lands(ToolReturned(*BLANK, content="text"))
