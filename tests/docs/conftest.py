"""`python -m pytest tests/docs --update-diagrams` draws the diagrams of ARCHITECTURE.md anew."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-diagrams", action="store_true", help="Draw them anew.")
