"""The ten native capabilities as the model and the lifecycle see them: data, and nothing that runs.

Pure. The handlers that do the work are in `stepfold.engine.capabilities.native`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from stepfold.events.configuration import Idempotency, Manifest
from stepfold.projections.fold_shared import SERVER_PREFIX

STRING: dict[str, Any] = {"type": "string"}
LINE: dict[str, Any] = {"type": "integer", "minimum": 1}

PATH_ALIASES = tuple((alias, "path") for alias in ("file", "filename", "filepath", "file_path", "file_name"))
FOLDER_ALIASES = (*PATH_ALIASES, ("dir", "path"), ("directory", "path"), ("folder", "path"))


def schema_of(properties: dict[str, dict[str, Any]], required: tuple[str, ...]) -> Raw:
    """A closed object schema: a key that is not listed is refused, never dropped."""
    return Raw(
        msgspec.json.encode(
            {
                "type": "object",
                "properties": properties,
                "required": list(required),
                "additionalProperties": False,
            }
        )
    )


def native(
    name: str,
    description: str,
    properties: dict[str, dict[str, Any]],
    required: tuple[str, ...],
    aliases: tuple[tuple[str, str], ...],
    idempotency: Idempotency,
) -> Manifest:
    """A manifest of one of ours. What it may touch follows from the two sets below."""
    return Manifest(
        name=name,
        description=description,
        schema=schema_of(properties, required),
        mutates=name in MUTATING,
        network=name in NETWORKED,
        idempotency=idempotency,
        aliases=aliases,
    )


MUTATING = frozenset({"fs.write", "fs.patch", "shell.run"})
"""What makes evidence stale. A shell command counts whatever it does, for nobody can tell beforehand."""

NETWORKED = frozenset({"web.fetch"})

NATIVE: tuple[Manifest, ...] = (
    native(
        "fs.list",
        "List the files and folders in a folder of the project; folders end in a slash.",
        {"path": STRING},
        (),
        FOLDER_ALIASES,
        "pure",
    ),
    native(
        "fs.read",
        "Read a text file of the project, whole or from start_line to end_line (from 1, both included).",
        {"path": STRING, "start_line": LINE, "end_line": LINE},
        ("path",),
        (
            *PATH_ALIASES,
            ("start", "start_line"),
            ("line_start", "start_line"),
            ("from_line", "start_line"),
            ("end", "end_line"),
            ("line_end", "end_line"),
            ("to_line", "end_line"),
        ),
        "pure",
    ),
    native(
        "fs.search",
        "Find lines that match a regular expression in the project's files; answers path:line: text.",
        {"pattern": {"type": "string", "minLength": 1}, "path": STRING},
        ("pattern",),
        (
            ("query", "pattern"),
            ("regex", "pattern"),
            ("search", "pattern"),
            ("text", "pattern"),
            *FOLDER_ALIASES,
        ),
        "pure",
    ),
    native(
        "fs.write",
        "Create a file, or replace all of it, with content; to change a part use fs.patch.",
        {"path": STRING, "content": STRING},
        ("path", "content"),
        (
            *PATH_ALIASES,
            ("text", "content"),
            ("contents", "content"),
            ("file_text", "content"),
            ("body", "content"),
            ("data", "content"),
        ),
        "idempotent",
    ),
    native(
        "fs.patch",
        "In a file, replace the text old by new; old must stand there exactly once, so give whole lines.",
        {"path": STRING, "old": {"type": "string", "minLength": 1}, "new": STRING},
        ("path", "old", "new"),
        (
            *PATH_ALIASES,
            ("old_string", "old"),
            ("old_str", "old"),
            ("old_text", "old"),
            ("search", "old"),
            ("find", "old"),
            ("before", "old"),
            ("new_string", "new"),
            ("new_str", "new"),
            ("new_text", "new"),
            ("replace", "new"),
            ("replacement", "new"),
            ("after", "new"),
        ),
        "once",
    ),
    native(
        "shell.run",
        "Run a shell command in the project's folder, without network; timeout_s in seconds (120 if absent).",
        {
            "command": {"type": "string", "minLength": 1},
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600},
        },
        ("command",),
        (
            ("cmd", "command"),
            ("script", "command"),
            ("timeout", "timeout_s"),
            ("timeout_seconds", "timeout_s"),
        ),
        "once",
    ),
    native(
        "git.status", "Show which files of the project changed since the last commit.", {}, (), (), "pure"
    ),
    native(
        "git.diff",
        "Show the changes since the last commit as a diff, of all files or of one path.",
        {"path": STRING},
        (),
        FOLDER_ALIASES,
        "pure",
    ),
    native(
        "web.fetch",
        "Fetch a page of the public web by its http or https address, as text.",
        {"url": {"type": "string", "minLength": 1}},
        ("url",),
        (("uri", "url"), ("link", "url"), ("address", "url")),
        "idempotent",
    ),
    native(
        "memory.recall",
        "Recall notes that earlier runs in this project left about the query.",
        {"query": STRING},
        ("query",),
        (("q", "query"), ("text", "query"), ("search", "query")),
        "pure",
    ),
)

NATIVE_BY_NAME: dict[str, Manifest] = {manifest.name: manifest for manifest in NATIVE}


def refuse_unknown(names: Iterable[str]) -> None:
    """Raises ValueError for a name that is neither one of ours nor like one of a server's tools."""
    for name in names:
        if name not in NATIVE_BY_NAME and not name.startswith(SERVER_PREFIX):
            there = f"{', '.join(NATIVE_BY_NAME)}, and {SERVER_PREFIX}SERVER.TOOL"
            raise ValueError(f"loop.preload has {name!r}; there are {there}")
