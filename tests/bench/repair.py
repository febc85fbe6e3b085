"""What a small model says after a rejection, by the wording of the repair: old and new, same seeds.

    python -m tests.bench.repair http://127.0.0.1:8080/v1#NAME [REPLIES.jsonl]

For each class of rejected reply, up to `OF_A_CLASS` recorded ones are put into a conversation of our own
loop, with the repair of each wording, and the model is asked for what it says next. Counted are: actions;
actions of the tool that the rejected reply was about; and jumps to `finish` by one that was about
something else.
"""

import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.contract.envelope import Action, parse_action
from stepfold.engine.contract.schemas import TOOLS
from stepfold.engine.models.protocol import Model
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.goal_effects import request_of
from stepfold.events.configuration import WORDING_OF_MENDS, CheckSpec, Generation, GoalConfig
from stepfold.events.vocabulary import ModelReplied
from stepfold.projections.effects import AskModel
from stepfold.projections.prompt import GoalPrompt
from tests.house import Story

REPLIES = Path(__file__).parents[1] / "data" / "real_replies.jsonl"
OF_A_CLASS = 1
SEEDS = (1, 2, 3)
REPAIRS = (1, WORDING_OF_MENDS)
"""The versions of the wording whose repairs differ."""
GOAL = "Fix the bug in src/util.py so that the unit tests pass"
NAMED = re.compile(r'"name"\s*:\s*"([^"]*)"')
HARDEST = ("ArgumentsNotObject verify", "NotJson missing_brace", "NotJson extra_brace", "NotJson prose")
ABOUT_CAPABILITIES = {"capability_call", "capability_load", "capability_search"}


def rejected(path: Path) -> dict[str, list[str]]:
    """Replies of instructed models that are no action, by the class of their error."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text().splitlines():
        case = json.loads(line)
        error = parse_action(case["raw"])
        # What was cut off at the cap says nothing of the repair, and base models follow none.
        if isinstance(error, Action) or "instruct" not in case["model"] or case["finish_reason"] == "length":
            continue
        kind = f"{error.error} {error.cause or error.tool}" if error.error != "UnknownTool" else error.error
        if len(found[kind]) < OF_A_CLASS:
            found[kind].append(case["raw"])
    # What a repair is known to mislead comes first: who has little time sees that.
    return dict(sorted(found.items(), key=lambda item: not item[0].startswith(HARDEST)))


def conversation(reply: str, wording: int, seed: int) -> Any:
    """The request that follows a rejected reply."""
    generation = Generation(temperature=0.7, seed=seed, max_tokens=120)
    config = GoalConfig(
        goal=GOAL,
        model="m",
        checks=(CheckSpec("unit-tests", "python -m unittest -q"),),
        manifests=NATIVE,
        memory=False,
        generation=generation,
        wording=wording,
    )
    story = Story(config)
    story.lands(reply)
    (asked,) = [due for due in story.run.due.values() if isinstance(due, AskModel)]
    return request_of(story.run, asked, GoalPrompt(generation))


def verdict(reply: str, said: str) -> str:
    """`mended`, `jumped` (to finish), `other` (another action) or `rejected`."""
    action = parse_action(said)
    if not isinstance(action, Action):
        return "rejected"
    named = NAMED.search(reply)
    about = named[1] if named else ""
    if action.name == about or (about not in TOOLS and action.name in ABOUT_CAPABILITIES):
        return "mended"
    return "jumped" if action.name == "finish" else "other"


async def measured(model: Model, replies: dict[str, list[str]]) -> None:
    """Ask, and tell as it goes."""
    totals: dict[int, dict[str, int]] = {wording: defaultdict(int) for wording in REPAIRS}
    for kind, texts in replies.items():
        counts: dict[int, dict[str, int]] = {wording: defaultdict(int) for wording in totals}
        for text in texts:
            for wording in totals:
                for seed in SEEDS:
                    landed: Any = model.reply(conversation(text, wording, seed))
                    landed = await landed
                    said = verdict(text, landed.text) if isinstance(landed, ModelReplied) else landed.error
                    counts[wording][said] += 1
                    totals[wording][said] += 1
                    if isinstance(landed, ModelReplied):
                        print(f"    {wording} {said:<9} {landed.text!r}", flush=True)
        told = "; ".join(f"wording {wording}: {dict(found)}" for wording, found in counts.items())
        print(f"{kind:<34} {told}", flush=True)
    for wording, found in totals.items():
        print(f"wording {wording}: {sum(found.values())} asked, {dict(found)}")


def main() -> None:
    """Measure, with a model that is named."""
    model = resolve(sys.argv[1], timeout=300)
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else REPLIES
    started = time.monotonic()
    asyncio.run(measured(model, rejected(path)))
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
