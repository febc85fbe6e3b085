"""Parquet for other engines: a second reader finds the same rows, by date and loop."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from stepfold.projections.sql.export import MARK, export_parquet
from stepfold.projections.sql.relations import QueryError, open_relations
from stepfold.projections.sql.views import VIEWS
from tests.house import FINISH, LOAD, VERIFY
from tests.projections.sql.test_packs import write_run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    write_run(store, "a", LOAD, VERIFY, FINISH)
    write_run(store, "b", "prose", "prose", max_steps=2)
    return store


def test_a_second_reader_finds_the_rows_of_every_view(store: Path, tmp_path: Path) -> None:
    done = export_parquet(store, tmp_path / "out")

    relations = open_relations(store)
    for view in VIEWS:
        (count,) = next(relations.query(f"SELECT count(*) FROM {view.name}").rows)
        assert done.rows[view.name] == count
        if not count:
            continue
        table = ds.dataset(tmp_path / "out" / view.name, partitioning="hive").to_table()
        assert table.num_rows == count
        assert set(table.column_names) == {*view.columns, "date", "loop"}


def test_the_same_question_has_the_same_answer_in_another_engine(store: Path, tmp_path: Path) -> None:
    export_parquet(store, tmp_path / "out")

    events = ds.dataset(tmp_path / "out" / "events", partitioning="hive").to_table(
        filter=ds.field("loop") == "goal"
    )
    counted = events.group_by("kind").aggregate([("seq", "count")]).to_pydict()

    query = "SELECT kind, count(*) FROM events GROUP BY kind"
    assert dict(zip(counted["kind"], counted["seq_count"], strict=True)) == dict(
        open_relations(store).query(query).rows
    )


def test_an_export_is_replaced_whole_and_nothing_else_is(store: Path, tmp_path: Path) -> None:
    export_parquet(store, tmp_path / "out")
    write_run(store, "c", FINISH, max_steps=1)

    assert export_parquet(store, tmp_path / "out").rows["runs"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
    (tmp_path / "out" / MARK).unlink()
    with pytest.raises(QueryError, match="no export wrote"):
        export_parquet(store, tmp_path / "out")
