"""What a constrained model is offered: nothing that the loop would refuse, or tell in the same words."""

from typing import Any

from msgspec.structs import replace

from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.core.offer import offered
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import (
    BLANK,
    CallUndone,
    CheckReturned,
    ContextBuilt,
    ProjectListed,
    RunReopened,
    RunStarted,
    ToolReturned,
    UserAnswered,
)
from tests.house import CHAT, FINISH, LOAD, SEARCH, VERIFY, WORKERS, Story, call, config, load
from tests.house import LOOK as LOOKING

CONSTRAINED = Generation(response_format="actions")
LOOK = call("look", path="README.md")
TEXT = ToolReturned(*BLANK, content="text")
PASSED = CheckReturned(*BLANK, exit_code=0)
FAILED = CheckReturned(*BLANK, exit_code=1)
NEVER_RAN = CheckReturned(*BLANK, exit_code=None)


def story(*batches: Any, **changes: Any) -> Story:
    told = Story(config(generation=CONSTRAINED, max_steps=50, **changes))
    for batch in batches:
        told.lands(batch)
    return told


def names(told: Story) -> set[str]:
    """The tools that are offered, a capability by its own name."""
    found = set()
    for shape in offered(told.run):
        properties = shape["properties"]
        (name,) = properties["name"]["enum"]
        inner = properties["arguments"].get("properties", {})
        found |= set(inner["capability"]["enum"]) if name == "capability_call" else {name}
    return found


def values(told: Story, tool: str, argument: str) -> list[str]:
    """What an argument of a tool may hold."""
    (shape,) = (
        one["properties"]["arguments"]["properties"][argument]
        for one in offered(told.run)
        if one["properties"]["name"]["enum"] == [tool]
    )
    found: list[str] = shape["items"]["enum"]
    return found


def test_what_is_loaded_is_offered_to_call_and_no_more_to_load() -> None:
    before, after = story(), story(load("look"))

    assert "look" not in names(before)
    assert values(before, "capability_load", "names") == ["look", "change"]
    assert "look" in names(after)
    assert values(after, "capability_load", "names") == ["change"]


def test_with_everything_loaded_there_is_nothing_to_search_or_load() -> None:
    told = story(preload=("look", "change"))

    assert names(told).isdisjoint({"capability_search", "capability_load"})


def test_what_needs_the_network_is_offered_to_a_run_that_has_it() -> None:
    (fetch,) = (manifest for manifest in NATIVE if manifest.network)
    loaded = {"manifests": (fetch,), "preload": (fetch.name,)}

    assert fetch.name not in names(story(**loaded))
    assert fetch.name in names(story(**loaded, network=True))


def test_finish_is_offered_when_every_check_has_passed_and_verify_until_then() -> None:
    assert {"verify", "finish"} & names(story()) == {"verify"}
    assert {"verify", "finish"} & names(story(VERIFY, PASSED, PASSED)) == {"finish"}
    assert {"verify", "finish"} & names(story(VERIFY, PASSED, FAILED)) == set()


def test_a_change_makes_checks_worth_another_look() -> None:
    told = story(LOAD, VERIFY, PASSED, PASSED, call("change", path="a.py"), TEXT)

    assert {"verify", "finish"} & names(told) == {"verify"}


def test_a_check_that_could_not_run_may_be_tried_again() -> None:
    told = story(VERIFY, PASSED, NEVER_RAN)

    assert values(told, "verify", "checks") == ["b"]


def test_without_checks_there_is_nothing_to_verify() -> None:
    assert {"verify", "finish"} & names(story(checks=())) == {"finish"}


def test_a_worker_is_offered_where_there_can_be_one() -> None:
    assert "worker_dispatch" not in names(story())
    assert "worker_dispatch" in names(story(**WORKERS))
    assert "worker_dispatch" not in names(story(**WORKERS, depth=1))


def test_a_call_that_gave_the_same_again_is_left_out_of_the_next_step() -> None:
    once = story(LOAD, LOOK, TEXT)
    twice = story(LOAD, LOOK, TEXT, LOOK, TEXT)
    another = story(LOAD, LOOK, TEXT, LOOK, TEXT, SEARCH)

    assert "look" in names(once)
    assert "look" not in names(twice)
    assert "look" in names(another)


def test_the_same_call_with_another_result_is_no_repetition() -> None:
    told = story(LOAD, LOOK, TEXT, LOOK, ToolReturned(*BLANK, content="other"))

    assert "look" in names(told)


def test_a_circle_of_two_calls_leaves_both_out() -> None:
    change = call("change", path="a.py")
    told = story(LOAD, LOOK, TEXT, change, TEXT, LOOK, TEXT, change, TEXT)

    assert names(told).isdisjoint({"look", "change"})


def test_a_person_who_speaks_begins_anew_and_finish_is_always_a_way_out_of_a_turn() -> None:
    told = story(FINISH, UserAnswered(*BLANK, text="hi"), FINISH, UserAnswered(*BLANK, text="hi"), **CHAT)

    assert "finish" in names(told)


def test_without_a_constraint_nothing_is_kept_for_it() -> None:
    told = Story(config())
    for batch in (SEARCH, LOAD, LOOK, TEXT, LOOK, TEXT):
        told.lands(batch)

    assert (told.run.goal.told, told.run.goal.again) == ((), ())


FILES = ("a.py", "docs/guide/one.md", "stepfold.toml", "test_a.py")
EVERY_NATIVE = {"manifests": NATIVE, "preload": tuple(manifest.name for manifest in NATIVE)}


def with_files(*batches: Any, **changes: Any) -> Story:
    return story(ProjectListed(*BLANK, files=FILES), *batches, **EVERY_NATIVE | changes)


def arguments_of(told: Story, capability: str) -> dict[str, Any]:
    """The properties of the arguments that a capability is offered with."""
    (shape,) = (
        one["properties"]["arguments"]["properties"]["arguments"]["properties"]
        for one in offered(told.run)
        if one["properties"]["arguments"]["properties"].get("capability")
        == {"type": "string", "enum": [capability]}
    )
    found: dict[str, Any] = shape
    return found


def paths(told: Story, capability: str) -> list[str] | None:
    found: list[str] | None = arguments_of(told, capability)["path"].get("enum")
    return found


def test_where_the_files_are_known_a_path_that_has_to_lead_somewhere_is_one_of_them() -> None:
    told = with_files()

    assert paths(told, "fs.read") == list(FILES)
    assert paths(told, "fs.list") == [".", "docs", "docs/guide"]
    assert paths(told, "fs.search") == [".", "docs", "docs/guide", *FILES]
    assert paths(told, "git.diff") == [".", "docs", "docs/guide", *FILES]
    assert paths(told, "fs.write") is None


def test_what_is_protected_or_kept_is_offered_to_read_and_not_to_patch() -> None:
    assert paths(with_files(), "fs.patch") == ["a.py", "docs/guide/one.md", "test_a.py"]
    assert paths(with_files(keep=("test_*.py", "docs/*")), "fs.patch") == ["a.py"]
    assert paths(with_files(keep=("test_*.py",)), "fs.read") == list(FILES)


def test_a_file_that_was_made_may_be_named_and_one_that_is_gone_no_more() -> None:
    told = with_files(ProjectListed(*BLANK, files=("b.py",), gone=("a.py", "docs/guide/one.md")))

    assert paths(told, "fs.read") == ["b.py", "stepfold.toml", "test_a.py"]
    assert paths(told, "fs.list") == ["."]


def test_in_a_project_without_files_there_is_nothing_to_read_or_patch() -> None:
    told = story(ProjectListed(*BLANK), **EVERY_NATIVE)

    assert names(told).isdisjoint({"fs.read", "fs.patch"})
    assert {"fs.write", "fs.list"} <= names(told)


def test_a_path_is_any_text_where_the_files_are_not_known_or_too_many() -> None:
    assert paths(story(**EVERY_NATIVE), "fs.read") is None
    assert paths(with_files(ProjectListed(*BLANK, whole=False)), "fs.read") is None


def test_lines_of_a_file_are_offered_when_something_was_too_long_to_be_told_whole() -> None:
    capped = ToolReturned(*BLANK, content="the beginning", size=100_000, digest="d")
    read = call("fs.read", path="a.py")

    assert set(arguments_of(with_files(), "fs.read")) == {"path"}
    assert set(arguments_of(with_files(read, TEXT), "fs.read")) == {"path"}
    assert set(arguments_of(with_files(read, capped), "fs.read")) == {"path", "start_line", "end_line"}


def test_a_file_that_was_read_whole_is_not_offered_to_read_again_before_something_changes() -> None:
    read = call("fs.read", path="./a.py")
    part = call("fs.read", path="a.py", start_line=1)
    gone = ToolReturned(*BLANK, content="there is no file a.py", error="NotFound")
    write = call("fs.write", path="b.py", content="x")

    assert paths(with_files(read, TEXT), "fs.read") == ["docs/guide/one.md", "stepfold.toml", "test_a.py"]
    assert paths(with_files(part, TEXT), "fs.read") == list(FILES)
    assert paths(with_files(read, gone), "fs.read") == list(FILES)
    assert paths(with_files(read, TEXT, write, TEXT), "fs.read") == list(FILES)


def test_a_file_whose_change_was_undone_is_offered_to_read_again() -> None:
    """After /undo the model knew other words than the file held, and could not look."""
    write, read = call("fs.write", path="a.py", content="x"), call("fs.read", path="a.py")
    undone = CallUndone(*BLANK, call="tool:1.0", name="fs.write", path="a.py", what="restored")

    told = with_files(write, TEXT, read, TEXT, FINISH, undone, **CHAT)

    assert paths(told, "fs.read") == list(FILES)


def test_a_file_that_was_read_is_offered_again_when_time_has_passed_that_nobody_saw() -> None:
    """A person changed a file between two turns, and the model could not look at it."""
    read = call("fs.read", path="a.py")

    assert paths(with_files(read, TEXT, FINISH, **CHAT), "fs.read") != list(FILES)
    assert paths(
        with_files(read, TEXT, FINISH, UserAnswered(*BLANK, text="go on"), **CHAT), "fs.read"
    ) == list(FILES)
    assert paths(with_files(read, TEXT, RunReopened(*BLANK)), "fs.read") == list(FILES)


def test_a_file_that_was_read_is_offered_again_when_a_check_changed_the_files() -> None:
    before, after = (replace(PASSED, workspace=digest) for digest in ("1" * 16, "2" * 16))
    read = call("fs.read", path="a.py")

    assert paths(with_files(read, TEXT, VERIFY, before, before), "fs.read") != list(FILES)
    assert paths(with_files(read, TEXT, VERIFY, before, after), "fs.read") == list(FILES)


def test_the_files_are_not_offered_to_list_where_the_framing_shows_them_all() -> None:
    started = RunStarted(*BLANK, config=config(generation=CONSTRAINED, **EVERY_NATIVE), engine="test")
    listed = [started, ProjectListed(*BLANK, files=FILES)]
    first_step = replace(ContextBuilt(*BLANK, row="pack", tokens=1), step=1)
    shown = Story(events=[*listed, first_step])
    changed = Story(events=[*listed, first_step, ProjectListed(*BLANK, files=("new.py",))])

    assert "fs.list" not in names(shown)
    assert "fs.list" in names(changed)
    assert "fs.list" in names(with_files())


def test_a_note_is_offered_where_there_is_a_memory_and_a_question_where_somebody_answers() -> None:
    assert {"memory_write", "ask_user"} & names(story()) == {"ask_user"}
    assert {"memory_write", "ask_user"} & names(story(memory=True)) == {"memory_write", "ask_user"}
    assert {"memory_write", "ask_user"} & names(story(unattended=True)) == set()


def test_who_has_a_choice_of_capabilities_from_the_start_is_offered_no_others() -> None:
    assert {"capability_search", "capability_load"} <= names(story())
    assert names(story(preload=("look",))).isdisjoint({"capability_search", "capability_load"})


def test_where_nothing_else_is_left_to_say_the_model_may_ask() -> None:
    alone = {"preload": ("look",), "unattended": True, "manifests": (LOOKING,)}
    told = story(VERIFY, FAILED, FAILED, LOOK, TEXT, LOOK, TEXT, **alone)

    assert names(told) == {"ask_user"}
