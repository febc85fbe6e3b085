"""What a constrained model is offered: nothing that the loop would refuse, or tell in the same words."""

from typing import Any

from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.core.offer import offered
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import BLANK, CheckReturned, ToolReturned, UserAnswered
from tests.house import CHAT, FINISH, LOAD, SEARCH, VERIFY, WORKERS, Story, call, config, load

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
