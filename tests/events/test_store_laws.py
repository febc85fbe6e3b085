"""Every store keeps the laws that `stepfold.testing` has for one."""

from pathlib import Path

import pytest

from stepfold.events.postgres import PostgresStore
from stepfold.events.store import Store
from stepfold.testing import STORE_LAWS
from tests.postgres import new_database


@pytest.mark.parametrize("law", STORE_LAWS, ids=lambda law: law.__name__)
def test_a_folder_keeps_the_law(law, tmp_path: Path) -> None:
    law(lambda: Store(tmp_path / "store"))


@pytest.mark.parametrize("law", STORE_LAWS, ids=lambda law: law.__name__)
def test_postgresql_keeps_the_law(law, socket: Path, tmp_path: Path) -> None:
    url = new_database(socket, "laws")

    law(lambda: PostgresStore(url, tmp_path / "copies"))


@pytest.mark.parametrize("law", STORE_LAWS, ids=lambda law: law.__name__)
def test_postgresql_keeps_the_law_over_two_machines(law, socket: Path, tmp_path: Path) -> None:
    """Each opening has a folder of copies of its own, as on another machine."""
    url = new_database(socket, "machines")
    numbers = iter(range(1000))

    law(lambda: PostgresStore(url, tmp_path / str(next(numbers))))
