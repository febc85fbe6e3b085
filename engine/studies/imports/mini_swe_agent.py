"""mini-swe-agent trajectories: version 1.1 (`info` and `messages`), and the older bare list of messages."""

import re
from collections.abc import Iterator
from typing import Any

from stepfold.engine.studies.imports.reading import Source, skip_mark
from stepfold.engine.studies.imports.said import (
    Answered,
    Began,
    Call,
    Ended,
    Erred,
    Noticed,
    Refused,
    Replied,
    Said,
    Spoke,
    Unplaced,
)
from stepfold.engine.studies.imports.values import (
    amount_of,
    content_of,
    count_of,
    mapping,
    sequence,
    text_of,
    time_of,
)

COMPLETED = {"submitted"}
CAPS = {"limitsexceeded"}
_BLOCK = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")


def runs(source: Source) -> Iterator[Said]:
    """One file, one run."""
    if _is_list(source):
        yield from _bare(source)
        return
    info = mapping(source.first("info"))
    config = mapping(info.get("config"))
    model = text_of(mapping(config.get("model")).get("model_name"))
    yield Began(text_of(source.first("instance_id")) or source.name, model)
    replies = 0
    ended = False
    for value in source.items("messages.item"):
        message = mapping(value)
        replies += message.get("role") == "assistant"
        if message.get("role") == "exit":
            ended = True
            info = {**info, **mapping(message.get("extra"))}
        else:
            yield from _message(message)
    yield from source.noticed()
    yield from _end(info, replies, ended)


def _is_list(source: Source) -> bool:
    with source.path.open("rb") as file:
        skip_mark(file)
        return file.read(4096).lstrip()[:1] == b"["


def _message(message: dict[str, Any]) -> Iterator[Said]:
    extra = mapping(message.get("extra"))
    at = time_of(extra.get("timestamp"))
    match message.get("role"):
        case "assistant":
            yield _reply(message, extra, at)
        case "tool":
            yield _result(message, extra, at)
        case "user" if extra.get("interrupt_type"):
            error = text_of(extra.get("interrupt_type"))
            yield Refused(error, content_of(message.get("content")), at)
            yield Noticed("reply_lost", detail=f"{error}: the refused reply itself is not in the file")
            yield Spoke("user", content_of(message.get("content")), at)
        case "user" | "system":
            yield Spoke(text_of(message.get("role")), content_of(message.get("content")), at)
        case role:
            yield Unplaced(f"message of role {text_of(role) or 'none'}")


def _reply(message: dict[str, Any], extra: dict[str, Any], at: str) -> Replied:
    response = mapping(extra.get("response"))
    usage = mapping(response.get("usage"))
    choice = mapping(next(iter(sequence(response.get("choices"))), None))
    calls = []
    for value in sequence(message.get("tool_calls")):
        function = mapping(mapping(value).get("function"))
        calls.append(
            Call(text_of(function.get("name")), text_of(function.get("arguments")), text_of(value.get("id")))
            if function
            else Call("", text_of(value))
        )
    text = content_of(message.get("content"))
    if not calls:
        calls = [
            _command(text_of(mapping(action).get("command"))) for action in sequence(extra.get("actions"))
        ]
    return Replied(
        text=text,
        calls=tuple(calls),
        reasoning=text_of(message.get("reasoning_content")),
        finish_reason=text_of(choice.get("finish_reason")),
        model=text_of(response.get("model")),
        input_tokens=count_of(usage.get("prompt_tokens")),
        output_tokens=count_of(usage.get("completion_tokens")),
        cost=amount_of(extra.get("cost")),
        at=at,
    )


def _result(message: dict[str, Any], extra: dict[str, Any], at: str) -> Answered:
    code, raised = extra.get("returncode"), text_of(extra.get("exception_info"))
    error = raised.splitlines()[-1][:200] if raised.strip() else ""
    if not error and code not in (0, None):
        error = f"returncode {text_of(code)}"
    return Answered(
        id=text_of(message.get("tool_call_id")) or None,
        text=content_of(message.get("content")),
        error=error,
        at=at,
    )


def _end(info: dict[str, Any], replies: int, ended: bool) -> Iterator[Said]:
    recorded = text_of(info.get("exit_status"))
    detail = text_of(info.get("exception_str"))
    failed = bool(recorded) and recorded.lower() not in COMPLETED | CAPS
    if failed:
        yield Erred(recorded, detail)
    asked = count_of(mapping(info.get("model_stats")).get("api_calls"))
    if asked > replies:
        yield Noticed("reply_lost", detail=f"{asked} model calls counted, {replies} replies recorded")
    if info.get("traceback"):
        yield Unplaced("traceback")
    if info.get("submission"):
        yield Unplaced("submission")
    if recorded and not ended:
        yield Noticed("no_exit_message", detail="the status is in `info` alone")
    if recorded.lower() in CAPS:
        yield Ended(recorded=recorded, status="step_cap")
    elif failed:
        yield Ended(recorded=recorded, status="failed", error=recorded)
    else:
        yield Ended(recorded=recorded or "none recorded", status="completed" if recorded else "")


def _command(text: str) -> Call:
    return Call("bash", text)


def _bare(source: Source) -> Iterator[Said]:
    """The older form. A result is a user message, and the submission is one too: the last."""
    yield Began(source.name)
    waiting: dict[str, Any] | None = None
    asked = False
    for value in source.items("item"):
        message = mapping(value)
        if waiting is not None:
            yield from _bare_turn(waiting, asked)
            asked = waiting.get("role") == "assistant" and bool(_commands(waiting))
        waiting = message
    yield from source.noticed()
    if waiting is None:
        yield Ended(recorded="none recorded")
        return
    last = content_of(waiting.get("content"))
    yield from _bare_turn(waiting, asked)
    if waiting.get("role") == "user" and asked and not _RETURN_CODE.match(last):
        yield Ended(
            recorded="last message is the submission (no status field)",
            status="completed",
            inferred="the last command's output is not a return code but what it submitted",
        )
    else:
        yield Ended(recorded="none recorded")


def _commands(message: dict[str, Any]) -> list[str]:
    return _BLOCK.findall(content_of(message.get("content")))


def _bare_turn(message: dict[str, Any], asked: bool) -> Iterator[Said]:
    text = content_of(message.get("content"))
    match message.get("role"):
        case "assistant":
            commands = _commands(message)
            yield Replied(text=text, calls=tuple(_command(command.strip("\n")) for command in commands))
            if len(commands) != 1:
                yield Noticed("reply_without_call", detail=f"{len(commands)} command blocks")
        case "user" if asked:
            code = _RETURN_CODE.match(text)
            failed = code is not None and code[1] != "0"
            yield Answered(text=text, error=f"returncode {code[1]}" if code and failed else "")
        case "user" | "system":
            yield Spoke(text_of(message.get("role")), text)
        case role:
            yield Unplaced(f"message of role {text_of(role) or 'none'}")
