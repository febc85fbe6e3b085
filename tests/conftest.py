"""What tests of several folders need, made once for all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def socket() -> Iterator[Path]:
    """The folder of the socket of a running PostgreSQL; skips where its server is not installed."""
    from tests.postgres import server

    with server() as folder:
        yield folder
