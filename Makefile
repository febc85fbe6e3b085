# Two commands from a bare clone: `make demo` and `make test`. Both need Python 3.11+ and make, no root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What else lies in the clone, a project that was tried out in it, is nobody's to judge.
OURS := engine events projections tests .links

.PHONY: demo test test-ray check nightly bench bench-peers mutants install install-dev clean

demo: install
	$(BIN)/stepfold demo

test: install-dev check
	$(BIN)/python -m pytest -n 2

check: install-dev
	$(BIN)/ruff check $(OURS)
	$(BIN)/ruff format --check $(OURS)
	$(BIN)/mypy
	$(BIN)/pyright
	PYTHONPATH=.links $(BIN)/lint-imports

# 100,000 examples of each target of the fuzzer, and half an hour of coverage-guided search: for a night.
nightly: install-dev
	STEPFOLD_EXAMPLES=100000 $(BIN)/python -m pytest -n 2 tests/engine/testing/test_invariants_hold.py
	$(BIN)/python tests/coverage_guided/contract.py -max_total_time=900 tests/coverage_guided/contract_corpus
	$(BIN)/python tests/coverage_guided/codec.py -max_total_time=900 tests/coverage_guided/codec_corpus

# Every ratio of docs/performance.md in one run; with `ARGUMENTS=--write` the table goes into that page.
bench: install-dev
	$(BIN)/python tests/bench/run.py $(ARGUMENTS)
	$(BIN)/python tests/bench/crowd.py $(ARGUMENTS)
	$(BIN)/python tests/bench/growth.py $(ARGUMENTS)
	$(BIN)/python tests/bench/fleet.py $(ARGUMENTS)

# Beside other libraries, each of them installed into an environment of its own below .bench/.
bench-peers: install-dev
	$(BIN)/python tests/bench/peers/compare.py $(ARGUMENTS)

# Ray is some 300 MB, so the rest of the suite does without it.
test-ray: install-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]' 'ray[data]>=2.40'
	$(BIN)/python -m pytest tests/engine/cli/test_on_ray.py tests/projections/sql/test_export_on_ray.py

mutants: install-dev
	$(BIN)/python tests/mutation/run.py

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
# The published models of ATIF alone: the package asks for Python 3.12 and much more than them.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python 'harbor>=0.26'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
