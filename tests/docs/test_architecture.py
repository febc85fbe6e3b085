"""ARCHITECTURE.md says what is there: diagrams drawn from the tables, the layers that are linted."""

import re
import tomllib
from pathlib import Path

import pytest

from stepfold.engine.core.decide import LOOPS
from stepfold.engine.core.diagram import mermaid
from tests.docs.pages import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
_DIAGRAM = "```mermaid\n%% stepfold diagram --loop {loop}\n"
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_FILE = re.compile(r"`((?:engine|events|projections|tests|replay_fixtures|docs)/[\w/.]*)`")


@pytest.mark.parametrize("loop", LOOPS)
def test_the_diagrams_are_drawn_from_the_tables_that_run(loop: str, request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    before, mark, rest = text.partition(_DIAGRAM.format(loop=loop))
    shown, end, after = rest.partition("```\n")
    drawn = mermaid(LOOPS[loop].table)
    assert mark and end
    if request.config.getoption("--update-diagrams", default=False):
        PAGE.write_text(f"{before}{mark}{drawn}{end}{after}")
        return

    assert shown == drawn, "run: python -m pytest tests/docs --update-diagrams"


def test_the_layer_table_is_the_one_that_is_linted() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers"]
    linted = [layer.replace("stepfold.", "").replace(".", "/").split(" : ") for layer in layers]

    section = PAGE.read_text().partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)

    assert [re.findall(r"`([\w/]+)/`", row) for row in rows] == linted


def test_every_way_to_change_something_ends_with_a_test_that_is_there() -> None:
    section = PAGE.read_text().partition("## To change X, open Y")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ")][2:]

    assert len(rows) > 10
    for row in rows:
        assert _TEST.search(row.rsplit("|", 2)[1]), row


def test_every_pitfall_has_its_test() -> None:
    section = PAGE.read_text().partition("## Pitfalls")[2].partition("\n## ")[0]
    _, *falls = section.split("\n- ")

    assert len(falls) > 8
    for fall in falls:
        assert _TEST.search(fall), fall


def test_what_is_named_is_there() -> None:
    text = PAGE.read_text()
    for name in _FILE.findall(text):
        assert (ROOT / name).exists(), name
    for name, test in _TEST.findall(text):
        path = Path(ROOT / name)
        assert path.exists(), name
        assert not test or f"def {test}(" in path.read_text(), f"{name}::{test}"
