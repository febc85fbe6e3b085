"""What kind of task a goal is: a few words decide, and the caller may always say so instead."""

import re
from typing import Literal, get_args

ProfileId = Literal["coding", "data", "writing", "research", "ops", "general"]
PROFILES: tuple[ProfileId, ...] = get_args(ProfileId)

_WORDS: dict[ProfileId, frozenset[str]] = {
    "coding": frozenset(
        [
            "bug",
            "bugs",
            "build",
            "class",
            "code",
            "compile",
            "coverage",
            "crash",
            "debug",
            "exception",
            "failing",
            "fix",
            "function",
            "implement",
            "import",
            "lint",
            "method",
            "module",
            "parser",
            "refactor",
            "rename",
            "test",
            "tests",
            "type",
            "typing",
            "unit",
        ]
    ),
    "data": frozenset(
        [
            "aggregate",
            "average",
            "chart",
            "column",
            "columns",
            "csv",
            "data",
            "dataset",
            "duckdb",
            "excel",
            "histogram",
            "join",
            "json",
            "mean",
            "median",
            "parquet",
            "plot",
            "query",
            "row",
            "rows",
            "spreadsheet",
            "sql",
            "statistics",
            "sum",
            "table",
        ]
    ),
    "writing": frozenset(
        [
            "article",
            "blog",
            "changelog",
            "docs",
            "document",
            "documentation",
            "draft",
            "edit",
            "email",
            "essay",
            "letter",
            "paragraph",
            "proofread",
            "readme",
            "rewrite",
            "sentence",
            "spelling",
            "story",
            "summarise",
            "summarize",
            "translate",
            "typo",
            "typos",
            "write",
        ]
    ),
    "research": frozenset(
        [
            "compare",
            "cite",
            "evaluate",
            "explain",
            "explore",
            "find",
            "investigate",
            "learn",
            "look",
            "research",
            "review",
            "sources",
            "study",
            "survey",
            "understand",
            "what",
            "which",
            "who",
            "why",
        ]
    ),
    "ops": frozenset(
        [
            "backup",
            "ci",
            "configure",
            "container",
            "cron",
            "deploy",
            "deployment",
            "docker",
            "install",
            "kubernetes",
            "log",
            "logs",
            "monitor",
            "nginx",
            "permissions",
            "pipeline",
            "provision",
            "release",
            "restart",
            "server",
            "service",
            "ssh",
            "systemd",
            "upgrade",
        ]
    ),
}
_WORD = re.compile(r"[a-z]+")


def infer_profile_from_goal(goal: str) -> ProfileId:
    """The profile whose words the goal uses most; the first of a tie in the order of PROFILES.

    `general` when it uses none. A file name with a source ending counts for `coding`.
    """
    words = _WORD.findall(goal.lower())
    scores = {profile: sum(word in known for word in words) for profile, known in _WORDS.items()}
    scores["coding"] += len(re.findall(r"\.(?:py|js|ts|rs|go|c|cpp|java|rb)\b", goal.lower()))
    best = max(scores.values())
    if best == 0:
        return "general"
    return next(profile for profile in PROFILES if scores.get(profile) == best)
