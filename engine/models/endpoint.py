"""Any OpenAI-compatible endpoint as a model: one request a call, every failure an event."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from stepfold.engine.models import failures
from stepfold.engine.models.discovery import model_names
from stepfold.engine.models.envelope import reply_text
from stepfold.engine.models.failures import Place
from stepfold.engine.models.keys import Curtain, Key, StreamCurtain, key_of, secrets_of
from stepfold.engine.models.protocol import Request, body, tool_names
from stepfold.engine.models.reasoning import ReasoningSplitter, split_reasoning
from stepfold.engine.models.reply import bare_reply, replied
from stepfold.engine.models.streamed import DONE, Merger, data_lines
from stepfold.events.vocabulary import BLANK, ModelDelta, ModelErred, ModelReplied

Outcome = ModelReplied | ModelErred
PLACEHOLDER_KEY = "none"
"""What local servers get, which want a key and don't look at it."""

BEYOND_OPENAI = frozenset({"grammar"})
"""Fields of a request that llama.cpp has and OpenAI hasn't."""

LARGEST_REPLY = 32_000_000
"""Bytes of a reply, streamed or not. A server that never ends would fill the memory before its time is up."""

LISTING_TIMEOUT = 2.0
"""Seconds for the list of models that a 404 is explained with."""


class Endpoint:
    """A model behind a URL.

    `base_url` is the API's root, mostly with `/v1`; `name` the model there. `api_key_env` names the
    environment variable that holds the key, or with `_FILE` after it the file: the key itself is in no
    event, error or repr. `timeout` is the seconds for a whole reply, streamed or not.
    """

    def __init__(
        self, base_url: str, name: str, *, api_key_env: str = "OPENAI_API_KEY", timeout: float = 120.0
    ) -> None:
        self.name = name
        self._url = base_url.rstrip("/")
        self._key_env = api_key_env
        self._timeout = timeout
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Endpoint({failures.shown_url(self._url)!r}, {self.name!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may stand in no event: the key, and what of the URL is one."""
        return secrets_of(self._key_env, self._url)

    @property
    def warning(self) -> str:
        """What the user should know of the key: who else can read it."""
        return self._key().warning

    async def reply(self, request: Request) -> Outcome:
        """Ask once and wait for the whole reply. Cancelling the task closes the request."""
        if problem := self._key().problem:
            return failures.failure("auth", problem)
        asked = text_safe(body(request))
        try:
            async with asyncio.timeout(self._timeout):
                async with self._request(asked) as response:
                    content = await _read(response)
        except Exception as error:
            return await self._failed(error)
        return completion_reply(self._curtain().content(content), request, self._place())

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta | ModelReplied | ModelErred]:
        """Ask once: the text as it comes, then the reply that `reply` would have given, marked streamed."""
        if problem := self._key().problem:
            yield failures.failure("auth", problem)
            return
        asked = {**text_safe(body(request)), "stream": True, "stream_options": {"include_usage": True}}
        deadline = asyncio.get_running_loop().time() + self._timeout
        async with AsyncExitStack() as opened:
            try:
                async with asyncio.timeout_at(deadline):
                    response = await opened.enter_async_context(self._request(asked))
            except Exception as error:
                yield await self._failed(error)
                return
            async for event in self._pieces(response, request, deadline):
                yield event

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def models(self) -> tuple[str, ...]:
        """The names of the models that the server lists; empty when it doesn't say."""
        try:
            async with asyncio.timeout(LISTING_TIMEOUT):
                manager = self._connected().models.with_streaming_response.list()
                async with manager as response:
                    return model_names(await response.read())
        except Exception:
            return ()

    async def _pieces(
        self, response: Any, request: Request, deadline: float
    ) -> AsyncIterator[ModelDelta | ModelReplied | ModelErred]:
        if "json" in response.headers.get("content-type", ""):
            # The server took no notice of `stream`: its one answer is the only piece.
            async for event in self._unstreamed(response, request, deadline):
                yield event
            return
        merger, splitter, lines = Merger(), ReasoningSplitter(), data_lines(response.iter_bytes())
        curtain = self._curtain()
        held = StreamCurtain(curtain)
        asked_at, first_token, received, data = asyncio.get_running_loop().time(), 0.0, 0, b""
        while True:
            try:
                # The limit holds the waiting, not the time that the consumer takes.
                async with asyncio.timeout_at(deadline):
                    data = await anext(lines, DONE)
            except Exception as error:
                yield await self._failed(error)
                return
            received += len(data)
            if data == DONE:
                break
            if received > LARGEST_REPLY:
                yield _too_large(self._place())
                return
            try:
                text = held.feed(splitter.feed(merger.add(data)))
            except (ValueError, RecursionError) as error:
                why = f"a piece that is no JSON ({error})"
                yield failures.bad_response(curtain.content(data), why, self._place())
                return
            if not first_token and merger.speaks:
                first_token = asyncio.get_running_loop().time() - asked_at
            if text:
                yield ModelDelta(*BLANK, text=text)
        if rest := held.feed(splitter.end()) + held.end():
            yield ModelDelta(*BLANK, text=rest)
        yield curtain.value(_whole(merger, request, self._place(), first_token))

    async def _unstreamed(
        self, response: Any, request: Request, deadline: float
    ) -> AsyncIterator[ModelDelta | ModelReplied | ModelErred]:
        try:
            async with asyncio.timeout_at(deadline):
                content = await _read(response)
        except Exception as error:
            yield await self._failed(error)
            return
        outcome = completion_reply(self._curtain().content(content), request, self._place())
        if isinstance(outcome, ModelReplied) and outcome.text:
            yield ModelDelta(*BLANK, text=outcome.text)
        yield outcome

    def _request(self, asked: dict[str, Any]) -> Any:
        # The client knows OpenAI's own fields alone.
        known = {name: value for name, value in asked.items() if name not in BEYOND_OPENAI}
        beyond = {name: value for name, value in asked.items() if name in BEYOND_OPENAI}
        return self._connected().chat.completions.with_streaming_response.create(**known, extra_body=beyond)

    async def _failed(self, error: Exception) -> Outcome:
        """The event for what a request raised. Only the transport raises here: replies are read elsewhere."""
        import openai

        place = self._place()
        match error:
            case TimeoutError():
                return failures.timed_out(self._timeout, place)
            case ReplyTooLarge():
                return _too_large(place)
            case openai.APITimeoutError():
                return failures.timed_out(self._timeout, place)
            case openai.APIStatusError():
                offered = await self.models() if error.status_code == 404 else ()
                response = error.response
                # Before it is shortened, for half a key is still a secret.
                said = self._curtain().content(response.content)
                return failures.from_status(error.status_code, said, response.headers, place, offered)
            case _:
                erred: Outcome = self._curtain().value(failures.broken_connection(error, place))
                return erred

    def _place(self) -> Place:
        return Place(failures.shown_url(self._url), self.name, self._key_env, bool(self._key().value))

    def _key(self) -> Key:
        return key_of(self._key_env)

    def _curtain(self) -> Curtain:
        """Servers echo the key in their errors, and who knows where else."""
        return Curtain(self.secrets)

    def _connected(self) -> Any:
        """The client of the running loop: its connections belong to the loop that opened them."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            from openai import AsyncOpenAI

            self._client = AsyncOpenAI(
                base_url=self._url,
                api_key=self._key().value or PLACEHOLDER_KEY,
                timeout=self._timeout,
                max_retries=0,
            )
            self._loop = loop
        return self._client


def completion_reply(content: bytes, request: Request, place: Place) -> Outcome:
    """Read the body of a chat completion, trusting nothing in it."""
    try:
        completion = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return failures.bad_response(content, "a body that is no JSON", place)
    return read_completion(completion, content, request, place)


def read_completion(completion: Any, content: bytes, request: Request, place: Place) -> Outcome:
    """Read a decoded chat completion; `content` is what an error shows of it."""
    match completion:
        case {"choices": [{"message": dict()} as choice, *_]}:
            return _reply(choice["message"], choice, completion, request)
        case {"error": {"code": int(status)}} if 400 <= status < 600:
            return failures.from_status(status, content, {}, place)
        case {"error": error} if error is not None:
            said, _ = failures.server_message(content)
            return failures.bad_response(content, f"an error ({said})", place)
        case _:
            return failures.bad_response(content, "no choices", place)


def _reply(
    message: dict[str, Any], choice: dict[str, Any], completion: dict[str, Any], request: Request
) -> ModelReplied:
    content, calls = reply_text(message)
    text, thought = split_reasoning(content)
    separate = message.get("reasoning_content") or message.get("reasoning")
    reason, model = choice.get("finish_reason"), completion.get("model")
    real = {wire: name for name, wire in tool_names(request.tools).items()}
    reply = bare_reply(
        text,
        tool_calls=tuple(
            msgspec.structs.replace(call, name=real.get(call.name, call.name)) for call in calls
        ),
        finish_reason=reason if isinstance(reason, str) else "",
        model=model if isinstance(model, str) else "",
        reasoning="\n".join(filter(None, (separate if isinstance(separate, str) else "", thought))),
    )
    return replied(reply, completion.get("usage"), request, completion.get("timings"))


class ReplyTooLarge(Exception):
    """The server sends more than a reply can be."""


async def _read(response: Any) -> bytes:
    """The whole body. Raises ReplyTooLarge."""
    content = bytearray()
    async for piece in response.iter_bytes():
        content += piece
        if len(content) > LARGEST_REPLY:
            raise ReplyTooLarge
    return bytes(content)


def _too_large(place: Place) -> ModelErred:
    detail = f"{place.url} sent more than {LARGEST_REPLY} bytes for one reply: see the server's own log"
    return failures.failure("bad_response", detail, status=200)


def _whole(merger: Merger, request: Request, place: Place, first_token: float) -> Outcome:
    completion = merger.completion()
    shown = json.dumps(completion).encode()
    if "error" in completion:
        return read_completion({"error": completion["error"]}, shown, request, place)
    if not merger.finished:
        detail = f"{place.url} ended the stream before the reply was whole: see the server's own log"
        return failures.failure("connection", detail)
    outcome = read_completion(completion, shown, request, place)
    if not isinstance(outcome, ModelReplied):
        return outcome
    return msgspec.structs.replace(outcome, streamed=True, first_token=round(first_token, 6))


def text_safe(value: Any) -> Any:
    """Each lone surrogate as U+FFFD, for JSON on the wire is UTF-8; a pair is one character."""
    match value:
        case str():
            return (
                value
                if value.isascii()
                else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            )
        case dict():
            return {text_safe(key): text_safe(item) for key, item in value.items()}
        case list():
            return [text_safe(item) for item in value]
        case _:
            return value
