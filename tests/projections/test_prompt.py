"""The request comes from the run alone: extended and never rebuilt, digested, compacted from the old end."""

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stepfold.events.codec import encode
from stepfold.events.configuration import Generation
from stepfold.events.vocabulary import BLANK, Message, ModelStarted, ToolCall, ToolReturned
from stepfold.projections.fold_goal import COMPACTED_LINE_CHARACTERS
from stepfold.projections.history import ConversationHistory
from stepfold.projections.prompt import (
    NEXT_ACTION,
    GoalPrompt,
    chat_rendering,
    flat_rendering,
    render_history_as_prompt,
    request_digest,
    tools_rendering,
)
from stepfold.projections.run import evolve
from stepfold.projections.state import Run
from tests.engine.core.stories import BIG, STORIES
from tests.house import FINISH, LOAD, VERIFY, Hands, call, config, of_kind, play, prefixes

ODD = st.text(st.sampled_from("ab\x1e\x1f\x00\n:0123456789[], \ud800"), max_size=6)
CALLS = st.lists(st.builds(ToolCall, ODD, ODD, ODD), max_size=2).map(tuple)
TURNS = st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), ODD, CALLS, ODD)
CHANGES = st.lists(st.one_of(TURNS, TURNS, TURNS, st.integers(0, 4), st.just("pop")), max_size=25)


def changed(history: ConversationHistory, change: Any) -> None:
    match change:
        case Message():
            history.append(change)
        case "pop":
            if len(history.turns) > 1:
                history.pop()
        case count:
            history.drop(count)


def seeded() -> ConversationHistory:
    history = ConversationHistory()
    history.append(Message("user", "the goal"))
    return history


@given(CHANGES)
def test_extending_a_rendering_equals_rendering_anew(changes: list[Any]) -> None:
    history = seeded()
    kept = (flat_rendering(), chat_rendering(), tools_rendering())
    for change in changes:
        changed(history, change)
        fresh = (flat_rendering(), chat_rendering(), tools_rendering())

        for old, new in zip(kept, fresh, strict=True):
            assert old.items(history) == new.items(history)
        flat = "system" + "".join(kept[0].items(history)) + NEXT_ACTION
        assert flat == render_history_as_prompt("system", history)


@given(CHANGES)
def test_a_history_counts_and_chains_what_it_holds_and_nothing_else(changes: list[Any]) -> None:
    history = seeded()
    for change in changes:
        changed(history, change)

    anew = ConversationHistory()
    for turn in history.turns:
        anew.append(turn)

    assert (history.chains, history.characters) == (anew.chains, anew.characters)
    assert history.turns[0] == Message("user", "the goal")


@settings(max_examples=300)
@given(st.lists(TURNS, max_size=3), st.lists(TURNS, max_size=3))
def test_two_conversations_have_one_chain_only_if_they_are_the_same(
    one: list[Message], two: list[Message]
) -> None:
    first, second = seeded(), seeded()
    for turn in one:
        first.append(turn)
    for turn in two:
        second.append(turn)

    assert (first.chain == second.chain) == (one == two)


def test_a_model_can_not_write_the_marks_that_part_a_turn() -> None:
    inside, outside = seeded(), seeded()
    inside.append(Message("assistant", "x\x1fi\x1fn\x1fa"))
    outside.append(Message("assistant", "x", (ToolCall("i", "n", "a"),)))

    assert inside.chain != outside.chain


def requested(run: Run) -> tuple[Any, ...]:
    return (run.goal.system, tuple(run.history.turns), run.config.generation)


def test_the_digest_changes_if_and_only_if_the_request_does() -> None:
    seen: dict[str, Any] = {}
    for make in STORIES.values():
        for run in prefixes(make()):
            digest = request_digest(run, None)
            assert seen.setdefault(digest, requested(run)) == requested(run)
    assert len(set(seen.values())) == len(seen)


def test_the_digest_depends_on_every_option() -> None:
    options = [
        Generation(),
        Generation(seed=1),
        Generation(temperature=0.0),
        Generation(mode="tools"),
        Generation(stop=("x",)),
    ]
    runs = [play(config(generation=option), Hands([FINISH]))[0] for option in options]

    digests = {request_digest(run, most) for run in runs for most in (None, 10, 11)}

    assert len(digests) == 3 * len(options)


def test_the_recorded_digest_is_that_of_the_request_that_was_sent() -> None:
    for make in STORIES.values():
        run = Run()
        for event in make():
            if isinstance(event, ModelStarted):
                assert event.digest == request_digest(run, event.max_tokens)
            evolve(run, event)


def requests(settings_: Any, hands: Hands) -> list[str]:
    """Each request of a run, as one text."""
    run = Run()
    prompt = GoalPrompt(settings_.generation)
    texts = []
    for event in play(settings_, hands)[1]:
        if isinstance(event, ModelStarted):
            messages = prompt.messages(run)
            texts.append(
                "\x00".join(f"{m.role}{m.tool_calls}{m.content.removesuffix(NEXT_ACTION)}" for m in messages)
            )
        evolve(run, event)
    return texts


def shared(one: str, two: str) -> int:
    """How many characters both begin with."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )


TEN_STEPS = [LOAD, *[call("look", path=f"file{n}.py", note="n" * 40) for n in range(7)], VERIFY, FINISH]


def test_request_n_is_a_prefix_of_request_n_plus_one_but_for_what_was_loaded() -> None:
    for mode in ("text", "chat", "tools"):
        texts = requests(config(generation=Generation(mode=mode)), Hands(TEN_STEPS))
        assert len(texts) == 10
        kept = [shared(one, two) / len(one) for one, two in pairwise(texts)]

        # The load changes the list of capabilities, once; every other request is wholly a prefix.
        assert kept[1:] == [1.0] * 8, mode
        assert kept[0] > 0.5


def test_at_the_default_window_the_log_is_the_one_without_compaction() -> None:
    hands = Hands([LOAD, *[BIG] * 12, VERIFY, FINISH])
    wide = play(config(max_steps=20, context_window=262_000), hands)[1]
    boundless = play(config(max_steps=20, context_window=10**12), hands)[1]

    assert not of_kind(wide, "ContextCompacted")
    assert [encode(event) for event in wide[1:]] == [encode(event) for event in boundless[1:]]


def test_compaction_drops_the_oldest_pairs_and_keeps_the_seed_turn() -> None:
    run = Run()
    compactions = 0
    for event in STORIES["compacts"]():
        before = list(run.history.turns)
        evolve(run, event)
        if type(event).__name__ != "ContextCompacted":
            continue
        compactions += 1
        dropped, kept = before[1 : 1 + event.dropped], run.history.turns  # type: ignore[union-attr]
        assert kept == [before[0], *before[1 + event.dropped :]]  # type: ignore[union-attr]
        assert kept[0] == Message("user", "mend the parser")
        assert [turn.role for turn in dropped] == ["assistant", "tool"] * (len(dropped) // 2)
        assert event.kept == len(kept)  # type: ignore[union-attr]
        for turn in dropped:
            assert turn.role != "tool" or any(
                line.startswith(f"{turn.tool_call_id}: ") for line in run.goal.compacted
            )
    assert compactions >= 2
    assert run.goal.compacted[0] in run.goal.system
    assert run.status == "completed"


def test_a_compaction_copies_no_history_into_the_log() -> None:
    def looked(arguments: bytes) -> ToolReturned:
        return ToolReturned(*BLANK, content=f"found {arguments.decode()}\n" + "text of a file " * 100)

    replies = [LOAD, *(call("look", path=f"file_{number}.py") for number in range(60)), VERIFY, FINISH]
    hands = Hands(replies, {"look": looked})
    _, events = play(config(max_steps=80, context_window=3000), hands)
    lines = [encode(event) for event in events]

    compactions = [line for line in lines if b'"kind":"ContextCompacted"' in line]
    assert len(compactions) >= 5
    # Two numbers; and of the turns that went, the framing says the first line of the last twenty.
    assert max(map(len, compactions)) < 200
    assert sum(line.count(b"text of a file " * 100) for line in lines) == 60
    built = [line for line in lines if b'"kind":"ContextBuilt"' in line]
    assert max(map(len, built[1:])) < 20 * COMPACTED_LINE_CHARACTERS + 1000
