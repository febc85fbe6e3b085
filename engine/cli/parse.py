"""`stepfold parse`: the action contract alone, for one reply or for a file of them."""

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import click

from stepfold.engine.contract.envelope import Action, parse_action
from stepfold.engine.contract.repair import repair_for
from stepfold.engine.contract.schemas import TOP_LEVEL
from stepfold.engine.contract.tool_lists import ToolsError, listed_tools
from stepfold.engine.contract.validators import SchemaError, Validator, compile_schema

_EPILOG = """\b
Examples:
  echo '{"name": "finish", "arguments": {"summary": "done"}}' | stepfold parse
  stepfold parse --jsonl replies.jsonl > verdicts.jsonl
  stepfold parse --tools my_tools.json reply.txt

\b
Exit codes: 0 an action (with --jsonl: every line was read), 1 rejected,
2 the input can't be read.
"""


class Unreadable(click.ClickException):
    """Input that can't be read: one line on stderr, exit code 2."""

    exit_code = 2


@click.command(epilog=_EPILOG)
@click.argument("file", default="-", metavar="[FILE]")
@click.option("--tools", "tools_file", metavar="FILE", help="JSON array of tools that replaces the eight.")
@click.option("--jsonl", "by_line", is_flag=True, help='Read a {"raw": ...} or {"raw_b64": ...} per line.')
@click.option("--json", "for_machines", is_flag=True, help="One line of JSON, and no repair text on stderr.")
def parse(file: str, tools_file: str | None, by_line: bool, for_machines: bool) -> None:
    """Check a model's reply against the strict action contract.

    Reads FILE (or stdin) as one whole reply, and prints its action, or the error and, on stderr, what a
    model would be told.
    """
    schemas = TOP_LEVEL if tools_file is None else _tools(tools_file)
    with _opened(file) as replies:
        if by_line:
            _print_verdicts(file, replies, schemas)
            return
        reply = _read(file, replies)
    parsed = parse_action(reply, schemas)
    click.echo(json.dumps(_verdict(parsed), indent=None if for_machines else 2))
    if isinstance(parsed, Action):
        return
    if not for_machines:
        click.echo(repair_for(parsed), err=True)
    sys.exit(1)


def _opened(file: str) -> Any:
    try:
        return click.open_file(file, "rb")
    except OSError as failure:
        raise _unreadable(file, failure) from None


def _read(file: str, replies: BinaryIO) -> bytes:
    try:
        return replies.read()
    except OSError as failure:
        raise _unreadable(file, failure) from None


def _unreadable(file: str, failure: OSError) -> Unreadable:
    return Unreadable(f"{file}: {failure.strerror or failure}; name a file that can be read, or - for stdin")


def _verdict(parsed: Any) -> dict[str, Any]:
    if isinstance(parsed, Action):
        return {"action": {"name": parsed.name, "arguments": parsed.arguments}}
    return {"error": parsed.error, "detail": parsed.detail}


def _print_verdicts(file: str, lines: Iterable[bytes], schemas: Mapping[str, Validator]) -> None:
    for number, line in enumerate(_lines(file, lines), start=1):
        if line.strip():
            identity, reply = _raw_reply(file, number, line)
            click.echo(json.dumps(identity | _verdict(parse_action(reply, schemas))))


def _lines(file: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    try:
        yield from lines
    except OSError as failure:
        raise _unreadable(file, failure) from None


def _raw_reply(file: str, number: int, line: bytes) -> tuple[dict[str, Any], str | bytes]:
    try:
        entry = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as failure:
        raise _broken(file, number, f"is not JSON ({failure})") from None
    match entry:
        case {"raw": str(text)}:
            return _identity(entry), text
        case {"raw_b64": str(encoded)}:
            return _identity(entry), _decoded(file, number, encoded)
        case _:
            raise _broken(file, number, 'has neither a string "raw" nor a string "raw_b64"')


def _identity(entry: dict[str, Any]) -> dict[str, Any]:
    return {"id": entry["id"]} if "id" in entry else {}


def _decoded(file: str, number: int, encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as failure:
        raise _broken(file, number, f'has a "raw_b64" that is not base64 ({failure})') from None


def _broken(file: str, number: int, why: str) -> Unreadable:
    return Unreadable(f'{file}, line {number}: {why}; every line must be {{"raw": "..."}}')


def _tools(file: str) -> dict[str, Validator]:
    try:
        entries = listed_tools(Path(file).read_bytes(), file)
    except OSError as failure:
        raise Unreadable(f"{file}: {failure.strerror or failure}; name a file of tools") from None
    except ToolsError as failure:
        raise Unreadable(str(failure)) from None
    return dict(_tool(file, number, entry) for number, entry in enumerate(entries, start=1))


def _tool(file: str, number: int, entry: Any) -> tuple[str, Validator]:
    match entry:
        case {"type": "function", "function": {"name": str()} as described}:
            pass
        case {"name": str()} as described:
            pass
        case _:
            raise Unreadable(f'{file}, tool {number}: has no "name"; write {{"name": ..., "schema": ...}}')
    keys = ("schema", "parameters", "inputSchema")
    schema = next((described[key] for key in keys if key in described), {"type": "object"})
    try:
        return described["name"], compile_schema(json.dumps(schema).encode())
    except SchemaError as failure:
        raise Unreadable(f"{file}, tool {number} ({described['name']!r}): {failure}") from None
