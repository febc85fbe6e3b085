"""`stepfold fuzz` with something to find: it is told, shrunk and saved once, and fails until it is mended."""

import json
from pathlib import Path

import pytest

from stepfold.engine.cli.main import main
from stepfold.engine.testing.fixtures import judge
from tests.engine.testing.test_seeded_faults import FAULTS, planted


def fuzz(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["fuzz", *arguments])
    said = capfd.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_fault_is_saved_once_and_told_until_it_is_mended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "finds")
    words = ("--loop", "goal", "--examples", "100", "--seed", "0", "--out", out)
    with planted(FAULTS["finish needs no evidence"]):
        code, told, _ = fuzz(capfd, *words, "--json")
        again, shown, _ = fuzz(capfd, *words)
        (saved,) = (tmp_path / "finds").iterdir()
        unmended = judge(saved)

    assert (code, again) == (1, 1)
    assert [Path(find["fixture"]).name for find in json.loads(told)["found"]] == [saved.name]
    assert saved.name in shown
    assert len(json.loads(saved.read_text())["case"]["moves"]) <= 3
    assert unmended is not None
    assert judge(saved) is None


def test_nothing_found_is_exit_code_0_and_leaves_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "finds"

    code, told, _ = fuzz(capfd, "--examples", "20", "--seed", "3", "--out", str(out), "--json")

    assert (code, json.loads(told)["found"], out.exists()) == (0, [], False)


def test_tools_that_can_not_be_read_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text("[{")

    code, _, told = fuzz(capfd, "--tools", str(tools))

    assert code == 2
    assert told.startswith(f"stepfold: {tools}")
    assert told.count("\n") == 1
