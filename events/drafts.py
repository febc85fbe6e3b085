"""Files that are there whole or not at all: written beside their place, and then put into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident


@contextmanager
def drafted(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Where to write what is to stand at `path`. It takes that place when the block ends, and nothing is left
    of it when the block fails. `mode` is its permissions, less what the umask takes. Raises OSError.
    """
    # Two threads may write the same file at the same time, and one must not find the draft of the other.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
    try:
        # A killed process of the same number may have left one.
        draft.unlink(missing_ok=True)
        draft.touch(mode, exist_ok=False)
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()
