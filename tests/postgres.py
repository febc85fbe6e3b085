"""A PostgreSQL server of the tests' own: from Debian's package, in a folder of its own, on a socket alone."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

PASSWORD = "not for anybody's eyes"


def program(name: str) -> str:
    """Where a program of the server lies; "" when it isn't installed."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name) or ""


@contextmanager
def server() -> Iterator[Path]:
    """A running server; the folder of its socket."""
    if not (program("initdb") and program("postgres")):
        pytest.skip("PostgreSQL's server is not installed: apt install postgresql")
    # The server refuses to run as root, and its socket's path may not be long.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="stepfold-pg-", dir="/tmp"))
    if user:
        shutil.chown(folder, user)
    ended = shutil.which("setpriv")
    try:
        data = folder / "data"
        subprocess.run(
            [program("initdb"), "--auth=trust", "--username=stepfold", "--no-sync", "--pgdata", data],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        (data / "pg_hba.conf").chmod(0o600)
        running = subprocess.Popen(
            [
                *([ended, "--pdeathsig", "QUIT"] if ended else []),
                *(program("postgres"), "-D", data, "-k", folder, "-c", "listen_addresses="),
                *("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=60"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user,
            cwd=folder,
        )
        try:
            _await(folder)
            yield folder
        finally:
            running.send_signal(3)
            running.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(folder: Path) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(address(folder, "postgres")).close()
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def address(folder: Path, database: str) -> str:
    """The URL of a database of the server whose socket is in `folder`."""
    return f"postgresql://stepfold@/{database}?host={folder}"


def new_database(folder: Path, name: str) -> str:
    """The URL of an empty database of that name."""
    with psycopg.connect(address(folder, "postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return address(folder, name)
