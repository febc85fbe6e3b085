"""Records the stories of `replay_fixtures/` anew, with a real small model. Not a test: run it by hand.

    python tests/record_fixtures.py http://127.0.0.1:8080/v1#NAME OUT [STORY…]

Each story is a goal in a small project, under plain replies or with the envelope as a JSON Schema.
What the model does with it is not in our hands; look at the outcome before you keep one. A new
wording of the engine's own sentences needs new recordings, or a version (`GoalConfig.wording`).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from stepfold import AgentLoop
from stepfold.events.configuration import CheckSpec, Generation
from stepfold.projections.outcome import LoopOutcome

UNIT = CheckSpec("unit", "python -m unittest -q")

CALCULATOR = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": (
        "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    ),
}
SLUG = {
    "slug.py": 'def slugify(title):\n    return title.lower().replace(" ", "_")\n',
    "test_slug.py": (
        "import unittest\n\nfrom slug import slugify\n\n\nclass TestSlug(unittest.TestCase):\n"
        "    def test_words_are_joined_by_hyphens(self):\n"
        '        self.assertEqual(slugify("Big News"), "big-news")\n'
    ),
}
TOTALS = {
    "report.py": (
        "import csv\n\n\ndef total(path):\n    with open(path, newline='') as file:\n"
        "        return sum(float(row['count']) for row in csv.DictReader(file))\n"
    ),
    "sales.csv": "item,count,price\npen,2,1.50\nbook,1,12.00\n",
    "test_report.py": (
        "import unittest\n\nfrom report import total\n\n\nclass TestTotal(unittest.TestCase):\n"
        "    def test_total_is_the_sum_of_the_prices(self):\n"
        "        self.assertEqual(total('sales.csv'), 13.5)\n"
    ),
}
PATHS = {
    "paths.py": (
        "def normalise_path(path):\n    parts = [part for part in path.split('/') if part not in ('', '.')]\n"
        "    return '/'.join(parts)\n"
    )
}
FIX_ADD = "Fix the bug in calc.py so that the failing test in test_calc.py passes"
FIX_SLUG = "slugify in slug.py must join words with hyphens: make the test in test_slug.py pass"

STORIES: dict[str, dict[str, Any]] = {
    "fixes_a_failing_test": {"files": CALCULATOR, "goal": FIX_ADD, "format": "json_schema"},
    "fenced_replies": {"files": CALCULATOR, "goal": FIX_ADD, "max_steps": 10},
    "hyphens_constrained": {"files": SLUG, "goal": FIX_SLUG, "format": "json_schema"},
    "hyphens_plain": {"files": SLUG, "goal": FIX_SLUG, "max_steps": 10},
    "bumps_a_version": {
        "files": {"VERSION": "1.2.0\n"},
        "goal": "Change the version in the file VERSION from 1.2.0 to 1.3.0",
        "checks": [CheckSpec("version", "grep -qx 1.3.0 VERSION")],
        "format": "json_schema",
        "max_steps": 10,
    },
    "question_without_checks": {
        "files": PATHS,
        "goal": "What does the function normalise_path in paths.py do?",
        "checks": [],
        "max_steps": 8,
    },
    "continues_the_dialogue": {"files": CALCULATOR, "goal": FIX_ADD, "mode": "text", "max_steps": 6},
    "wrong_column": {
        "files": TOTALS,
        "goal": "total in report.py sums the wrong column: make the test pass",
        "format": "json_schema",
        "max_steps": 10,
    },
    "hits_the_cap": {"files": SLUG, "goal": FIX_SLUG, "max_steps": 3, "seed": 2},
    "half_a_billion_fails": {"files": CALCULATOR, "goal": FIX_ADD, "max_steps": 8, "temperature": 0.7},
    "half_a_billion_constrained": {
        "files": SLUG,
        "goal": FIX_SLUG,
        "max_steps": 8,
        "format": "json_schema",
        "temperature": 0.7,
    },
    "repeats_a_failing_call": {
        "files": CALCULATOR,
        "goal": "The test in test_calc.py passes already: call finish",
        "max_steps": 6,
    },
    "jumps_to_a_capability": {
        "files": SLUG,
        "goal": "slugify in slug.py is correct already. Say so: finish",
        "max_steps": 8,
        "mode": "text",
    },
    "fence_without_a_tag": {
        "files": CALCULATOR,
        "goal": FIX_ADD,
        "max_steps": 8,
        "mode": "text",
        "temperature": 0.9,
        "seed": 4,
    },
    "one_brace_short": {
        "files": {"settings.json": '{"app": {"theme": {"color": "light"}}}\n'},
        "goal": "In settings.json change the color from light to dark",
        "checks": [CheckSpec("dark", "grep -q dark settings.json")],
        "max_steps": 5,
        "temperature": 1.0,
        "seed": 8,
    },
    "writes_a_readme": {
        "files": {"tool.py": "print('hello')\n"},
        "goal": "Write a README.md with a section headed Usage that says how to run tool.py",
        "checks": [CheckSpec("usage", "grep -qi usage README.md")],
        "max_steps": 10,
    },
}


def record(name: str, model: str, out: Path, folder: Path) -> LoopOutcome:
    """Run one story, and keep its log, its outcome and its transcript."""
    story = STORIES[name]
    project = folder / name
    project.mkdir(parents=True)
    for path, text in story["files"].items():
        (project / path).write_text(text)
    generation = Generation(
        mode=story.get("mode", "chat"),
        temperature=story.get("temperature", 0.0),
        seed=story.get("seed", 1),
        max_tokens=400,
        response_format=story.get("format", "none"),
    )
    loop = AgentLoop(
        model=model,
        project=project,
        max_steps=story.get("max_steps", 12),
        checks=story.get("checks", [UNIT]),
        store=folder / "store",
        generation=generation,
        model_request_timeout=900,
    )
    outcome = loop.run(story["goal"], run_id=name)
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(loop.store.path_of(name), target / "log.jsonl")
    write_projections(target, outcome)
    return outcome


def write_projections(target: Path, outcome: LoopOutcome) -> None:
    """What a fixture folder holds beside its log; the tests fold the log anew and compare."""
    (target / "outcome.json").write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    (target / "transcript.txt").write_text(outcome.transcript + "\n", errors="backslashreplace")


def main() -> None:
    """Record the stories that are named, or all."""
    model, out, *names = sys.argv[1:]
    for name in names or STORIES:
        with tempfile.TemporaryDirectory(prefix="stepfold-") as folder:
            outcome = record(name, model, Path(out), Path(folder))
        print(f"{name}: {outcome.status}, {outcome.steps} steps, {outcome.rejected} rejected", flush=True)


if __name__ == "__main__":
    main()
