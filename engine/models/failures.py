"""What went wrong with a model call, as one kind and one line that says what to do about it."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from stepfold.events.vocabulary import BLANK, ModelErred

RETRYABLE = frozenset({"connection", "rate_limited", "server"})
"""The kinds that another attempt may mend. A timeout is none: the next one would wait as long."""

STARTERS = {11434: "`ollama serve`", 8080: "`llama-server -m MODEL.gguf`", 8000: "`vllm serve MODEL`"}
LONGEST_DETAIL = 500
_OVERFLOW = re.compile(
    r"context[ _](length|window|size)|maximum context|too many tokens|prompt is too long|exceed_context",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"quota|balance|billing|credit", re.IGNORECASE)


class Place(Struct, frozen=True):
    """What an error may name of an endpoint. `key_set` tells only whether there is a key."""

    url: str
    model: str
    key_env: str
    key_set: bool = False


def shown_url(url: str) -> str:
    """The URL without a user, a password or a query: the parts that may hold a secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def failure(error: str, detail: str, **fields: Any) -> ModelErred:
    """An error event whose detail is one line of bounded length."""
    line = " ".join(detail.split())
    short = line if len(line) <= LONGEST_DETAIL else f"{line[:LONGEST_DETAIL]}…"
    return ModelErred(
        *BLANK, error=error, detail=short, retryable=fields.pop("retryable", error in RETRYABLE), **fields
    )


def from_status(
    status: int, content: bytes, headers: Mapping[str, str], place: Place, offered: tuple[str, ...] = ()
) -> ModelErred:
    """Classify an HTTP error. `offered` are the models that the server says it has."""
    said, code = server_message(content)
    kind = status_kind(status, said, code)
    return failure(
        kind,
        _advice(kind, status, said, place, offered),
        status=status,
        retryable=kind in RETRYABLE or status in (408, 409),
        retry_after=retry_after(headers, datetime.now(UTC)),
    )


def status_kind(status: int, said: str, code: str) -> str:
    """The kind of an HTTP error, from its status and from what the server says of it."""
    text = f"{code} {said}"
    if status in (400, 413, 500) and _OVERFLOW.search(text):
        return "context_overflow"
    if status == 402 or (status == 429 and _QUOTA.search(text)):
        return "quota"
    if code == "model_not_found":
        return "not_found"
    match status:
        case 401 | 403:
            return "auth"
        case 404:
            return "not_found"
        case 429:
            return "rate_limited"
        case _ if status >= 500:
            return "server"
        case _:
            return "invalid_request"


def server_message(content: bytes) -> tuple[str, str]:
    """The message and the code of an error body, in the shapes that servers give it; else its start."""
    try:
        decoded = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "" if is_markup(content) else content[:200].decode("utf-8", "replace"), ""
    match decoded:
        case {"error": {"message": str(message), **rest}}:
            return message, " ".join(
                str(rest[key]) for key in ("code", "type") if isinstance(rest.get(key), str)
            )
        case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)}:
            return message, ""
        case _:
            return json.dumps(decoded)[:200], ""


def is_markup(content: bytes) -> bool:
    """Whether a body is a web page rather than an answer."""
    return content.lstrip()[:1] == b"<"


def retry_after(headers: Mapping[str, str], now: datetime) -> float:
    """The seconds a server asks to wait, from a header in seconds or as an HTTP date; 0 when it doesn't."""
    from email.utils import parsedate_to_datetime

    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII):
        return float(value)
    try:
        at = parsedate_to_datetime(value)
        aware = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, (aware - now).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def broken_connection(error: BaseException, place: Place) -> ModelErred:
    """Classify a request that got no whole answer."""
    causes = tuple(_causes(error))
    names = {type(cause).__name__ for cause in causes}
    if names & {"APITimeoutError", "ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"}:
        return timed_out(0.0, place)
    if "gaierror" in names:
        host = urlsplit(place.url).hostname
        return failure("connection", f"no address is known for {host}: check the URL {place.url}")
    if any(name.startswith("SSL") for name in names):
        return failure("connection", f"no TLS with {place.url} ({causes[-1]}): check http:// or https://")
    if "ConnectError" in names:
        return failure("connection", f"nothing listens at {place.url}: {_start(place)}")
    why = f"{type(causes[-1]).__name__}: {causes[-1]}".rstrip(": ")
    return failure("connection", f"{place.url} broke the connection off ({why}): see the server's own log")


def timed_out(seconds: float, place: Place) -> ModelErred:
    """No whole answer within the time."""
    within = f" within {seconds:g} s" if seconds else " in time"
    detail = (
        f"no whole reply from {place.url}{within}: raise model_request_timeout, or ask for fewer max_tokens"
    )
    return failure("timeout", detail)


def bad_response(content: bytes, why: str, place: Place) -> ModelErred:
    """An answer with status 200 that is no chat completion."""
    if is_markup(content):
        detail = f"{place.url} answered with a web page: is this an API address? It often ends in /v1"
        return failure("bad_response", detail, status=200)
    start = content[:80].decode("utf-8", "replace")
    detail = f"{place.url} answered with {why}: is it an OpenAI-compatible server? The body begins {start!r}"
    return failure("bad_response", detail, status=200)


def _advice(kind: str, status: int, said: str, place: Place, offered: tuple[str, ...]) -> str:
    heard = f" ({said})" if said else ""
    match kind:
        case "auth" if place.key_set:
            return f"{place.url} refused the key ({status}): check the value of {place.key_env}"
        case "auth":
            return (
                f"{place.url} wants a key ({status}): put it into the environment variable {place.key_env}, "
                f"or the name of a file that holds it into {place.key_env}_FILE"
            )
        case "not_found" if "model" not in said.lower() and (not offered or place.model in offered):
            return f"{place.url} has no chat API at this path{heard}: check the URL, which often ends in /v1"
        case "not_found" if offered:
            listed = ", ".join(offered[:20])
            return f"{place.url} has no model {place.model!r}; it offers: {listed}"
        case "not_found" if urlsplit(place.url).port == 11434:
            return f"{place.url} has no model {place.model!r}{heard}: `ollama pull {place.model}`"
        case "not_found":
            return f"{place.url} has no model {place.model!r}{heard}: check its name"
        case "rate_limited":
            return f"{place.url} asks for fewer requests{heard}: wait, or use another model"
        case "quota":
            return f"{place.url} says the quota is used up{heard}: top it up, or use another model"
        case "context_overflow":
            return f"the prompt is too long for {place.model!r}{heard}: lower context_window to the server's"
        case "server":
            return f"{place.url} failed with status {status}{heard}: see the server's own log"
        case _:
            return f"{place.url} refused the request with status {status}{heard}: check the [model] settings"


def _start(place: Place) -> str:
    parts = urlsplit(place.url)
    if parts.hostname not in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
        return "check the URL and the network"
    known = STARTERS.get(parts.port or 0)
    return f"start it, {known}" if known else "start it, e.g. `ollama serve` or `llama-server -m MODEL.gguf`"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
