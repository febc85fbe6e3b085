"""Stores as they are found: hostile text, torn lines, unreadable files; and queries kept in their place."""

import json
import re
from io import BytesIO

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.events.vocabulary import KINDS
from stepfold.projections.sql.columns import column_name, columns
from stepfold.projections.sql.recipes import RECIPES
from stepfold.projections.sql.relations import DOCUMENTED, QueryError, open_relations, open_unguarded
from stepfold.projections.sql.repair import repaired, without_lone_surrogates


def answer(relations, sql, *parameters):
    return list(relations.query(sql, parameters).rows)


# --- what the views promise -------------------------------------------------------------------------


def test_every_view_and_column_is_documented_where_duckdb_shows_it(tmp_path):
    relations = open_relations(tmp_path)
    views = dict(answer(relations, "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"))
    for view in DOCUMENTED:
        assert views[view.name] == view.comment
        shown = answer(
            relations,
            "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index",
            view.name,
        )
        assert shown == list(view.columns.items())


def test_no_name_needs_quotes(tmp_path):
    relations = open_relations(tmp_path)
    reserved = {
        name
        for (name,) in answer(
            relations,
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'",
        )
    }
    names = {view.name for view in DOCUMENTED} | {c for view in DOCUMENTED for c in view.columns}
    names |= {column_name(field) for field in columns()} | {recipe.name for recipe in RECIPES}
    for recipe in RECIPES:
        names |= set(relations.query(recipe.query).names)
    assert not names & reserved
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in names)


def test_every_field_of_every_event_has_a_column(tmp_path):
    fields = {f.encode_name for kind in KINDS.values() for f in msgspec.structs.fields(kind)}
    assert set(columns()) == fields | {"kind"}
    table = open_relations(tmp_path).query("SELECT * FROM recorded.log")
    assert set(table.names) == {"file", "line"} | {column_name(field) for field in columns()}


def test_a_kind_of_a_newer_engine_is_carried_along(tmp_path):
    line = {"v": 1, "run_id": "r", "seq": 0, "step": 0, "ts": "2026-01-01T00:00:00.000000Z", "kind": "New"}
    write_run(
        tmp_path, "r", json.dumps({**line, "brand": {"new": [1]}, "status": {"odd": 1}}).encode() + b"\n"
    )
    ((data,),) = answer(open_relations(tmp_path), "SELECT data FROM events")
    assert json.loads(data) == {"brand": {"new": [1]}, "status": {"odd": 1}}


# --- what is found in a store -----------------------------------------------------------------------


def write_run(store, run_id, content):
    (store / "runs").mkdir(exist_ok=True)
    path = store / "runs" / f"{run_id}.jsonl"
    path.write_bytes(content)
    return path


def event(seq, text=""):
    fields = {"v": 1, "run_id": "r", "seq": seq, "step": 0, "ts": "2026-01-01T00:00:00.000001Z"}
    return {**fields, "kind": "ModelReplied", "key": "model:m:0", "text": text}


def test_an_empty_store_has_empty_views(tmp_path):
    relations = open_relations(tmp_path / "none")
    assert all(answer(relations, f"SELECT * FROM {view.name}") == [] for view in DOCUMENTED)
    assert (relations.torn, relations.unreadable) == (0, ())


def test_a_torn_last_line_is_counted_and_named(tmp_path):
    whole = json.dumps(event(0)).encode() + b"\n"
    path = write_run(tmp_path, "r", whole + json.dumps(event(1)).encode()[:-9])
    write_run(tmp_path, "s", whole)
    relations = open_relations(tmp_path)
    assert relations.torn == 1
    assert answer(relations, "SELECT count(*) FROM events") == [(2,)]
    ((file, line, why),) = answer(relations, "SELECT * FROM torn_lines")
    assert (file, line) == (str(path), 2)
    assert "cut off" in why


@pytest.mark.parametrize(
    "junk", [b"[1]", b"{}", b"null", b'{"kind":3}', b"\xff\xfe", b"\x00" * 9, b"[" * 99_999]
)
def test_a_line_that_is_no_event_is_named_and_the_others_stay(tmp_path, junk):
    lines = [json.dumps(event(0)).encode(), junk, json.dumps(event(1)).encode()]
    write_run(tmp_path, "r", b"\n".join(lines) + b"\n")
    relations = open_relations(tmp_path)
    assert answer(relations, "SELECT seq FROM events ORDER BY seq") == [(0,), (1,)]
    assert answer(relations, "SELECT line FROM torn_lines") == [(2,)]


def test_a_file_that_can_not_be_read_is_named(tmp_path):
    write_run(tmp_path, "r", json.dumps(event(0)).encode() + b"\n")
    (tmp_path / "runs" / "folder.jsonl").mkdir()
    relations = open_relations(tmp_path)
    assert len(relations.unreadable) == 1
    assert "folder.jsonl: Is a directory" in relations.unreadable[0]
    assert answer(relations, "SELECT count(*) FROM events") == [(1,)]


def test_a_line_longer_than_duckdb_takes_at_once(tmp_path):
    long = json.dumps(event(0, "x" * 17_000_000)).encode() + b"\n"
    write_run(tmp_path, "r", long)
    write_run(tmp_path, "s", json.dumps(event(1)).encode() + b"\n")
    relations = open_relations(tmp_path)
    sizes = "SELECT seq, length(content) FROM messages ORDER BY seq"
    assert answer(relations, sizes) == [(0, 17_000_000), (1, 0)]


def test_a_name_with_quotes_and_stars_is_a_name(tmp_path):
    content = json.dumps(event(0)).encode() + b"\n"
    write_run(tmp_path, "it's [a]*{b}", content)
    assert answer(open_relations(tmp_path), "SELECT count(*) FROM events") == [(1,)]


texts = st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=20)


def test_hostile_text_survives(tmp_path):
    @settings(max_examples=8, deadline=None)
    @given(texts)
    def survives(given_texts):
        lines = [json.dumps(event(n, text)).encode() for n, text in enumerate(given_texts)]
        write_run(tmp_path, "r", b"\n".join(lines) + b"\n")
        relations = open_unguarded(tmp_path)
        found = [text for (text,) in answer(relations, "SELECT content FROM messages ORDER BY seq")]
        relations.close()
        assert found == [re.sub("[\ud800-\udfff]", "\ufffd", joined(text)) for text in given_texts]

    survives()


def joined(text):
    """The text as JSON gives it back: two halves side by side are one character."""
    return json.loads(json.dumps(text))


@given(texts)
def test_repair_keeps_every_character_but_halves(given_texts):
    for text in given_texts:
        mended = json.loads(without_lone_surrogates(json.dumps(text)))
        assert mended == re.sub("[\ud800-\udfff]", "\ufffd", joined(text))


@given(st.lists(st.binary(max_size=30) | st.just(json.dumps(event(0)).encode())))
def test_repair_takes_any_bytes(lines):
    content, broken = repaired(BytesIO(b"\n".join(lines)), "f")
    kept = content.split(b"\n")[:-1]
    assert all(isinstance(json.loads(line)["seq"], int) for line in kept)
    held = [line for line in b"\n".join(lines).split(b"\n") if line.strip()]
    assert len(kept) + len(broken) == len(held)


# --- what a query may do ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY runs TO '{folder}/out.parquet' (FORMAT parquet)",
        "ATTACH '{folder}/out.db'",
        "EXPORT DATABASE '{folder}/out'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET enable_external_access",
        "SET lock_configuration = false",
        "SET allowed_directories = ['/']",
        "SELECT * FROM local_variable",
    ],
)
def test_a_query_reaches_no_file_and_changes_no_setting(tmp_path, query):
    local_variable = {"a": [1]}
    relations = open_relations(tmp_path)
    with pytest.raises(QueryError) as caught:
        answer(relations, query.format(folder=tmp_path))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert local_variable


def test_one_named_file_may_be_written(tmp_path):
    out = tmp_path / "it's.parquet"
    relations = open_relations(tmp_path, output=out)
    relations.write_parquet("SELECT 42 AS n", out)
    with pytest.raises(QueryError):
        answer(relations, f"COPY (SELECT 1) TO '{tmp_path}/other.csv'")
    assert answer(open_unguarded(tmp_path), "SELECT n FROM read_parquet(?)", str(out)) == [(42,)]


def test_open_files_are_open(tmp_path):
    answer(open_unguarded(tmp_path), f"COPY (SELECT 1 AS n) TO '{tmp_path}/out.csv'")
    assert (tmp_path / "out.csv").read_text() == "n\n1\n"


@pytest.mark.parametrize("query", [";", ";;", "/* nothing */"])
def test_a_text_without_a_query_is_refused(tmp_path, query):
    with pytest.raises(QueryError, match="no query"):
        open_relations(tmp_path).query(query)
