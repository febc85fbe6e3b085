"""What a server may keep of request N for request N + 1, on the recordings of real small models.

A small model on a CPU pays for every token that its cache has not seen: a step of the 1.5B model took
15 to 19 seconds where the prefix had changed, and 4 where it had only grown.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from stepfold.engine.models.protocol import body
from stepfold.engine.runtime.requests import Rebuilder
from stepfold.events.journal import read_log
from stepfold.events.vocabulary import CapabilitiesLoaded, ContextCompacted, ModelStarted
from stepfold.projections.run import evolve
from stepfold.projections.state import Run

STORIES = sorted((Path(__file__).parents[2] / "replay_fixtures").glob("*/log.jsonl"))
KEPT_OF_A_RUN = 0.9
KEPT_OF_A_STEP = 0.97
"""The flat form for text-only models ends in a line that asks for the next action, and is no prefix."""


class Sent:
    """A request as its bytes went out, up to the end of its last message; what changed before it."""

    def __init__(self, content: bytes, reframed: bool) -> None:
        self.content = content
        self.reframed = reframed


def requests(log: Path) -> list[Sent]:
    run, rebuilder, sent, reframed = Run(), Rebuilder(), [], False
    for record in read_log(log).records:
        match record.event:
            case CapabilitiesLoaded() | ContextCompacted():
                reframed = True
            case ModelStarted() as asked:
                rebuilt = rebuilder.request(run, asked)
                assert rebuilt.agrees
                messages = json.dumps(body(rebuilt.whole)["messages"], ensure_ascii=False)
                sent.append(Sent(messages.encode()[: -len(b'"}]')], reframed))
                reframed = False
        evolve(run, record.event)
    return sent


def kept(one: Sent, two: Sent) -> int:
    """How many bytes both begin with."""
    pairs = enumerate(zip(one.content, two.content, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one.content), len(two.content)))


def test_there_are_recordings_of_ten_steps_and_more() -> None:
    assert sum(len(requests(log)) >= 10 for log in STORIES) >= 5


@pytest.mark.parametrize("log", STORIES, ids=lambda log: log.parent.name)
def test_nine_tenths_of_what_a_run_sends_is_a_prefix_of_what_it_sends_next(log: Path) -> None:
    pairs = list(pairwise(requests(log)))

    assert sum(kept(*pair) for pair in pairs) >= KEPT_OF_A_RUN * sum(len(one.content) for one, _ in pairs)


@pytest.mark.parametrize("log", STORIES, ids=lambda log: log.parent.name)
def test_only_a_load_and_a_compaction_change_what_was_sent_before(log: Path) -> None:
    for one, two in pairwise(requests(log)):
        if not two.reframed:
            assert kept(one, two) >= KEPT_OF_A_STEP * len(one.content)
