"""What a store is: the one interface that runs are written to and read from, whatever keeps them.

`stepfold.testing.STORE_LAWS` says in tests what the words here promise; a store of one's own that keeps
those laws serves everywhere one is asked for. Ours are `stepfold.events.store.Store` (a folder) and
`stepfold.events.postgres.PostgresStore` (a database that machines share).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from stepfold.events.journal import Log
from stepfold.events.reconcile import Repair

SUITES = "evals"
"""The folder, in that of a store, which has one for each suite that was evaluated there."""

TRIAL_DIGEST = 8
"""Hex digits at the end of the id of a run that an evaluation made."""


class StoreError(Exception):
    """A store that can't be used: where, why, what to do."""


class RunWriter(Protocol):
    """The append side of one run, held by one writer at a time until it is closed.

    Every method but `close` raises LogError when the store can't do it; what was recorded stays whole.
    """

    @property
    def path(self) -> Path:
        """The file that `RunStore.path_of` gives for this run, to name it in messages."""
        ...

    @property
    def synced_with(self) -> object:
        """Writers for which one `sync` is good, whichever of them is asked, have the same one."""
        ...

    def begin(self) -> None:
        """For a run that is new: raises LogError when anything is recorded under its id."""
        ...

    def recorded(self) -> tuple[Log, Repair]:
        """All that is recorded of the run, and what had to be mended to read it. Raises LogError."""
        ...

    def append(self, lines: Sequence[bytes]) -> None:
        """Add a batch of lines (without line feeds): all of them or none, and only behind the line that
        this writer wrote or read last. When it returns, a killed process loses none of them.
        """
        ...

    def step_ended(self) -> None:
        """The run's step ended with the last batch: for what a store does a step at a time."""
        ...

    def sync(self) -> None:
        """Return when a machine that loses its power would lose nothing that was appended.

        It may be called from another thread, while nothing is appended.
        """
        ...

    def rest(self) -> None:
        """The run rests: `step_ended`, `sync`, and whatever else this store had put off."""
        ...

    def close(self) -> None:
        """Release the run."""
        ...


class RunStore(Protocol):
    """A place for runs. Close it, or use it as a context manager."""

    @property
    def name(self) -> str:
        """How people are told of it: never with a password."""
        ...

    @property
    def keeper(self) -> str:
        """The program that keeps what `kept` gives, as people know it."""
        ...

    @property
    def folder(self) -> Path:
        """A folder of this machine for what belongs to a store and is no run: memory, undo, suites."""
        ...

    def __enter__(self) -> "RunStore": ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Release what the store holds; its writers are closed by those who opened them."""
        ...

    def path_of(self, run_id: str) -> Path:
        """A file of this machine that holds the run's log as it stands now, a line an event; no file is
        there when nothing is recorded. Raises StoreError for what is no run id.
        """
        ...

    def logs(self) -> Path:
        """A folder of this machine in which `runs/RUN.jsonl` holds every run as it stands: for DuckDB."""
        ...

    def holds(self, run_id: str) -> bool:
        """Whether anything of this run is recorded."""
        ...

    def run_ids(self) -> list[str]:
        """All runs of which anything is recorded, sorted."""
        ...

    def find(self, text: str) -> str:
        """The run that `text` names: its id, an unambiguous start of it, or `last`. Raises StoreError."""
        ...

    def kept(self, run_id: str) -> Iterator[bytes]:
        """The run's lines as `keeper` holds them: what `stepfold log --verify` compares the file with."""
        ...

    def is_being_written(self, run_id: str) -> bool:
        """Whether a writer, of whichever process, holds the run now."""
        ...

    def writer(self, run_id: str) -> RunWriter:
        """The append side of a run. Raises LogError when another writer holds it."""
        ...

    def remove(self, run_id: str) -> None:
        """Forget a run, of which nothing need be there. Raises LogError when a writer holds it."""
        ...

    def summary(self, run_id: str) -> str | None:
        """The summary that was kept of a run, if its log has not grown since."""
        ...

    def keep_summary(self, run_id: str, summary: str) -> None:
        """Keep a summary of a run as it stands. It may be lost: it can be made anew."""
        ...


def require_run_id(run_id: str) -> None:
    """Raises StoreError for an id that can't be the name of a file in a folder."""
    if not run_id or run_id in {".", ".."} or any(mark in run_id for mark in "/\\\0"):
        raise StoreError(f"{run_id!r} is no run id: it may not be empty or hold a slash")


def found_among(
    run_ids: Iterable[str], text: str, newest: Callable[[Sequence[str]], str], where: str, suites: Path
) -> str:
    """The run that `text` names among these; `newest` tells the one written last, and `suites` is the folder
    SUITES of the store. Raises StoreError.
    """
    ids = list(run_ids)
    if text in ids:
        return text
    # A run that another one started has the other's id, a dot and its place: it is asked for whole.
    roots = set(ids)
    ids = [run_id for run_id in ids if "." not in run_id or run_id.partition(".")[0] not in roots]
    if text == "last" and ids:
        # An evaluation makes hundreds of runs, and none of them is the one that a person has just made.
        trials = _trials(suites)
        return newest([run_id for run_id in ids if not trials.match(run_id)] or ids)
    found = [run_id for run_id in ids if text and run_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise StoreError(f"{text!r} names {len(found)} runs: {', '.join(found[:5])}; write more of the id")
    raise StoreError(f"no run {text!r} in {where}; `stepfold runs` lists what is there")


def _trials(suites: Path) -> re.Pattern[str]:
    """The ids of the runs of evaluations: the suite's name in front, and a digest at the end."""
    names = "|".join(re.escape(folder.name) for folder in suites.glob("*"))
    return re.compile(rf"(?:{names})-.*-[0-9a-f]{{{TRIAL_DIGEST}}}$" if names else r"(?!)", re.DOTALL)
