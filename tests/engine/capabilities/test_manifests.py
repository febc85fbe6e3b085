import json
from typing import Any

import pytest

from stepfold.engine.capabilities.manifests import NATIVE, NATIVE_BY_NAME
from stepfold.engine.contract.schemas import compile_schema
from stepfold.events.configuration import Manifest

NAMES = [
    *("fs.list", "fs.read", "fs.search", "fs.write", "fs.patch"),
    *("shell.run", "git.status", "git.diff", "web.fetch", "memory.recall"),
]


def schema(manifest: Manifest) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(bytes(manifest.schema))
    return decoded


def test_there_are_ten_natives_in_the_order_of_the_contract() -> None:
    assert [manifest.name for manifest in NATIVE] == NAMES


@pytest.mark.parametrize("manifest", NATIVE, ids=lambda manifest: manifest.name)
def test_a_manifest_is_one_line_closed_and_its_aliases_lead_somewhere(manifest: Manifest) -> None:
    properties = schema(manifest)["properties"]
    assert manifest.description
    assert "\n" not in manifest.description
    assert schema(manifest)["additionalProperties"] is False
    assert {key for _, key in manifest.aliases} <= set(properties)
    assert not {alias for alias, _ in manifest.aliases} & set(properties)
    assert compile_schema(bytes(manifest.schema)).validate({"surprise": 1})


def test_only_what_may_change_files_makes_evidence_stale() -> None:
    assert {name for name in NAMES if NATIVE_BY_NAME[name].mutates} == {"fs.write", "fs.patch", "shell.run"}


def test_only_the_web_needs_the_network() -> None:
    assert {name for name in NAMES if NATIVE_BY_NAME[name].network} == {"web.fetch"}


def test_what_may_not_run_twice_after_a_crash_is_marked_once() -> None:
    assert {name for name in NAMES if NATIVE_BY_NAME[name].idempotency == "once"} == {"fs.patch", "shell.run"}
