"""Golden logs of every schema version hold one run: reading an old one equals reading the new one."""

from pathlib import Path

import pytest

from stepfold.engine.runtime.replay import replay
from stepfold.events.codec import encode
from stepfold.events.integrity import check
from stepfold.events.journal import read_log
from stepfold.events.upcasters import UPCASTERS
from stepfold.events.vocabulary import VERSION
from stepfold.projections.outcome import outcome
from stepfold.projections.run import fold
from tests.house import edited

VERSIONS = Path(__file__).parents[1] / "replay_fixtures" / "versions"
LOGS = {path.stem: path for path in sorted(VERSIONS.glob("*.jsonl"))}
NEW = LOGS[str(VERSION)]


def test_there_is_a_golden_log_of_every_version() -> None:
    assert {str(version) for version in (*UPCASTERS, VERSION)} <= set(LOGS)


@pytest.mark.parametrize("name", LOGS)
def test_reading_an_old_log_equals_reading_the_new_one(name: str) -> None:
    old, new = read_log(LOGS[name]).records, read_log(NEW).records

    assert [encode(record.event) for record in old] == [encode(record.event) for record in new]
    assert (
        outcome(fold(record.event for record in old)).as_json()
        == outcome(fold(record.event for record in new)).as_json()
    )


@pytest.mark.parametrize("name", LOGS)
def test_an_old_log_is_verified_by_the_engine_of_today(name: str) -> None:
    assert replay(LOGS[name]).verdict == "identical"


def test_only_the_log_of_today_is_sealed() -> None:
    assert {name: check(path, None).verdict for name, path in LOGS.items()} == {
        "0": "unsealed",
        "1_before_seals": "unsealed",
        "1": "whole",
    }


def test_a_log_of_an_engine_that_decided_otherwise_is_told_from_damage(tmp_path: Path) -> None:
    older = tmp_path / "older.jsonl"
    content = NEW.read_bytes().replace(b'"engine":"', b'"engine":"0.0.', 1)
    older.write_bytes(edited(content.replace(b'"row":"pack"', b'"row":"wrap"', 1)))

    verdict = replay(older)

    assert (verdict.verdict, verdict.damaged) == ("diverged", None)
    assert verdict.engine is not None
    assert verdict.engine["recorded"].startswith("0.0.")
    assert verdict.engine["this"] != verdict.engine["recorded"]
