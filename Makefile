# Two commands on a fresh machine: `make demo` serves the app, `make test` checks everything.

PYTHON ?= python3
VENV   ?= .venv
VLLM   ?= .venv-vllm
AUDIT  ?= .venv-audit
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all test-vllm test-clients lint types unit long audit browser clean

demo: $(VENV)/app
	$(BIN)/python app.py

test: lint types unit

# What releases run: the long tests and the audit too; where the audit cannot be made, that is told at the end.
test-all: test long $(AUDIT)/made
	$(PYTHON) -m tests.audit --told $(AUDIT)/bin/pip-audit

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

types: $(VENV)/dev
	$(BIN)/mypy

# One process per core, and one thread each for the libraries below, or they would compete for the cores.
# Tests of one file run in one process: they share servers and models.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rfER --rerun-show-tracebacks --numprocesses auto --dist loadfile

unit: $(VENV)/dev browser
	$(PYTEST) -m "not long"

long: $(VENV)/dev browser
	$(PYTEST) -m long

# Known vulnerabilities of the pinned libraries, by pip-audit in an environment of its own. Fails where it cannot be asked.
audit: $(AUDIT)/made
	$(PYTHON) -m tests.audit $(AUDIT)/bin/pip-audit

$(AUDIT)/made: tests/audit.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/audit.txt
	touch $@

# The proposer in a real vLLM, which needs libraries of its own versions. It is made for the CPU and takes 4 GB.
test-vllm: $(VLLM)/made
	ulimit -v 16777216 && LD_PRELOAD=$(abspath $(VLLM))/lib/libiomp5.so $(VLLM)/bin/python -m pytest -rfE --noconftest --timeout 1200 tests/vllm_engine.py

$(VLLM)/made: requirements-vllm.txt
	@echo "Installing vLLM into $(VLLM): some minutes, once."
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-vllm.txt
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# Programs that people use with such servers, each in an environment of its own, against a real server.
CLIENTS := openai aiperf guidellm lm-eval trackio

test-clients: $(VENV)/dev $(CLIENTS:%=.clients/%/done)
	$(BIN)/python -m tests.clients

.clients/%/done: tests/clients/%.txt
	$(PYTHON) -m venv .clients/$*
	.clients/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

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
	rm -rf $(VENV) $(VLLM) $(AUDIT) .clients .pytest_cache .mypy_cache .ruff_cache .hypothesis
