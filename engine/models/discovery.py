"""Which model servers answer here: what `doctor` lists and what a run without a named model falls back on."""

import json
import os

from msgspec import Struct

from stepfold.engine.models.failures import shown_url
from stepfold.engine.models.keys import key_of

PROBE_TIMEOUT = 0.3
"""Seconds for a server on this machine to say what it has."""

LOCAL = (
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("llama-server", "http://127.0.0.1:8080/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
    ("vLLM", "http://127.0.0.1:8000/v1"),
)
LARGEST_LISTING = 1_000_000


class Found(Struct, frozen=True):
    """A server that answered: with its models, or with the problem that kept it from listing them."""

    server: str
    base_url: str
    models: tuple[str, ...] = ()
    problem: str = ""


def find_local(timeout: float = PROBE_TIMEOUT) -> tuple[Found, ...]:
    """Ask `OPENAI_BASE_URL` and the usual local ports, all at once; those that answer, in this order."""
    from concurrent.futures import ThreadPoolExecutor

    named = os.environ.get("OPENAI_BASE_URL", "")
    candidates = ((("OPENAI_BASE_URL", named),) if named else ()) + LOCAL
    with ThreadPoolExecutor(len(candidates)) as pool:
        answers = pool.map(
            lambda found: probe(*found, timeout=timeout, key_env=_key_env(found[0])), candidates
        )
        return tuple(answer for answer in answers if answer is not None)


def _key_env(server: str) -> str:
    """Whoever listens at a port of this machine is not shown the key of another server."""
    return "OPENAI_API_KEY" if server == "OPENAI_BASE_URL" else ""


def probe(server: str, base_url: str, *, timeout: float = PROBE_TIMEOUT, key_env: str = "") -> Found | None:
    """Ask one server for its models; None when nothing answers within `timeout` seconds.

    `key_env` names the variable of the key that it is shown.
    """
    import http.client
    import urllib.error
    import urllib.request

    key = key_of(key_env).value
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    shown = shown_url(base_url)
    # A proxy can't reach the ports of this machine, so only a named URL goes by the environment's.
    proxies = urllib.request.ProxyHandler(None if server not in dict(LOCAL) else {})
    try:
        request = urllib.request.Request(f"{base_url.rstrip('/')}/models", headers=headers)
        with urllib.request.build_opener(proxies).open(request, timeout=timeout) as response:
            names = model_names(response.read(LARGEST_LISTING))
    except urllib.error.HTTPError as error:
        return Found(server, shown, problem=f"answers {error.code} when asked for its models")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return Found(server, shown, names, "" if names else "answers, but lists no model")


def model_names(content: bytes) -> tuple[str, ...]:
    """The ids in the body of `/models`, in the server's order."""
    try:
        match json.loads(content.decode("utf-8")):
            case {"data": list(models)}:
                return tuple(m["id"] for m in models if isinstance(m, dict) and isinstance(m.get("id"), str))
    except (ValueError, RecursionError):
        pass
    return ()
