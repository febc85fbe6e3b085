"""Every recipe against plain Python over the rows of the views, which have their own test."""

from collections import Counter, defaultdict
from itertools import groupby, pairwise
from statistics import median

import pytest

from stepfold.projections.sql.recipes import BY_NAME, RECIPES
from stepfold.projections.sql.relations import open_relations


class Store:
    """The views as lists of rows, and what the recipes answer."""

    def __init__(self, relations):
        self.relations = relations

    def rows(self, sql):
        table = self.relations.query(sql)
        return [dict(zip(table.names, row, strict=True)) for row in table.rows]

    def __getattr__(self, view):
        return self.rows(f"SELECT * FROM {view}")

    def answers(self, name):
        return [tuple(row.values()) for row in self.rows(BY_NAME[name].query)]


@pytest.fixture
def store(stories, write, Story):
    again = (
        Story("good-2").goal().act("capability_search", '{"query": "fs"}').call("fs.read", {"path": "b.py"})
    )
    short = Story("good-3").goal().act("capability_search", '{"query": "fs"}')
    return Store(open_relations(write(*stories, again, short)))


def grouped(rows, *keys):
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def quantile(values, share):
    """Linear between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def about(rows):
    return [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in rows]


def test_outcomes(store):
    expected = {
        (model, status): (
            len(runs),
            median(r["steps"] for r in runs),
            median(r["rejected"] for r in runs),
            median(r["input_tokens"] + r["output_tokens"] for r in runs),
        )
        for (model, status), runs in grouped(store.runs, "model", "status").items()
    }
    assert {(row[0], row[1]): row[2:] for row in store.answers("outcomes")} == expected


def test_rejection_rate(store):
    steps = [step for step in store.steps if step["outcome"] in ("action", "rejected")]
    replies = Counter(step["model"] for step in steps)
    rejected = Counter((s["model"], s["error"]) for s in steps if s["outcome"] == "rejected")
    expected = {
        (model, error, count, replies[model], round(100 * count / replies[model], 1))
        for (model, error), count in rejected.items()
    }
    expected |= {
        (m, None, 0, n, 0.0) for m, n in replies.items() if m not in {model for model, _ in rejected}
    }
    assert set(store.answers("rejection_rate")) == expected
    assert ("m-2", None, 0, 1, 0.0) in expected


def test_capped(store):
    assert store.answers("capped") == [("capped", "m-1", "other ' goal", 4, 2, "Empty")]


def test_repeats(store):
    # A rejected reply lies between the two equal actions of "repeats".
    assert store.answers("repeats") == [
        ("capped", 4, "steps_spent", "verify", "{}", 2),
        ("repeats", 4, "verify_repeats", "verify", "{}", 2),
    ]


def test_tool_latency(store):
    ran = [call for call in store.tool_calls if call["seconds"] is not None]
    expected = []
    for (name,), calls in grouped(ran, "name").items():
        took = [call["seconds"] for call in calls]
        shares = tuple(quantile(took, share) for share in (0.5, 0.9, 0.99))
        expected.append((name, len(took), *shares, max(took)))
    expected.sort(key=lambda row: (-row[3], row[0]))
    assert store.answers("tool_latency") == about(expected)


def test_model_latency(store):
    done = [call for call in store.model_calls if call["outcome"] == "completed"]
    expected = []
    for (model,), calls in grouped(done, "model").items():
        took = [call["seconds"] for call in calls]
        speed = sum(call["output_tokens"] for call in calls) / sum(took)
        expected.append((model, len(took), quantile(took, 0.5), quantile(took, 0.9), max(took), speed))
    expected.sort(key=lambda row: (-row[3], row[0]))
    assert store.answers("model_latency") == about(expected)


def test_tokens(store):
    billed = [reply for reply in store.usage if reply["billed"]]
    expected = [
        (
            *key,
            len(replies),
            sum(r["input_tokens"] for r in replies),
            sum(r["output_tokens"] for r in replies),
            sum(told) if (told := [r["cached_tokens"] for r in replies if r["cached_tokens"]]) else None,
            sum(r["cost"] for r in replies),
            any(r["estimated"] for r in replies),
        )
        for key, replies in grouped(billed, "run_id", "model").items()
    ]
    expected.sort(key=lambda row: (-(row[3] + row[4]), row[0], row[1]))
    assert store.answers("tokens") == expected


def test_first_unmet(store):
    # "good" met "unit" at its second verify; "repeats" and the tools loop have no checks.
    assert store.answers("first_unmet") == [
        ("answered", "unit", 0, None, "unfinished"),
        ("asks", "unit", 0, None, "awaiting_user"),
        ("capped", "unit", 0, None, "step_cap"),
        ("cut", "unit", 0, None, "unfinished"),
        ("failed", "unit", 0, None, "failed"),
        ("good-2", "unit", 0, None, "unfinished"),
        ("good-3", "unit", 0, None, "unfinished"),
        ("waiting", "unit", 0, None, "unfinished"),
    ]


def test_diverge(store):
    found = {row[1]: row for row in store.answers("diverge")}
    assert found["good"][0] == found["good-2"][0] == "answered"
    moves = defaultdict(dict)
    for step in store.steps:
        move = f"{step['action']} {step['arguments']}" if step["action"] else step["reply"] or step["error"]
        moves[step["run_id"]][step["step"]] = "unfinished" if move is None else move
    for first, run, step, one, other in found.values():
        assert (moves[first].get(step), moves[run].get(step)) == (one, other)
        assert all(moves[first].get(n) == moves[run].get(n) for n in range(1, step))
        assert one != other
    # "asks" does as "answered" did, and stops where that one went on.
    assert found["asks"][2:] == (2, moves["answered"][2], None)


def test_model_errors(store):
    assert store.answers("model_errors") == [
        ("m-1", "server", 2, 2, "down"),
        ("m-1", "rate_limited", 1, 1, "rate_limited!"),
    ]


def test_tool_outcomes(store):
    expected = {
        (*key, len(calls), len({call["run_id"] for call in calls}))
        for key, calls in grouped(store.tool_calls, "name", "outcome", "error").items()
    }
    assert set(store.answers("tool_outcomes")) == expected
    assert len({row[1] for row in expected}) == 6


def test_flaky_checks(store):
    assert store.answers("flaky_checks") == [("good", "unit", 2, 1, 0)]


def test_context_growth(store):
    sized = [step for step in store.steps if step["context_tokens"] is not None]
    expected = []
    for (run,), steps in grouped(sized, "run_id").items():
        tokens = [step["context_tokens"] for step in sorted(steps, key=lambda s: s["step"])]
        slope = (tokens[-1] - tokens[0]) / (len(tokens) - 1) if len(tokens) > 1 else None
        expected.append((run, tokens[0], tokens[-1], max(tokens), slope))
    expected.sort(key=lambda row: (-row[3], row[0]))
    assert store.answers("context_growth") == about(expected)


def test_stalls(store):
    waits = []
    events = sorted(store.events, key=lambda e: (e["run_id"], e["seq"]))
    for run, of_run in groupby(events, key=lambda e: e["run_id"]):
        listed = list(of_run)
        for before, event in pairwise(listed):
            took = (event["ts"] - before["ts"]).total_seconds()
            if took > 0:
                waits.append((run, event["seq"], event["step"], event["kind"], took))
    waits.sort(key=lambda row: (-row[4], row[0], row[1]))
    assert store.answers("stalls") == about(waits[:10])


def test_unanswered(store):
    found = [row[:5] for row in store.answers("unanswered")]
    assert found == [
        ("answered", 3, "tool", "call_3", "fs.list"),
        ("cut", 1, "model", "model-1", "m-1"),
        ("waiting", 1, "check", "unit", "unit"),
    ]


def test_each_recipe_has_its_test_and_a_sentence():
    assert {f"test_{recipe.name}" for recipe in RECIPES} <= set(globals())
    for recipe in RECIPES:
        assert recipe.answers.endswith(".")
        assert recipe.example == f"stepfold sql @{recipe.name}"


def test_recipes_answer_an_empty_store(tmp_path):
    empty = Store(open_relations(tmp_path / "none"))
    assert all(empty.answers(recipe.name) == [] for recipe in RECIPES)
