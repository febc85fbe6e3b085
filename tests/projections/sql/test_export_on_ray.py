"""Ray's reader over an export: the same rows and the same answer as ours, also by date and loop.

Ray is no part of the development tools: `make test-ray` installs it and runs this.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepfold.projections.sql.export import export_parquet
from stepfold.projections.sql.relations import open_relations
from stepfold.projections.sql.views import VIEWS
from tests.house import FINISH, LOAD, VERIFY
from tests.projections.sql.test_packs import write_run

ray = pytest.importorskip("ray", reason="Ray is not installed: `make test-ray`")
data = pytest.importorskip("ray.data", reason="Ray's readers are not installed: `make test-ray`")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("exported") / "store"
    write_run(store, "a", LOAD, VERIFY, FINISH)
    write_run(store, "b", "prose", "prose", max_steps=2)
    return store


def read(folder: Path) -> Any:
    from ray.data.datasource.partitioning import Partitioning

    return data.read_parquet(str(folder), partitioning=Partitioning("hive"))


def test_it_finds_the_rows_and_columns_of_every_view(started: None, store: Path, tmp_path: Path) -> None:
    done = export_parquet(store, tmp_path / "out")

    written = {view.name: view for view in VIEWS if done.rows[view.name]}
    assert {"events", "runs", "rejections"} <= set(written)
    for name, view in written.items():
        found = read(tmp_path / "out" / name)
        assert found.count() == done.rows[name]
        assert set(found.columns()) == {*view.columns, "date", "loop"}


def test_the_same_question_has_the_same_answer(started: None, store: Path, tmp_path: Path) -> None:
    export_parquet(store, tmp_path / "out")

    events = read(tmp_path / "out" / "events").filter(lambda row: row["loop"] == "goal")
    counted = {row["kind"]: row["count()"] for row in events.groupby("kind").count().take_all()}

    query = "SELECT kind, count(*) FROM events GROUP BY kind"
    assert counted == dict(open_relations(store).query(query).rows)
