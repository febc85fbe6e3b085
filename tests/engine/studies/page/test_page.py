"""The page in a real browser: what a person reads, clicks and types; hostile text is shown and never run."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.models.scripted import Script
from stepfold.engine.runtime.agent_loop import AgentLoop
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.requests import recorded_request
from stepfold.engine.runtime.tools import tool
from stepfold.engine.studies.difference import difference
from stepfold.engine.studies.page.document import document
from stepfold.engine.studies.page.told import tell
from stepfold.events import vocabulary as v
from stepfold.events.journal import read_log
from stepfold.events.store import Store
from stepfold.projections.ending import why
from stepfold.projections.outcome import outcome
from tests.engine.studies.page.browser import Opened, started
from tests.harness_house import Scripted, calls, text
from tests.harness_house import play as harness_play
from tests.house import FINISH, LOAD, VERIFY, Hands, action, call, config, play
from tests.test_fixtures import FIXTURES

HOSTILE = (
    '</script><script>document.title="owned"</script><img src=x onerror="alert(1)"><!--'
    "\x1b[31mred\x1b[0m \u202egnol\u202c one\u2028two \u2066x\u2069 &amp; {{program}} \x00 \ud83d end"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started()


def told_of(events: Any, name: str = "run.jsonl") -> dict[str, Any]:
    reading = tell(events)
    result = outcome(reading.run)
    return reading.data(result, why(result), name)


def page_of(folder: Path, *runs: Any) -> Path:
    parts = difference(*runs).step if len(runs) == 2 else None
    file = folder / "page.html"
    file.write_text(document([told_of(events) for events in runs], parts), encoding="utf-8")
    return file


def events_of(fixture: str) -> list[Any]:
    return [record.event for record in read_log(FIXTURES / fixture / "log.jsonl").records]


def played(*replies: str, **changes: Any) -> list[Any]:
    # The browser's driver has an event loop in this thread, and a run wants one of its own.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(play, config(**changes), Hands(replies)).result()[1]


def test_a_person_reads_first_why_it_ended_and_then_walks_the_steps(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, page_of(tmp_path, events_of("fixes_a_failing_test")))

    assert opened.text("h1") == "completed\nevery acceptance check passed".replace("\n", "")
    opened.press("j", "j", "j")
    assert opened.text("#detail h2") == "Step 3"
    assert "fs.write" in opened.text("#detail")
    opened.press("ArrowDown", "End")
    assert opened.text("#detail h2") == "Step 8"
    opened.page.click("text=What the model saw")
    assert "its digest is the one that was recorded" in opened.text("#detail")
    opened.press("Home")
    assert opened.text("#detail h2") == "Before the first step"
    assert opened.complaints == []
    assert len(opened.requests) == 1


def test_search_filters_the_steps_and_escape_brings_them_back(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, page_of(tmp_path, events_of("fixes_a_failing_test")))

    opened.press("/")
    opened.page.keyboard.type("replaced calc.py")
    opened.page.wait_for_selector("#found:has-text('2 of 9 steps')")
    assert len(opened.page.query_selector_all(".row")) == 2
    opened.press("Enter", "j")
    assert "replaced calc.py" in opened.text("#detail mark")
    opened.press("Escape")
    assert len(opened.page.query_selector_all(".row")) == 9


def test_hostile_text_is_shown_and_never_run(browser: Any, tmp_path: Path) -> None:
    events = played(HOSTILE, LOAD, call("fs.read", path=HOSTILE), FINISH, goal=HOSTILE, max_steps=4)
    opened = Opened(browser, page_of(tmp_path, events))

    assert opened.page.title().startswith("stepfold: ")
    assert opened.page.query_selector("img") is None
    assert len(opened.page.query_selector_all("script")) == 2
    opened.press("j")
    for part in ("#runs", "#detail"):
        shown = opened.text(part)
        assert "</script><script>" in shown
        for mark in ("\\x1b", "\\u202e", "\\u2028", "\\u2066", "\\x00", "\\ud83d"):
            assert mark in shown, (part, mark)
        assert not {"\x1b", "\u202e", "\u2028", "\u2066", "\x00"} & set(shown)
    opened.press("c")
    assert "</script><script>" in opened.text("#detail")
    assert opened.complaints == []


def test_the_policy_of_the_page_lets_no_other_script_run_and_nothing_be_loaded(
    browser: Any, tmp_path: Path
) -> None:
    opened = Opened(browser, page_of(tmp_path, events_of("hits_the_cap")))

    opened.page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'document.title = "owned"';
        document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x';
        document.body.append(i); }"""
    )

    opened.page.wait_for_timeout(100)
    assert opened.page.title() != "owned"
    assert sum("Content Security Policy" in said for said in opened.complaints) == 2
    assert opened.failures == ["csp"]


def test_a_rejection_stands_beside_its_repair(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, page_of(tmp_path, played("prose", LOAD, VERIFY, FINISH, max_steps=4)))

    opened.press("n")
    assert opened.text("#detail h2") == "Step 1"
    assert "NotJson" in opened.text("#detail .item.rejected")
    opened.page.click("#rejections summary")
    assert "JSON" in opened.text("#rejections details")
    assert "then: capability_load" in opened.text("#rejections")


def test_the_path_counts_what_the_log_counts(browser: Any, tmp_path: Path) -> None:
    events = events_of("hits_the_cap")
    opened = Opened(browser, page_of(tmp_path, events))
    asked = sum(isinstance(event, v.ModelStarted) for event in events)

    assert opened.page.query_selector(".node.last").text_content() == "exhausted"
    assert f"framing to asking: {asked}" in opened.page.inner_html("#path svg")
    opened.page.click("#path .node:has-text('asking')")
    assert opened.text("#path h3") == "Rows of asking"


def test_two_runs_stand_side_by_side_from_where_they_part(browser: Any, tmp_path: Path) -> None:
    file = page_of(tmp_path, events_of("hyphens_plain"), events_of("hyphens_constrained"))
    opened = Opened(browser, file)

    assert len(opened.page.query_selector_all("#runs article")) == 2
    opened.page.click("text=They part at step 1")
    assert len(opened.page.query_selector_all("#detail .side")) == 2
    opened.press("End")
    assert "This run has no such step." in opened.text("#detail")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (700, "light"), (1600, "dark")])
def test_it_fits_every_screen_in_light_and_dark(
    browser: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    file = page_of(tmp_path, events_of("hyphens_plain"), events_of("hyphens_constrained"))
    opened = Opened(browser, file, viewport={"width": width, "height": 800}, color_scheme=scheme)

    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    shade = opened.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (shade == "rgb(255, 255, 255)") is (scheme == "light")


def test_print_shows_every_step(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, page_of(tmp_path, played(*["prose"] * 80, max_steps=80)))
    assert len(opened.page.query_selector_all(".row")) < 60

    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")

    assert len(opened.page.query_selector_all(".row")) == 81
    assert not opened.page.is_visible("#search")


def test_of_5000_steps_only_those_in_sight_are_in_the_document(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, page_of(tmp_path, played(*["prose"] * 5000, max_steps=5000)))

    for key in ("j", "End", "k"):
        opened.press(key)
        assert len(opened.page.query_selector_all(".row")) < 60
    assert opened.text("#detail h2") == "Step 4999"
    opened.press("c")
    assert len(opened.page.query_selector_all(".message")) < 60


@pytest.mark.parametrize(
    "fixture", sorted(path.name for path in FIXTURES.iterdir() if (path / "log.jsonl").exists())
)
def test_what_the_model_saw_is_what_prompt_shows(fixture: str) -> None:
    events = events_of(fixture)

    data = told_of(events)

    for step in data["steps_told"]:
        rebuilt = recorded_request(events, step["step"])
        if "seen" not in step:
            assert rebuilt is None
            continue
        seen = step["seen"]
        strand = data["strands"][seen["strand"]]
        numbers = [*seen["first"], *strand[: seen["count"]], *seen["closing"]]
        texts = [data["texts"][data["messages"][number][1]] for number in numbers]
        assert rebuilt is not None
        assert "".join(texts) == "".join(message.content for message in rebuilt.request.messages)
        assert step["seen"]["agrees"] is rebuilt.agrees is True


def test_a_tool_calling_run_is_shown_as_well(browser: Any, tmp_path: Path) -> None:
    def look(path: str) -> str:
        """Look."""
        return f"seen {path}{HOSTILE[:20]}"

    script = Scripted(calls(("c1", "look", {"path": "a"})), text("all seen"))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(harness_play, AgentHarness(script, [tool(look)])).result()
    opened = Opened(browser, page_of(tmp_path, run.events))

    assert opened.text("h1").startswith("completed")
    opened.press("j")
    assert "seen a</script>" in opened.text("#detail")
    opened.press("c", "j")
    assert "its digest is the one that was recorded" in opened.text("#detail")
    assert opened.page.query_selector(".node.last").text_content() == "completed"
    assert opened.complaints == []


def chatted(folder: Path) -> None:
    said = [{"text": action("finish", summary=summary)} for summary in ("it is done", "nothing")]
    script = Script.parse("\n".join(map(json.dumps, said)).encode())
    with (
        Store(folder / "store") as store,
        AgentLoop(model=script, project=folder, store=store, checks=(), sandbox="none").chat() as chat,
    ):
        chat.say("do it")
        chat.say("and now?")


def test_a_chat_shows_what_was_said_and_whose_turn_it_is(browser: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(chatted, tmp_path).result()
    (trace,) = (tmp_path / "store" / "runs").iterdir()
    opened = Opened(browser, page_of(tmp_path, [record.event for record in read_log(trace).records]))

    assert "it is your turn; `stepfold chat --resume " in opened.text("h1")
    opened.press("j")
    assert "and now?" in opened.text("#detail")
    opened.press("j", "c")
    assert "it is done" in opened.text("#detail")
    assert opened.complaints == []


def test_the_data_can_not_end_its_element_and_is_ascii() -> None:
    page = document([told_of(played(HOSTILE, FINISH, goal=HOSTILE, max_steps=2))])

    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert data.isascii()
    assert not set("<>&") & set(data)
    assert json.loads(data)["runs"][0]["goal"] == HOSTILE
    assert page.count("</script>") == 2
