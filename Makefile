# Everything runs inside .venv, which `make setup` builds and every other target brings up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
# Random workloads of `make oracle`; CI runs the default of the test itself.
N ?= 200
# How long `make chaos` goes on; SEED repeats the runs of one seed.
MINUTES ?= 30
SEED ?=
# Processes that run tests side by side, each with a Spark of its own.
JOBS ?= 2
# Options handed to `millstream demo`, for example ARGS="--queries 500 --rate 1000000".
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo classes test check format oracle chaos bench bench-guard bench-scale bench-joins flink clean

help:  ## show this list
	@echo "Millstream: make targets"
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(STAMP)  ## build .venv with the package and its pinned dependencies in it

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh scripts/postgres.sh
	@PYTHON="$(PYTHON)" sh scripts/setup.sh "$(VENV)"
	@touch $@

demo: $(STAMP)  ## a gaming stream with two hundred queries, live in the terminal (ARGS="--queries 500")
	@$(BIN)/millstream demo $(ARGS)

classes: $(STAMP)  ## keep Spark's classes as Java maps them: engines start in two thirds of the time
	@$(BIN)/python scripts/classes.py 2>$(VENV)/classes.log || { cat $(VENV)/classes.log; exit 1; }

test: $(STAMP) classes  ## all tests, the random oracle and the doctests included
	$(BIN)/python -m pytest -q -m "not alone" -n $(JOBS) --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -q -m alone

check: $(STAMP)  ## format, lint, types and layers, as CI does
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

format: $(STAMP)  ## rewrite the sources in the common format
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

oracle: $(STAMP)  ## N random workloads against plain Spark (make oracle N=1000)
	ORACLE_RUNS=$(N) $(BIN)/python -m pytest tests/oracle -q

chaos: $(STAMP)  ## kill an engine at random until the time is over, compare every answer (make chaos MINUTES=30)
	PYTHONPATH=src:. $(BIN)/python -m tests.chaos.run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench-scale: $(STAMP)  ## throughput and deployment latency at 1 to 1000 queries, beside plain Spark
	$(BIN)/millstream bench scale $(ARGS)

bench-joins: $(STAMP)  ## joins at 1 to 500 queries, beside plain Spark; joins of up to five streams
	$(BIN)/millstream bench joins $(ARGS)

bench: $(STAMP)  ## every workload and figure, each family beside plain Spark, as a page with plots (ARGS=--quick, --flink)
	$(BIN)/millstream bench suite $(ARGS)

bench-guard: $(STAMP)  ## a short benchmark that fails on a ratio against plain Spark far too small
	$(BIN)/millstream bench guard $(ARGS)

flink:  ## an environment with Flink beside .venv, for comparisons (MILLSTREAM_FLINK names another place)
	@PYTHON="$(PYTHON)" sh scripts/flink.sh

clean:  ## remove .venv, .flink, caches and build products
	rm -rf $(VENV) .flink build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
