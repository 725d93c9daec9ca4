# Two commands on a fresh machine: `make demo` serves the app, `make test` checks everything.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all lint types unit long browser clean

demo: $(VENV)/app
	$(BIN)/python app.py

test: lint types unit

# What releases run: the long tests too.
test-all: test long

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

types: $(VENV)/dev
	$(BIN)/mypy

# One process per core, and one thread each for the libraries below, or they would compete for the cores.
# Tests of one file run in one process: they share servers and models.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rfER --numprocesses auto --dist loadfile

unit: $(VENV)/dev browser
	$(PYTEST) -m "not long"

long: $(VENV)/dev browser
	$(PYTEST) -m long

# The browser tests take the system's Chromium, else fetch one, else fail and say what to install.
browser: $(VENV)/dev
	$(BIN)/python tests/browser/find_chromium.py

$(VENV)/app: requirements.txt constraints.txt
	@echo "Installing into $(VENV): some minutes, once."
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt
	touch $@

$(VENV)/dev: $(VENV)/app requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
