"""`view`, `export` and `diagram --audit` as commands."""

import json
import os
import pty
import subprocess
from contextlib import suppress
from typing import Any

import pytest

from tests.engine.cli.projects import FINISH, LOAD_FILES, PROGRAM, REPAIR, VERIFY, Project


@pytest.fixture
def ran(project: Project) -> Project:
    project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)
    return project


def data_of(page: str) -> Any:
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def test_a_page_holds_the_run_and_how_often_its_guards_held(ran: Project) -> None:
    page = ran.folder / "page.html"

    result = ran.ask("view", "last", "-o", page)

    (run,) = data_of(page.read_text())["runs"]
    assert result.code == 0
    assert str(page.stat().st_size) in result.text.replace(",", "")
    assert (run["finish"], run["why"]) == ("completed", "every acceptance check passed")
    assert ["evidence_complete", 1, 1] in run["audit"]
    assert not list(ran.folder.glob(".page*"))


def test_a_trace_file_and_a_run_stand_side_by_side(ran: Project) -> None:
    page = ran.folder / "page.html"

    ran.ask("view", ran.trace, "last", "-o", page)

    data = data_of(page.read_text())
    assert (len(data["runs"]), data["difference"]) == (2, None)


def test_a_page_that_can_not_be_written_is_told(ran: Project) -> None:
    ran.ask("view", "last", "-o", ran.folder / "nowhere" / "page.html").is_refused("nowhere", "-o")


def test_an_export_says_what_it_wrote_and_spares_what_is_not_its_own(ran: Project) -> None:
    done = ran.ask("export", "--parquet", ran.folder / "out", "--json")

    assert done.json["rows"]["runs"] == 1
    assert list((ran.folder / "out" / "events").glob("date=*/loop=goal/*.parquet"))
    ran.ask("export", "--parquet", ran.folder).is_refused("no export wrote")


def test_the_guards_of_a_store_are_counted_on_the_diagram_and_in_sql(ran: Project) -> None:
    found = ran.ask("diagram", "--audit", "--json").json
    held = {(guard["row"], guard["guard"]): guard["held"] for guard in found["guards"]}

    assert (found["runs"], found["differing"]) == (1, 0)
    assert held["finish", "evidence_complete"] == 1
    assert "cycle_repeats" in found["never_true"]
    assert "fired 1 / evidence_complete 1 of 1" in ran.ask("diagram", "--audit").text
    query = "SELECT held FROM guard_audit WHERE row_name = 'finish' AND guard = 'evidence_complete'"
    assert ran.ask("sql", query, "--format", "json").json == [{"held": 1}]
    ran.stepfold("diagram", "--json").is_refused("--audit")


@pytest.mark.parametrize("command", [["log"], ["log", "--follow"], ["prompt", "--step", "2"]])
def test_a_terminal_is_shown_what_it_would_obey(project: Project, command: list[str]) -> None:
    project.configure('[model]\nmode = "text"\n')
    project.run("csi \x9b31m turned \u202e round", FINISH, options=["--max-steps", 2])
    ours, theirs = pty.openpty()

    with subprocess.Popen([PROGRAM, *command, project.trace], stdout=theirs, stdin=subprocess.DEVNULL):
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                shown += piece
    os.close(ours)

    assert b"\\x9b31m turned \\u202e round" in shown
    assert "\x9b".encode() not in shown
    assert "\u202e".encode() not in shown
