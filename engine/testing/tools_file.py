"""The tools of a user's file: an array of names and JSON Schemas, in any of the shapes that APIs use."""

import json
from pathlib import Path
from typing import Any

import msgspec

from stepfold.engine.contract.schemas import SchemaError, compile_schema
from stepfold.engine.contract.tool_lists import ToolsError, listed_tools
from stepfold.events.configuration import Manifest

_SCHEMA_KEYS = ("schema", "parameters", "inputSchema", "input_schema")


def read_tools(path: str | Path) -> tuple[Manifest, ...]:
    """Read an array of tools, or `{"tools": […]}`. Raises ToolsError."""
    try:
        entries = listed_tools(Path(path).read_bytes(), str(path))
    except OSError as failure:
        raise ToolsError(f"{path}: {failure.strerror or failure}; name a file of tools") from None
    try:
        return tuple(manifest_of(entry) for entry in entries)
    except (SchemaError, ToolsError, msgspec.ValidationError) as failure:
        raise ToolsError(f"{path}: {failure}") from None


def manifest_of(entry: Any) -> Manifest:
    """One tool: its name and schema, and what a manifest may say beside (`mutates`, `aliases`, `hidden`)."""
    described = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise ToolsError(
            f'a tool has no "name": {json.dumps(entry)[:80]}; write {{"name": ..., "schema": ...}}'
        )
    found = next((described[key] for key in _SCHEMA_KEYS if key in described), {"type": "object"})
    schema = json.dumps(found, separators=(",", ":")).encode()
    compile_schema(schema)
    traits = {
        key: described[key] for key in ("mutates", "idempotency", "aliases", "hidden") if key in described
    }
    described_as = str(described.get("description") or described["name"])
    whole = {"name": described["name"], "description": described_as, "schema": msgspec.Raw(schema), **traits}
    return msgspec.convert(whole, Manifest)
