"""The response cache: what may be answered from it, under which key, and what a hit costs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stepfold.engine.models.protocol import Request
from stepfold.engine.runtime.harness import AgentHarness
from stepfold.engine.runtime.response_cache import MemoryCache, SqliteCache, cache_key, is_history_free
from stepfold.engine.runtime.run_policy import RunPolicy
from stepfold.events.configuration import Generation, Manifest, Retry
from stepfold.events.vocabulary import Message, ModelReplied
from tests.harness_house import Counted, Scripted, Streaming, calls, erred, play, text


@pytest.fixture(params=["memory", "sqlite"])
def cache(request: Any, tmp_path: Path) -> Any:
    return MemoryCache() if request.param == "memory" else SqliteCache(tmp_path / "cache.sqlite")


def test_tl_015_the_second_run_is_answered_from_the_cache(cache: Any) -> None:
    model = Scripted(text("first-answer"), text("second-answer"))
    first, second = (play(AgentHarness(model, cache=cache)) for _ in range(2))
    assert (first.run.text, second.run.text, model.asked) == ("first-answer", "first-answer", 1)
    assert "CacheMissed" in first.kinds
    assert second.kinds == ["RunStarted", "ModelStarted", "CacheHit", "ModelCompleted", "RunCompleted"]
    assert (second.run.model_calls, second.run.usage.total_tokens) == (1, 0)
    assert (first.run.from_cache, second.run.from_cache) == (False, True)


def test_tl_016_a_fallbacks_answer_is_not_kept() -> None:
    cache = MemoryCache()
    primary, backup = Scripted(erred(), name="primary"), Scripted(text("backup answer"), name="backup")
    policy = RunPolicy(retry=Retry(attempts=1))
    runs = [play(AgentHarness([primary, backup], policy=policy, cache=cache)) for _ in range(2)]
    assert [r.run.text for r in runs] == ["backup answer"] * 2
    assert (primary.asked, cache.writes) == (2, 0)


REQUEST = Request("m", (Message("user", "hi"),), Generation(), None)


def key(request: Request = REQUEST, **scope: Any) -> str:
    return cache_key(request, **{"identity": "a", "stream": False, "namespace": ""} | scope)


def test_tl_017_the_key_holds_all_that_shapes_the_answer_and_nothing_else() -> None:
    """A request of ours carries no metadata, tags or timeout; call and attempt are what else may differ."""
    same = [REQUEST, replace(REQUEST, call=7), replace(REQUEST, attempt=3), replace(REQUEST, characters=12)]
    assert len({key(request) for request in same}) == 1
    options = [
        Generation(temperature=0.9),
        Generation(seed=7),
        Generation(stop=("STOP",)),
        Generation(mode="text"),
    ]
    other = [
        REQUEST,
        *(replace(REQUEST, generation=options_) for options_ in options),
        replace(REQUEST, max_tokens=16),
        replace(REQUEST, messages=(*REQUEST.messages, Message("user", "more"))),
        replace(REQUEST, model="n"),
        replace(REQUEST, tool_choice="required"),
        replace(REQUEST, response_schema=msgspec.Raw(b'{"type":"object"}')),
        replace(REQUEST, tools=(Manifest(name="t", description="", schema=msgspec.Raw(b"{}")),)),
    ]
    assert len({key(request) for request in other}) == len(other)
    scoped = [key(), key(identity="b"), key(identity=""), key(stream=True), key(namespace="tenant-7")]
    assert len(set(scoped)) == len(scoped)
    assert all(len(found) == 64 and int(found, 16) >= 0 for found in scoped)
    assert key() == key()


def test_tl_017_a_unary_entry_is_not_served_to_a_streaming_run() -> None:
    import asyncio

    cache, model = MemoryCache(), Streaming(text("one"), text("two"))
    play(AgentHarness(model, cache=cache))

    async def streamed() -> str:
        items = [item async for item in AgentHarness(model, cache=cache).stream(messages=["hi"])]
        return items[-1].run.text  # type: ignore[union-attr,return-value]

    assert [asyncio.run(streamed()) for _ in range(2)] == ["two", "two"]
    assert model.asked == 2


def test_only_requests_without_history_are_answered_from_the_cache(cache: Any) -> None:
    model = Scripted(calls(("c1", "look")), text("done"))
    played = play(AgentHarness(model, [Counted("look").tool], cache=cache))
    assert len(played.of("CacheMissed")) == 1
    assert not is_history_free(replace(REQUEST, messages=(Message("assistant", "x"),)))


def test_a_cache_that_breaks_is_a_miss(tmp_path: Path) -> None:
    class Broken:
        def get(self, key: str) -> ModelReplied | None:
            raise OSError("no disk")

        def put(self, key: str, reply: ModelReplied) -> None:
            raise OSError("no disk")

    assert play(AgentHarness(Scripted(text("ok")), cache=Broken())).run.text == "ok"
    (tmp_path / "cache.sqlite").write_bytes(b"no database at all" * 100)
    broken = SqliteCache(tmp_path / "cache.sqlite")
    assert play(AgentHarness(Scripted(text("ok")), cache=broken)).run.text == "ok"


def test_the_text_of_a_streamed_reply_whose_deltas_are_recorded_is_kept_whole() -> None:
    import asyncio

    cache, model = MemoryCache(), Streaming(text("Hello, world"), pieces=["Hel", "lo, ", "world"])
    harness = AgentHarness(model, cache=cache, policy=RunPolicy(record_deltas=True))

    async def streamed() -> str:
        items = [item async for item in harness.stream(messages=["hi"])]
        return items[-1].run.text  # type: ignore[union-attr,return-value]

    assert [asyncio.run(streamed()) for _ in range(2)] == ["Hello, world"] * 2
    assert model.asked == 1


def test_the_memory_cache_drops_the_least_recently_used() -> None:
    cache = MemoryCache(size=2)
    for name in ("a", "b"):
        cache.put(name, text(name))
    assert cache.get("a") is not None
    cache.put("c", text("c"))
    assert [name for name in "abc" if cache.get(name)] == ["a", "c"]
