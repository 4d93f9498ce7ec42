# The three that a newcomer needs: make install, make demo, make test. All else builds on them.
.DEFAULT_GOAL := help
.PHONY: help install demo clients test test-postgresql test-deep test-races test-tuning lint format lock bench bench-api bench-gateway bench-latency bench-scheduler bench-warm bench-runtime bench-dashboard screenshots test-preload test-cluster cluster cluster-down clean
SHELL := /bin/sh
PYTHON := .venv/bin/python
# python3 of the machine; it may be too old: check_machine.py then says what to do, or finds a newer one.
PYTHON3 ?= python3
# Processes that run tests. More than this machine's cores may be, since most long tests wait for other processes.
TEST_WORKERS ?= 4
# A worker that is done takes over from one that is not; tests/support/spreading.py gives each some of the long ones.
TEST_RUN = $(PYTHON) -m pytest -n $(TEST_WORKERS) --dist worksteal tests/cluster tests/chaos tests/acceptance tests/browser tests/integration tests/unit

help:
	@echo "make install   check this machine, make .venv, install (quick when nothing changed)"
	@echo "make demo      train a small GPT on two instances, end to end, on this machine"
	@echo "make test      install, then run every test"
	@echo "make test-postgresql  every test of a running service again, on a private PostgreSQL instead of SQLite"
	@echo "make test-deep the same, with many more examples of the property tests"
	@echo "make test-preload  compare scripts with torch in preloaded and in fresh processes"
	@echo "make test-races  1,000 stops while jobs start, 500 pools that end while they are taken, 90 s without a network"
	@echo "make test-tuning   search with Syne Tune's SageMaker backend over warm pools (some minutes)"
	@echo "make cluster   PostgreSQL, object store, service and workers in containers, and a job on two (WORKERS=4, …)"
	@echo "make cluster-down  remove them, with all that they hold"
	@echo "make test-cluster  that cluster under test, where a container engine answers or can be started (part of make test)"
	@echo "make lint      ruff and mypy"
	@echo "make bench     figures: API rates beside moto, the S3 gateway, latency under an upload, the scheduler"
	@echo "make bench-dashboard  100,000 jobs and a log of 1,000,000 lines in a real browser: first paint, filter, scrolling, memory"
	@echo "make screenshots  each view of the dashboard, light and dark, for a phone and a desk"
	@echo "make bench-runtime  sharded training and collectives over limited links (root; about an hour)"
	@echo "make lock      write down the versions that are installed now"

install:
	@command -v $(PYTHON3) >/dev/null || { echo "cannot install: no $(PYTHON3) on PATH; install Python 3.11 or newer"; exit 1; }
	@python="$$($(PYTHON3) scripts/check_machine.py)" && "$$python" scripts/install.py

demo: install
	@$(PYTHON) scripts/demo.py

# The cluster in containers: build, a job on two workers, a warm one, a killed worker, the end. Part of `make test`.
test-cluster: install
	@TRAINSHED_REQUIRE_ENGINE=1 $(PYTHON) -m pytest tests/cluster $(PYTEST_ARGS)

# Containers of this machine's engine. WORKERS: how many instances.
WORKERS ?= 2
cluster: install
	@$(PYTHON) scripts/cluster.py up --workers $(WORKERS) $(CLUSTER_ARGS)

cluster-down: install
	@$(PYTHON) scripts/cluster.py down

# The real AWS clients, each in an environment of its own; made here, so that no test waits for a download.
clients: install
	@for name in awscli sdk-v2 sdk-v3; do $(PYTHON) scripts/client_env.py $$name >/dev/null || exit 1; done

test: install clients
	@$(TEST_RUN) $(PYTEST_ARGS)

# The tests that have a service, whose database is SQLite in `make test`. Those that use PostgreSQL whatever is said
# (unit tests of what reads and writes it, tests/integration/replicas, a service for other machines) are in that one alone.
ON_DATABASE = tests/acceptance $(addprefix tests/integration/,agent/test_partition.py cli core dashboard \
	embedded/test_running.py embedded/test_up_and_down.py handover logs notifications pools rest s3 scheduling sharing wire)
test-postgresql: install clients
	@TRAINSHED_TEST_DATABASE=postgresql $(PYTHON) -m pytest -n $(TEST_WORKERS) --dist worksteal $(ON_DATABASE) $(PYTEST_ARGS)

test-deep: install clients
	@TRAINSHED_TEST_DEEP=1 $(TEST_RUN) $(PYTEST_ARGS)

# Every script in a fork of a preloaded parent and in a fresh process, those with torch among them: many minutes.
test-preload: install
	@$(PYTHON) -m pytest -n $(TEST_WORKERS) --dist worksteal tests/preload tests/integration/preload tests/unit/preload $(PYTEST_ARGS)

# Part of test-deep, by itself.
test-races: install
	@TRAINSHED_TEST_DEEP=1 $(PYTHON) -m pytest tests/integration/pools/test_races.py tests/integration/agent/test_partition.py $(PYTEST_ARGS)

# A client that is used as it is, in an environment of its own; too long for every run.
test-tuning: install
	@$(PYTHON) scripts/client_env.py syne-tune >/dev/null && $(PYTHON) -m pytest tests/tuning $(PYTEST_ARGS)

lint: install
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: install
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

lock:
	@$(PYTHON) scripts/lock.py

bench: bench-api bench-gateway bench-latency bench-scheduler

bench-api bench-gateway bench-scheduler: bench-%: install
	$(PYTHON) -m benchmarks.$* $(BENCH_ARGS)

bench-dashboard: install
	$(PYTHON) -m benchmarks.dashboard $(BENCH_ARGS)

bench-latency: install
	$(PYTHON) -m benchmarks.bench_latency_under_upload $(BENCH_ARGS)

# Sharded training and collectives over limited links; root, iproute2, a quiet machine and about an hour.
bench-runtime: install
	$(PYTHON) -m benchmarks.runtime $(BENCH_ARGS)

# Each view of the dashboard of an installation with real jobs, to be looked at: .trainshed/screenshots (SCREENSHOT_ARGS="--only pools").
screenshots: install
	$(PYTHON) -m scripts.screenshots $(SCREENSHOT_ARGS)

bench-warm: install
	$(PYTHON) -m benchmarks.warm_start $(BENCH_ARGS)
	$(PYTHON) -m benchmarks.short_jobs
	$(PYTHON) -m benchmarks.warm_data

clean:
	rm -rf .venv .envs build *.egg-info
