"""From what a person writes after `--model` to the model it means."""

import re
from urllib.parse import urlsplit

from stepfold.engine.models.discovery import probe
from stepfold.engine.models.failures import shown_url
from stepfold.engine.models.keys import key_of
from stepfold.engine.models.protocol import Model
from stepfold.engine.models.recorded import Recording, RecordingError
from stepfold.engine.models.scripted import Script, ScriptError

_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:[0-9]+(?:[/#]|$)")

FORMS = "URL#NAME, script:FILE or trace:FILE"


class ModelSpecError(ValueError):
    """A model spec that names no model: what was written, and what would be right."""


def resolve(spec: str, *, api_key_env: str = "OPENAI_API_KEY", timeout: float = 120.0) -> Model:
    """The model of `URL#NAME`, `script:FILE` or `trace:FILE`.

    A URL without a path gets `/v1`. A URL without a name is asked for its models, and means the only
    one it has. `timeout` is the seconds for a whole reply. Raises ModelSpecError.
    """
    scheme, _, rest = spec.partition(":")
    try:
        match scheme:
            case "script":
                return Script.load(_file(rest, spec))
            case "trace":
                return Recording.load(_file(rest, spec))
            case "http" | "https":
                from stepfold.engine.models.endpoint import Endpoint

                url, name = _endpoint(spec)
                if problem := key_of(api_key_env).problem:
                    raise ModelSpecError(problem)
                return Endpoint(
                    url, name or _only_model(url, api_key_env), api_key_env=api_key_env, timeout=timeout
                )
    except (ScriptError, RecordingError) as error:
        raise ModelSpecError(str(error)) from None
    shown = _shown(spec)
    hint = f" (did you mean http://{shown}?)" if _HOST_AND_PORT.match(spec) else ""
    raise ModelSpecError(f"the model {shown!r} is no model spec: write {FORMS}{hint}")


def _shown(spec: str) -> str:
    """What was written, without what stands before an @ or after a ?: there it may hold a secret."""
    return f"{'…' if '@' in spec else ''}{spec.rpartition('@')[2].partition('?')[0]}"


def _file(path: str, spec: str) -> str:
    if not path:
        raise ModelSpecError(f"the model {spec!r} names no file: write {spec}FILE")
    return path


def _endpoint(spec: str) -> tuple[str, str]:
    url, _, name = spec.partition("#")
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        # urlsplit judges a port when it is asked for, and brackets at once.
        usable = False
    if not usable:
        raise ModelSpecError(
            f"the model {_shown(spec)!r} has no host in its URL: write http://HOST:PORT/v1#NAME"
        )
    has_path = bool(urlsplit(url).path.strip("/"))
    return (url if has_path else f"{url.rstrip('/')}/v1"), name


def _only_model(url: str, api_key_env: str) -> str:
    found = probe("the server", url, timeout=2.0, key_env=api_key_env)
    offered = found.models if found else ()
    if len(offered) == 1:
        return offered[0]
    choice = f"one of: {', '.join(offered[:20])}" if offered else "the model's name"
    shown = shown_url(url)
    raise ModelSpecError(f"the model {shown!r} has no name: write {shown}#NAME with {choice}")
