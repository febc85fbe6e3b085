"""How untrusted text is shown inside our own sentences: quoted, escaped, cut."""

import json

DETAIL_LIMIT = 300
"""The longest detail of an error, in characters."""


def quoted(text: str, limit: int = 40) -> str:
    """Show the first `limit` characters of `text`, or fewer, as an ASCII JSON string.

    The result has at most `2 * limit + 5` characters, however many escapes it needs. Everything
    outside printable ASCII is escaped, so that zero-width characters, look-alike letters and
    terminal controls can be seen, and do nothing.
    """
    kept = text[:limit]
    while len(shown := json.dumps(kept).replace("\x7f", "\\u007f")) > 2 * limit + 2:
        kept = kept[: len(kept) // 2]
    return shown if kept == text else f"{shown}..."


def shortened(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Cut `text` to `limit` characters, and let the cut be seen."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
