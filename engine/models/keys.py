"""API keys: where they come from, and how they are kept out of all that is written down."""

import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
from msgspec import Raw, Struct

FILE_SUFFIX = "_FILE"
"""`OPENAI_API_KEY_FILE` names a file that holds what `OPENAI_API_KEY` would, as containers mount secrets."""

HIDDEN = "[key]"
LEAST_SECRET = 8
"""Characters. What is shorter is a placeholder (`none`, `ollama`), and would be found in any text."""

LARGEST_FILE = 64 * 1024


class Key(Struct, frozen=True):
    """A key as the environment gives it. Its repr does not show it.

    `problem` says in one line why there is none although one is named; `warning`, who else can read it.
    """

    value: str = ""
    problem: str = ""
    warning: str = ""

    def __repr__(self) -> str:
        return f"Key(set={bool(self.value)}, problem={self.problem!r})"


def key_of(name: str) -> Key:
    """The key in the environment variable `name`, else in the file that `name` + `_FILE` names."""
    if not name:
        return Key()
    if value := os.environ.get(name, "").strip():
        return _usable(value, name)
    path = os.environ.get(f"{name}{FILE_SUFFIX}", "")
    return _from_file(Path(path).expanduser(), f"{name}{FILE_SUFFIX}") if path else Key()


def _from_file(path: Path, variable: str) -> Key:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_FILE:
            return Key(problem=f"{variable} names {path}, which is no small file: write the key into one")
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        return Key(problem=f"{variable} names {path}, which can't be read ({error.strerror}): name another")
    except UnicodeDecodeError:
        return Key(problem=f"{variable} names {path}, which is no text: write the key alone into it")
    if not value:
        return Key(problem=f"{variable} names {path}, which is empty: write the key into it")
    key = _usable(value, f"the file {path}")
    others = found.st_mode & (stat.S_IRGRP | stat.S_IROTH)
    if key.problem or not others:
        return key
    return msgspec.structs.replace(key, warning=f"others can read the key in {path}: chmod 600 {path}")


def _usable(value: str, where: str) -> Key:
    # The HTTP client would quote the whole key in the error that it raises for such a header.
    if value.isascii() and value.isprintable() and " " not in value:
        return Key(value)
    return Key(problem=f"the key in {where} holds a space or a character that no header can: write it anew")


def secrets_of(key_env: str, url: str) -> tuple[str, ...]:
    """What may stand in no event of a run with the model at this URL: its key, a password, a query."""
    try:
        parts = urlsplit(url)
        named = (unquote(parts.password or ""), *(value for _, value in parse_qsl(parts.query)))
    except ValueError:
        named = ()
    return tuple(filter(None, (key_of(key_env).value, *named)))


class Curtain:
    """Hides secrets in whatever is to be recorded, shown or sent on. Without any it changes nothing."""

    def __init__(self, secrets: Iterable[str]) -> None:
        written = {form for secret in secrets if len(secret) >= LEAST_SECRET for form in _forms(secret)}
        # The longest first: one secret may be the beginning of another.
        self._texts = sorted(written, key=lambda form: (-len(form), form))
        self._bytes = [form.encode() for form in self._texts]

    def text(self, text: str) -> str:
        """The text with `[key]` for each secret, also for one that JSON or a URL writes in another way."""
        for form in self._texts:
            text = text.replace(form, HIDDEN)
        return text

    def content(self, content: bytes) -> bytes:
        """The same for bytes."""
        for form in self._bytes:
            content = content.replace(form, HIDDEN.encode())
        return content

    def beginning_in(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a secret."""
        return max((_begun(text, form) for form in self._texts), default=0)

    def value(self, value: Any) -> Any:
        """The same for every text in an event, however deep. What holds no secret comes back as it is."""
        if not self._texts:
            return value
        match value:
            case str():
                return self.text(value)
            case Raw():
                clean = self.content(bytes(value))
                return value if clean == bytes(value) else Raw(clean)
            case tuple():
                return tuple(self.value(item) for item in value)
            case Struct():
                fields = {name: getattr(value, name) for name in value.__struct_fields__}
                changed = {name: self.value(item) for name, item in fields.items()}
                changed = {name: item for name, item in changed.items() if item != fields[name]}
                return msgspec.structs.replace(value, **changed) if changed else value
            case _:
                return value


class StreamCurtain:
    """A curtain for text that comes in pieces: what may be the beginning of a secret is held back."""

    def __init__(self, curtain: Curtain) -> None:
        self._curtain = curtain
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take the next piece; give back what is certain by now."""
        text = self._curtain.text(self._held + piece)
        kept = self._curtain.beginning_in(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        """No more pieces come: what was held back is no secret."""
        rest, self._held = self._held, ""
        return rest


def _begun(text: str, form: str) -> int:
    longest = min(len(text), len(form) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(form[:length])), 0)


def _forms(secret: str) -> Sequence[str]:
    in_json = json.dumps(secret)[1:-1]
    return (secret, in_json, in_json.replace("/", "\\/"), quote(secret, safe=""))
