import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepfold.engine.capabilities import searches


def test_search_gives_path_line_and_text(hands: Any) -> None:
    assert hands("fs.search", pattern=r"return \d+").content == "src/main.py:2:     return 41"
    assert hands("fs.search", pattern="t", path="notes.txt").content == "notes.txt:2: two\nnotes.txt:3: three"
    assert hands("fs.search", pattern="nothing").content == "no match in 2 files"


def test_a_bad_pattern_and_a_missing_folder_are_errors_to_react_to(hands: Any) -> None:
    assert hands("fs.search", pattern="(").error == "BadPattern"
    assert hands("fs.search", pattern="a", path="nowhere").error == "NotFound"


def test_search_passes_over_links_binaries_and_git(hands: Any, project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("needle")
    (project / "link").symlink_to(tmp_path / "outside")
    (project / "folder").symlink_to(tmp_path)
    (project / "binary").write_bytes(b"\0needle")
    (project / ".git").mkdir()
    (project / ".git" / "x").write_text("needle")
    assert hands("fs.search", pattern="needle").content.startswith("no match")


def test_search_leaves_out_what_git_ignores(boxed: Any, repository: Path) -> None:
    (repository / ".gitignore").write_text("ignored\n")
    (repository / "ignored").write_text("needle\n")
    (repository / "fresh").write_text("needle\n")
    assert boxed("fs.search", pattern="needle").content == "fresh:1: needle"


def test_matches_are_capped_and_said_so(hands: Any, project: Path) -> None:
    (project / "many").write_text("x\n" * 500)
    lines = hands("fs.search", pattern="x").content.split("\n")
    assert len(lines) == 201
    assert "200 matches" in lines[-1]


def test_a_pattern_without_end_is_ended(hands: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "SECONDS", 0.5)
    (project / "trap").write_text("a" * 60 + "!")
    assert hands("fs.search", pattern="(a+)+$").error == "TimedOut"


def test_the_loop_goes_on_while_a_search_runs(
    hands: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "SECONDS", 0.5)
    (project / "trap").write_text("a" * 60 + "!")

    async def both() -> int:
        running = asyncio.ensure_future(searches.search_files({"pattern": "(a+)+$"}, hands.context))
        turns = 0
        while not running.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns

    assert asyncio.run(both()) > 5


def test_the_store_of_runs_is_not_searched_whoever_lists_the_files(boxed: Any, repository: Path) -> None:
    (repository / ".stepfold" / "runs").mkdir(parents=True)
    (repository / ".stepfold" / "runs" / "a.jsonl").write_text("answer")
    assert boxed("fs.search", pattern="answer").content == "src/main.py:1: def answer():"
