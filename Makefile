# Everything a person needs: `make demo`, `make test`. CI calls the same targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMP := $(VENV)/.installed
TORCH := $(VENV)/.torch

.PHONY: help demo test lint fix bench docs soak ui-test real-cluster test-real clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(UV):
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "rowlock needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": set PYTHON=python3.12 (or later) on the make command line"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(STAMP): pyproject.toml $(UV)
	$(UV) pip install --quiet --python $(BIN)/python -e '.[dev]'
	@touch $@

$(TORCH): $(STAMP)
	@echo 'installing torch (about 5 GB on disk; once)'
	$(UV) pip install --quiet --python $(BIN)/python -e '.[torch]'
	@touch $@

demo: $(TORCH) ## a real 2-rank PyTorch DDP job from the seeds on an embedded cluster
	@$(BIN)/python examples/demo.py

test: $(TORCH) ## every test this machine can run; says what it skipped and why
	$(BIN)/python -m pytest -rs tests

lint: $(STAMP) ## format, lint, types
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/mypy

fix: $(STAMP) ## let ruff repair what it can
	$(BIN)/ruff check --fix src tests benchmarks scripts
	$(BIN)/ruff format src tests benchmarks scripts

bench: $(TORCH) ## measure, print ratios, write docs/benchmarks.md
	$(BIN)/python -m benchmarks

docs: $(STAMP) ## regenerate the generated pages (command reference)
	$(BIN)/python scripts/make_cli_reference.py

soak: $(STAMP) ## 100,000 simulated histories
	ROWLOCK_SEEDS=100000 $(BIN)/python -m pytest -q tests/simulation --timeout 0

ui-test: $(STAMP) ## the web UI in a real browser
	@echo 'there is no web UI yet: see the CHANGELOG'; exit 1

real-cluster: $(STAMP) ## build a real Kubernetes control plane from Go modules, for tests (cached)
	$(BIN)/python scripts/real_cluster build

test-real: $(STAMP) ## the conformance suite against that control plane
	$(BIN)/python -m pytest -rs tests/conformance -k real

clean: ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
