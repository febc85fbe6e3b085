"""The project of a trial on its way back from the machine that it was run on, as a tar in memory.

What a model did there is not to be trusted, and neither is the machine: nothing of it lands outside of the
folder that it is laid out in.
"""

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from warnings import warn

LARGEST_PROJECT = 64 << 20
"""Bytes: a larger project of a trial that did not pass stays where it was run, and is gone with it."""

_HEAD_BYTES = 1024
"""What a file takes of a tar beside its content, at least."""


class ProjectLeft(UserWarning):
    """Something of a trial's project was not brought back from the machine that it was run on."""


def tarred(project: Path) -> bytes:
    """The files, folders and links of a project as a tar; empty when they are more than LARGEST_PROJECT."""
    buffer = io.BytesIO()
    left = LARGEST_PROJECT
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in _entries(project):
            # What can't be read, or is gone by now, is left out: the rest is still worth a look.
            with suppress(OSError):
                state = path.lstat()
                left -= _HEAD_BYTES + (state.st_size if stat.S_ISREG(state.st_mode) else 0)
                if left < 0:
                    return b""
                # No pipe or device: nothing of it could be seen.
                if stat.S_IFMT(state.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                    tar.add(path, str(path.relative_to(project)), recursive=False)
    return buffer.getvalue()


def _entries(project: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(project):
        for name in (*folders, *files):
            yield Path(where, name)


def unpack(project: bytes, place: Path) -> None:
    """Lay out a project that came back. A link out of it, which a machine of the cluster may have put
    there, is left out. Warns ProjectLeft of what is not there.
    """
    if not project:
        text = (
            f"{place.parent.name}: its project is over {LARGEST_PROJECT >> 20} MiB and was not brought back"
        )
        warn(text, ProjectLeft, stacklevel=2)
        return
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(project)) as tar:
        for member in tar:
            try:
                tar.extract(member, place, filter="data")
            except (tarfile.FilterError, OSError) as error:
                text = f"{place.parent.name}: {member.name} of its project was not brought back: {error}"
                warn(text, ProjectLeft, stacklevel=2)
