# Everything that a checkout needs. `make setup` once; every other target runs it by itself when it has to.

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.setup-done
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --no-compile --use-pep517 --no-build-isolation --require-hashes
SPARK := $(VENV)/pyspark
UV := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
  --no-emit-find-links --custom-compile-command "make lock" pyproject.toml
MINUTES ?= 10
TIER ?= test

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-all fuzz lint types docs bench lock clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Python packages into .venv and the jars into the cache (two to four minutes the first time, then a second)
	@$(BIN)/python -m kquota_spark.embedded.setup.jars --link

demo: setup ## a real Kafka, real clients over their quotas, and the audit of them (DEMO_SECONDS=n, SOURCE=jmx, KIND=kraft, KAFKA=3.7.2 or 4.3.0, ENFORCE=1)
	@$(BIN)/python -m kquota_spark.embedded.demo

check: lint types ## style, types and architecture, in less than a minute
	@$(BIN)/python -m pytest -q tests/architecture

test: check ## what a contributor runs, in about 20 minutes: unit, Spark, and the product on a real cluster of either kind (TIER=ci: what CI runs)
	@$(BIN)/python -m tests.tools test
	@$(BIN)/python -m tests.tiers $(TIER) --seconds .kquota/$(TIER)-seconds.json

test-all: check ## every test, in an hour or more: all servers, and brokers, executors and drivers that are killed
	@$(BIN)/python -m tests.tools test-all
	@$(BIN)/python -m tests.tiers test-all --seconds .kquota/test-all-seconds.json

fuzz: setup ## random tests with new seeds until the time is over (MINUTES=n, 10 by default); the others use one fixed seed
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

lint: setup ## ruff: style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy, strict
	@$(BIN)/mypy

docs: setup ## the pages as a site in .kquota/site/index.html; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: setup ## tables of throughput, scale, growth, latency and more, in about 110 minutes (BENCH_LINES=n, BENCH_WARM_UP=n, BENCH_MASTER=local-cluster[2,1,2048])
	@$(BIN)/python -m tests.bench

# The two of the images are parts of the one of the checkout. What is in it stays, unless UPGRADE=1 asks for the newest.
lock: ## write requirements.lock and those of the images anew from pyproject.toml, with hashes (needs uv; UPGRADE=1)
	@echo 'setuptools>=77' | $(UV) $(if $(UPGRADE),--upgrade) --all-extras - -o requirements.lock
	@echo 'setuptools>=77' | $(UV) -c requirements.lock --extra spark - -o conf/helm/spark.lock
	@$(UV) -c requirements.lock -o conf/helm/commands.lock

clean: ## remove what was built or run here (.kquota too); .venv and the jars of all checkouts stay
	@if [ -x $(BIN)/kquota ] && [ -f .kquota/cluster/cluster.json ]; then $(BIN)/kquota cluster down; fi
	@rm -rf .kquota build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The lines of one package in requirements.lock: the first, and all that a backslash continues.
locked = awk '/^$(1)==/,!/\\$$/' requirements.lock

# pip would fetch what builds an archive by itself, whatever its version: setuptools of the lock comes first instead.
# Java is looked for before the packages are fetched: what is missing should be said in the first second.
# Ivy fetches the jars, and is inside PySpark: that archive comes first, so that the jars and the other packages arrive
# side by side. Python compiles a module at its first import: compiling all of them would take half a minute.
# The jars are not behind the stamp: they are outside the checkout, and looking at them takes a tenth of a second.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "kquota: Python 3.11 or newer is needed and $(PYTHON) is not: install it, e.g. apt-get install python3.11 python3.11-venv, then make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m kquota_spark.embedded.setup.java
	@echo "setup: Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "setup: Python packages of requirements.lock (1.2 GB unpacked), and the jars at the same time; two to four minutes"
	@$(call locked,setuptools) > $(VENV)/build.lock && $(INSTALL) -r $(VENV)/build.lock
	@if [ ! -e $(BIN)/spark-submit ]; then \
	  $(call locked,pyspark) > $(VENV)/pyspark.lock && \
	  $(PIP) download --quiet --no-deps --no-build-isolation --require-hashes --dest $(SPARK) -r $(VENV)/pyspark.lock && \
	  tar -xzf $(SPARK)/pyspark-*.tar.gz -C $(SPARK) --strip-components=3 --wildcards '*/deps/jars/ivy-*.jar' && \
	  sed "s,^pyspark==[^ ]*,$$(ls $(SPARK)/pyspark-*.tar.gz)," requirements.lock > $(VENV)/local.lock && \
	  { $(BIN)/python -m kquota_spark.embedded.setup.jars --ivy $(SPARK) & jars=$$!; \
	    $(INSTALL) -r $(VENV)/local.lock || { kill $$jars; exit 1; }; \
	    wait $$jars; } && rm -r $(SPARK); \
	else $(INSTALL) -r requirements.lock; fi
	@echo "setup: kquota-spark itself, editable"
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@
