# Two commands from a bare clone: `make demo` and `make test`. Both need Python 3.11+ and make, no root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench install install-dev clean

demo: install
	$(BIN)/stepfold demo

test: install-dev check
	$(BIN)/python -m pytest -n 2

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	PYTHONPATH=.links $(BIN)/lint-imports

bench: install-dev
	$(BIN)/python tests/bench/run.py

install: $(VENV)/installed
install-dev: $(VENV)/installed-dev

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stepfold needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
