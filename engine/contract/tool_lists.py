"""A user's file of tools: the array that `stepfold parse --tools` and `stepfold fuzz --tools` both read."""

import json
from typing import Any


class ToolsError(ValueError):
    """A file of tools that can't be used: which tool, and what is wrong with it."""


def listed_tools(content: bytes, where: str) -> list[Any]:
    """The entries of an array of tools, or of `{"tools": […]}`. Raises ToolsError, which says `where`."""
    try:
        listed = json.loads(content.decode())
    except (ValueError, RecursionError) as failure:
        raise ToolsError(f"{where}: not JSON ({failure}); write an array of tools") from None
    entries = listed.get("tools") if isinstance(listed, dict) else listed
    if not isinstance(entries, list) or not entries:
        raise ToolsError(f'{where}: no tools; write an array of {{"name": ..., "schema": ...}}')
    return entries
