# Everything a person needs: `make demo`, `make test`. CI calls the same targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
LOCK := constraints.txt
INSTALL = $(UV) pip install --quiet --python $(BIN)/python --constraints $(LOCK) --build-constraints $(LOCK)
STAMP := $(VENV)/.installed
TORCH := $(VENV)/.torch
FRAMEWORKS := $(VENV)/.frameworks
# How many processes share the tests (0: this one alone). Those of `make test` wait for their servers half of the time: three keep two cores
# busy. Those with a control plane, a browser or training run in two.
WORKERS ?= 3
REAL_WORKERS ?= 2
HEAVY_WORKERS ?= 2
UI_FILES := src/rowlock/browser/static
# Where it is set, every rank would compile its framework anew: nine seconds for each that imports TensorFlow, not three.
unexport PYTHONDONTWRITEBYTECODE
# uv trusts its own list of certificates by default, pip and git the system's: an index behind a company's proxy needs that one.
export UV_SYSTEM_CERTS ?= true

# Programs of others that make Jobs (docs/jobs.md), each in an environment of its own: their pins clash with ours and each
# other's. Where one cannot be installed, its test says so and is skipped.
JOB_MAKERS := .venv-luigi .venv-dagster .venv-airflow .venv-prefect

.PHONY: help demo test lint fix bench bench-ui docs soak hostile soak-live storm chaos property fuzz schemathesis ui ui-test ui-test-real real-cluster types test-real test-engines test-examples test-examples-needs verdicts looks verdicts-real frameworks test-containers test-cgroup2 test-python differential lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(UV):
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "rowlock needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": set PYTHON=python3.12 (or later) on the make command line"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) uv

$(STAMP): pyproject.toml $(LOCK) $(UV)
	$(INSTALL) --compile-bytecode -e '.[dev]'
	@$(BIN)/python -m compileall -q src # else the first server compiles everything, and keeps the memory
	@touch $@

$(TORCH): $(STAMP)
	@echo 'installing torch (about 5 GB on disk; once)'
	$(INSTALL) -e '.[torch]'
	@touch $@

$(FRAMEWORKS): $(TORCH)
	@echo 'installing TensorFlow, JAX, XGBoost, mpi4py, Transformers and Lightning (about 2 GB on disk; once)'
	$(INSTALL) -e '.[examples]'
	@touch $@

demo: $(TORCH) ## train a 2-rank PyTorch DDP job on an embedded cluster; a rank is killed and training resumes
	@$(BIN)/python examples/demo.py

test: $(TORCH) .venv-kubeflow-0.5.0 | .venv-luigi ## every test this machine can run but those of test-real; says what it skipped and why
	$(BIN)/python -m pytest -rs -n $(WORKERS) -m 'not real and not examples' tests

test-examples: $(FRAMEWORKS) | $(JOB_MAKERS) ## train every example: TensorFlow, PyTorch, JAX, XGBoost, MPI, Transformers, Lightning; programs that make Jobs; and a part of `make verdicts`
	$(BIN)/python -m pytest -rs -n $(HEAVY_WORKERS) -m examples tests/examples tests/diagnosis/test_verdicts.py tests/clients/test_job_makers.py

test-examples-needs: $(FRAMEWORKS) | $(JOB_MAKERS) # all that they install; .ci/run measures beside them

verdicts: $(FRAMEWORKS) ## run tests/diagnosis/programs and ask `why`: how often it is right, silent, wrong (VERDICTS=name: those alone)
	$(BIN)/python -m tests.diagnosis.verdicts $(VERDICTS)

looks: $(FRAMEWORKS) ## ask `why` of the healthy programs of that corpus again and again: no answer may be an alarm (LOOKS=1000, WITHIN=1800 s)
	$(BIN)/python -m tests.diagnosis.verdicts --looks $(or $(LOOKS),1000) --within $(or $(WITHIN),1800)

verdicts-real: $(FRAMEWORKS) ## the part of that corpus that can run on a real node (root; after `make real-cluster`; apt-get install containerd)
	$(BIN)/python -m tests.diagnosis.real_verdicts $(VERDICTS)

frameworks: $(FRAMEWORKS) ## the table of docs/frameworks.md, held against the frameworks themselves (fetches small ones)
	$(BIN)/python -m pytest -rs -m examples tests/frameworks

test-python: $(STAMP) ## the types, and the tests that need no torch, with another Python (PYTHON=/path/to/python3.13)
	scripts/test_python $(BIN) $(PYTHON)

test-containers: $(TORCH) ## pods in real containers: a dockerd of its own, where one is installed (apt-get install docker.io iptables)
	$(BIN)/python -m pytest -rs -m containers tests/containers

test-cgroup2: $(TORCH) ## limits of pods under control groups of version 2, in a kernel of its own (apt-get install user-mode-linux; as root)
	scripts/cgroup2.sh

lint: $(STAMP) ## format, lint, types
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/mypy

fix: $(STAMP) ## let ruff repair what it can
	$(BIN)/ruff check --fix src tests benchmarks scripts
	$(BIN)/ruff format src tests benchmarks scripts

bench: $(TORCH) ## measure, print ratios, write docs/benchmarks.md; BENCH=first-byte: that budget alone (BENCH=help names them), AGAINST=COMMIT: in turn with an older build
ifeq ($(BENCH),)
	$(BIN)/python scripts/real_cluster build --kwok --or-say # peers to stand beside
endif
	$(BIN)/python -m benchmarks $(BENCH:help=--help) $(AGAINST:%=--against=%)

bench-ui: $(STAMP) ## what the web UI promises, measured in a real browser (apt-get install chromium)
	$(INSTALL) -e '.[ui]'
	$(BIN)/python -m benchmarks.ui

.venv-luigi: PACKAGES = luigi==3.8.1 pykube-ng==23.6.0
.venv-dagster: PACKAGES = dagster-k8s==0.29.27
.venv-airflow: PACKAGES = apache-airflow==3.3.2 apache-airflow-providers-cncf-kubernetes==10.25.0
.venv-prefect: PACKAGES = prefect==3.9.1 prefect-kubernetes==0.8.0
$(JOB_MAKERS): $(UV)
	@echo 'installing $(PACKAGES) (once)'
	@$(UV) venv --quiet --clear $@ && $(UV) pip install --quiet --python $@/bin/python $(PACKAGES) || { rm -rf $@; echo '$(PACKAGES) cannot be installed here'; }

.runapy-1.218.0: $(STAMP) ## the older version of Run:ai's Python client, for tests/clients/test_runapy.py
	$(BIN)/uv pip install --quiet --target $@ --no-deps runapy==1.218.0

.venv-kubeflow-0.5.0: $(STAMP) $(LOCK) ## Kubeflow's SDK, for tests/clients/test_kubeflow_sdk.py: it cannot live beside kubeflow-training
	@$(BIN)/uv venv --quiet --clear $@
	@$(BIN)/uv pip install --quiet --python $@/bin/python --constraints $(LOCK) kubeflow==0.5.0 kubeflow-trainer-api==2.3.0 kubeflow-katib-api==0.19.0 || \
	{ rm -rf $@; echo 'kubeflow 0.5.0 could not be installed: the tests of it will be skipped'; }

.venv-schemathesis: $(STAMP)
	$(BIN)/uv venv --quiet $@
	$(BIN)/uv pip install --quiet --python $@/bin/python schemathesis

schemathesis: $(STAMP) .venv-schemathesis ## requests at random by the OpenAPI document of the REST API: about three minutes
	scripts/schemathesis.sh $(BIN) .venv-schemathesis/bin/schemathesis

docs: $(STAMP) ## regenerate what is generated: command reference, map of the rooms, the synchronous Python client
	$(BIN)/python scripts/make_cli_reference.py
	$(BIN)/python scripts/make_runai_table.py
	$(BIN)/python scripts/make_room_map.py
	$(BIN)/python scripts/make_sync_client.py
	$(BIN)/python scripts/make_ui_types.py
	$(BIN)/python scripts/make_chart.py

soak: $(STAMP) ## 100,000 seeds of the simulation, calm and contested (SEEDS=… FROM=… JOBS=…)
	$(BIN)/python -m tests.simulation.soak

property: $(STAMP) ## 100,000 random steps of the planner, every cycle checked
	ROWLOCK_STEPS=100000 $(BIN)/python -m pytest -q tests/scheduling/test_properties.py --timeout 0

fuzz: $(STAMP) ## ten minutes of requests and patches at random (FUZZ_SECONDS=… FUZZ_SEED=…)
	$(BIN)/python -m tests.fuzz

hostile: $(STAMP) ## ten minutes of odd pods against a live server, ten of valid objects near every limit (HOSTILE_SECONDS=… HOSTILE_SEED=…)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.hostile
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.hostile.limits

soak-live: $(STAMP) ## an hour of a user's week on a live server, with faults (SOAK_SECONDS=… SOAK_SEED=…)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.hostile.soak

chaos: $(STAMP) ## hurt ranks at random for ten minutes; every verdict must be right (CHAOS_SECONDS=… CHAOS_SEED=…)
	CHAOS_SECONDS=$${CHAOS_SECONDS:-600} $(BIN)/python -m pytest -q -s tests/end_to_end/test_chaos.py

ui: ## build the web UI from ui/ into the package (needs Node 20.19 or newer; users need none)
	scripts/ui_packages && cd ui && npm run --silent check && npm run --silent build

UI_PICTURES = $(CURDIR)/.build/ui-pictures
ui-test: $(STAMP) ## the web UI in a real browser (apt-get install chromium); where Node is, also that the built files are those of ui/
	$(INSTALL) -e '.[ui]'
	@command -v npm >/dev/null || { echo 'npm is not installed: that the built files are those of ui/ was not checked'; exit 0; }; \
	scripts/ui_packages; code=$$?; \
	if [ $$code -eq 3 ]; then echo 'That the built files are those of ui/ was not checked.'; exit 0; fi; \
	[ $$code -eq 0 ] && $(MAKE) --no-print-directory ui && git add --intent-to-add $(UI_FILES) && git diff --exit-code --stat $(UI_FILES)
	mkdir -p $(UI_PICTURES)
	ROWLOCK_UI_PICTURES=$(UI_PICTURES) $(BIN)/python -m pytest -rs -n $(HEAVY_WORKERS) -m 'not real' tests/ui
	@echo 'Screenshots of each page, light, dark and on a phone: $(UI_PICTURES)'

ui-test-real: $(STAMP) ## the tests of the web UI over a real control plane with a real node (root; apt-get install chromium containerd), too
	$(INSTALL) -e '.[ui]'
	$(BIN)/python -m pytest -rs -m real tests/ui

real-cluster: $(STAMP) ## build a real Kubernetes control plane from Go modules, for tests (cached)
	$(BIN)/python scripts/real_cluster build $(REAL_FLAGS)

types: $(STAMP) ## make the table of types again, from Kubernetes' Go modules (after a change of rowlock.KUBERNETES)
	$(BIN)/python scripts/make_types.py

test-real: $(STAMP) ## what needs that control plane: the suite of the API, kube/, the record of kubectl (the rest of these rooms is make test's)
	$(BIN)/python -m pytest -rs -n $(REAL_WORKERS) -m real tests/kube_evidence tests/conformance tests/kube tests/kubectl/test_recordings.py tests/operator_cases tests/differential tests/kube_operator tests/gangs tests/install tests/sweeps

test-engines: $(STAMP) ## the tests of the commands, of the REST API and of Run:ai's Python client over that control plane, too (two minutes)
	$(BIN)/python -m pytest -rs -n $(HEAVY_WORKERS) -m real tests/cli tests/rest tests/clients

storm: $(STAMP) ## the storm of test-real with longer faults: etcd stopped for 20 and 80 seconds (about five minutes)
	ROWLOCK_STORM=long $(BIN)/python -m pytest -rs -s tests/kube/acceptance/test_storm.py

differential: $(STAMP) ## play N=1000 random job histories against the real training operator, and compare
	$(BIN)/python -m tests.differential -n $(or $(N),1000) --seed $(or $(SEED),0)

lock: $(UV) ## renew constraints.txt after a change of pyproject.toml (LOCK_FLAGS=--upgrade: the newest of everything)
	$(UV) pip compile --quiet --universal --python-version 3.11 --all-extras --no-emit-index-url --annotation-style line \
	    --custom-compile-command 'make lock' $(LOCK_FLAGS) --output-file $(LOCK) pyproject.toml

clean: ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
