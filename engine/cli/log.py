"""`stepfold log`: the events of a run, whether they are what was written, and sealing an edited log anew."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec

from stepfold.engine.cli.output import note, raw, say
from stepfold.engine.cli.reading import Located, existing_store, located
from stepfold.engine.runtime.run_log import RunLog
from stepfold.events.integrity import Integrity, check
from stepfold.events.integrity import reseal as seal_anew
from stepfold.events.run_store import RunStore
from stepfold.events.store import Store
from stepfold.events.texts import LostText, TextFolder, TextOf, inlined, may_name_texts
from stepfold.projections.ending import ends_run

POLL_SECONDS = 0.2
_TAIL_BYTES = 64 * 1024
DAMAGED = 2


@click.command(epilog="Example: stepfold log last | head -3")
@click.argument("run_id", metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on as the run goes on, until it ends.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="The last N events alone.")
@click.option("--verify", is_flag=True, help="Compare each line with its seal, and with SQLite, instead.")
@click.option("--reseal", metavar="WHY", help="Accept what was edited by hand: seal it anew, and say why.")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="With --verify or --reseal: JSON on stdout.")
def log(
    run_id: str,
    follow: bool,
    last: int | None,
    verify: bool,
    reseal: str | None,
    store: str | None,
    for_machines: bool,
) -> int:
    """The events of RUN, one a line, byte for byte as recorded.

    Large texts stand in their lines, so that a file of what is printed is a log by itself.

    Exit codes of --verify: 0 whole, or from before there were seals; 2 damaged, or of a newer version.
    """
    if follow + verify + (reseal is not None) > 1:
        raise click.UsageError("--follow, --verify and --reseal are three things: name one")
    if last is not None and (verify or reseal is not None):
        raise click.UsageError("--last: a log is compared and sealed as a whole")
    found = located(run_id, store)
    with existing_store(store) if found.store else nullcontext() as opened:
        if verify:
            return _verify(found, opened, for_machines)
        if reseal is not None:
            return _reseal(found, opened, reseal, for_machines)
        first = 0 if last is None else start_of_last(found.trace, last)
        text_of = TextFolder(found.trace).text_of
        for line in _growing(found, opened, first) if follow else _whole(found.trace, first):
            raw(_with_its_texts(found.trace, line, text_of))
    return 0


def _verify(run: Located, store: RunStore | None, for_machines: bool) -> int:
    found = check(run.trace, None if store is None else store.kept(run.run_id))
    if for_machines:
        click.echo(json.dumps(found.as_json()))
    else:
        _show(found, "" if store is None else store.keeper)
    return 0 if found.verdict in {"whole", "unsealed"} else DAMAGED


def _show(found: Integrity, keeper: str) -> None:
    fine = found.verdict in {"whole", "unsealed"}
    say(f"{found.verdict:<10}{found.trace}  {found.events} events", fg="green" if fine else "red")
    if found.verdict == "unsealed":
        say("          written before lines were sealed: only their order can be checked")
    for finding in found.findings:
        say(f"  line {finding.line} (seq {finding.seq}): {finding.why}")
    if found.torn_bytes:
        say(f"  the last line is torn ({found.torn_bytes} bytes), as a crash leaves it; resume cuts it off")
    if found.store:
        say(f"  {keeper} {found.store}")


def _reseal(run: Located, store: RunStore | None, why: str, for_machines: bool) -> int:
    if not why.strip():
        raise click.UsageError('--reseal: say why, for whoever reads the log: --reseal "shortened the goal"')
    trace = run.trace
    if store is not None and not isinstance(store, Store):
        raise click.UsageError(f"--reseal: {store.name} keeps what was written; its runs can't be edited")
    said = seal_anew(trace, why)
    if store is not None:
        with RunLog(store, run.run_id) as opened:
            opened.recorded()
    if for_machines:
        click.echo(json.dumps({"trace": str(trace), "resealed": msgspec.to_builtins(said)}))
    elif said is None:
        say(f"whole     {trace}: nothing to seal anew")
    else:
        say(f"resealed  {trace} from seq {said.seq} on; its RunStarted says so, and why")
    return 0


def start_of_last(trace: Path, count: int) -> int:
    """The byte at which the last `count` lines of a file begin, read from its end alone."""
    with trace.open("rb") as file:
        begin = file.seek(0, os.SEEK_END)
        tail = b""
        while begin:
            step = min(begin, max(_TAIL_BYTES, len(tail)))
            begin -= step
            file.seek(begin)
            tail = file.read(step) + tail
            # A line feed at the very end ends the last line, and begins none.
            lines = tail.removesuffix(b"\n").rsplit(b"\n", count)
            if len(lines) > count:
                return begin + len(lines[0]) + 1
    return 0


def _with_its_texts(trace: Path, line: bytes, text_of: TextOf) -> bytes:
    """A line that stands in a file of its own, for what is printed may be put into one."""
    if not may_name_texts(line):
        return line
    try:
        return inlined(line, text_of)
    except LostText as lost:
        note(f"{trace}: {lost}; see `stepfold log {trace} --verify`")
        return line


def _whole(trace: Path, first: int) -> Iterator[bytes]:
    with trace.open("rb") as file:
        file.seek(first)
        yield from file


def _growing(run: Located, store: RunStore | None, first: int) -> Iterator[bytes]:
    """Whole lines as they are written; a line still being written waits."""
    pending = b""
    with run.trace.open("rb") as file:
        file.seek(first)
        while True:
            piece = file.readline()
            pending += piece
            if pending.endswith(b"\n"):
                yield pending
                if ends_run(pending):
                    return
                pending = b""
            elif not piece:
                time.sleep(POLL_SECONDS)
                if store is not None:
                    # Where the file is a copy, this brings it up to date.
                    store.path_of(run.run_id)
