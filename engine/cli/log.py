"""`stepfold log`: the events of a run, whether they are what was written, and sealing an edited log anew."""

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec

from stepfold.engine.cli.output import raw, say
from stepfold.engine.cli.reading import located
from stepfold.engine.runtime.run_log import RunLog
from stepfold.events.integrity import Integrity, check
from stepfold.events.integrity import reseal as seal_anew
from stepfold.events.store import Store
from stepfold.projections.ending import ends_run

POLL_SECONDS = 0.2
DAMAGED = 2


@click.command(epilog="Example: stepfold log last | head -3")
@click.argument("run_id", metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on as the run goes on, until it ends.")
@click.option("--verify", is_flag=True, help="Compare each line with its seal, and with SQLite, instead.")
@click.option("--reseal", metavar="WHY", help="Accept what was edited by hand: seal it anew, and say why.")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="With --verify or --reseal: JSON on stdout.")
def log(
    run_id: str, follow: bool, verify: bool, reseal: str | None, store: str | None, for_machines: bool
) -> int:
    """The events of RUN, one a line, byte for byte as recorded.

    Exit codes of --verify: 0 whole, or from before there were seals; 2 damaged, or of a newer version.
    """
    if follow + verify + (reseal is not None) > 1:
        raise click.UsageError("--follow, --verify and --reseal are three things: name one")
    trace, folder = located(run_id, store)
    if verify:
        return _verify(trace, folder, for_machines)
    if reseal is not None:
        return _reseal(trace, folder, reseal, for_machines)
    for lines in _growing(trace) if follow else _whole(trace):
        raw(lines)
    return 0


def _verify(trace: Path, folder: Path | None, for_machines: bool) -> int:
    with Store(folder) if folder is not None else nullcontext() as store:
        found = check(trace, None if store is None else store.index(trace.stem))
    if for_machines:
        click.echo(json.dumps(found.as_json()))
    else:
        _show(found)
    return 0 if found.verdict in {"whole", "unsealed"} else DAMAGED


def _show(found: Integrity) -> None:
    fine = found.verdict in {"whole", "unsealed"}
    say(f"{found.verdict:<10}{found.trace}  {found.events} events", fg="green" if fine else "red")
    if found.verdict == "unsealed":
        say("          written before lines were sealed: only their order can be checked")
    for finding in found.findings:
        say(f"  line {finding.line} (seq {finding.seq}): {finding.why}")
    if found.torn_bytes:
        say(f"  the last line is torn ({found.torn_bytes} bytes), as a crash leaves it; resume cuts it off")
    if found.store:
        say(f"  SQLite {found.store}")


def _reseal(trace: Path, folder: Path | None, why: str, for_machines: bool) -> int:
    if not why.strip():
        raise click.UsageError('--reseal: say why, for whoever reads the log: --reseal "shortened the goal"')
    said = seal_anew(trace, why)
    if folder is not None:
        with Store(folder) as store, RunLog(store, trace.stem) as opened:
            opened.recorded()
    if for_machines:
        click.echo(json.dumps({"trace": str(trace), "resealed": msgspec.to_builtins(said)}))
    elif said is None:
        say(f"whole     {trace}: nothing to seal anew")
    else:
        say(f"resealed  {trace} from seq {said.seq} on; its RunStarted says so, and why")
    return 0


def _whole(trace: Path) -> Iterator[bytes]:
    with trace.open("rb") as file:
        yield from file


def _growing(trace: Path) -> Iterator[bytes]:
    """Whole lines as they are written; a line still being written waits."""
    pending = b""
    with trace.open("rb") as file:
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
