# Everything a developer needs. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KERNEL := $(wildcard src/trailmark/kernel/*.c src/trailmark/kernel/*.h)
SOAK_SECONDS ?= 600
SOAK_CASES ?= 5000
FUZZ_SECONDS ?= 3600
# One more than cores: tests on Spark wait a lot.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) + 1)' 2> /dev/null || echo auto)
# Recipes that run Spark say with which Java, and that its workers run this Python.
SPARK := JAVA_HOME="$$(cat $(VENV)/.java)" PYSPARK_PYTHON="$(abspath $(BIN))/python"

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml setup.py build_support/backend.py $(KERNEL)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=23'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.PHONY: setup
setup: $(VENV)/.ready ## Create the environment and build the kernel

.PHONY: java
java: setup ## Find Java 17 or later, or get one
	@$(BIN)/python build_support/java.py --install > $(VENV)/.java

.PHONY: lint
lint: setup ## Style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A home of Spark in which tests start it sooner; see tests/support/spark_java.py.
$(VENV)/spark/classes.jsa: $(VENV)/.ready | java
	$(SPARK) $(BIN)/python -m tests.support.spark_java

.PHONY: chromium
chromium: setup ## Install a browser for the tests of the page, where that may be
	@$(BIN)/python -m build_support.chromium

.PHONY: azurite
azurite: setup ## Install an emulator for the tests of az://, where that may be
	@$(BIN)/python -m build_support.azurite

.PHONY: kafka
kafka: java ## Install a Kafka broker and Spark's connector for tests, where that may be
	@$(SPARK) $(BIN)/python -m build_support.kafka

.PHONY: hadoop-aws
hadoop-aws: java ## Fetch what tests of Spark's checkpoint on S3 need (19 MB), where that may be
	@$(SPARK) $(BIN)/python -m build_support.hadoop_aws

.PHONY: test
test: lint chromium azurite kafka hadoop-aws $(VENV)/spark/classes.jsa ## All checks and all tests (what CI runs)
	$(SPARK) $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder

.PHONY: test-versions
test-versions: java ## Part of the tests on the newest Spark 4.0, 4.1, 4.2 and 4.3 (VERSIONS="4.0 4.3" for some), on Python 3.10 to 3.13
	$(SPARK) $(BIN)/python -m tests.versions --workers $(WORKERS) $(VERSIONS)

.PHONY: wheels
wheels: setup ## Build what is released into dist: an sdist, and wheels for Linux on x86-64 and AArch64
	@rm -rf dist
	$(BIN)/python build_support/release.py dist

.PHONY: page-pictures
page-pictures: setup ## Take the pictures of the page in docs/images anew
	$(BIN)/python -m tests.support.page_pictures

.PHONY: demo
demo: java ## Kill a query on Spark, see it recover, and compare its results
	@$(SPARK) $(BIN)/python -m demo

.PHONY: demo-stall
demo-stall: java ## Stop one of three streams, see what is answered without it, and what replaces that
	@$(SPARK) $(BIN)/python -m demo.stall

.PHONY: soak
soak: setup ## Random crash cases of every operator and meetings for SOAK_SECONDS (SOAK_SEED to repeat one)
	$(BIN)/python -m tests.soak --seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

.PHONY: soak-s3
soak-s3: setup ## Random faults of an object store for SOAK_SECONDS (SOAK_SEED to repeat one)
	$(BIN)/python -m tests.soak_s3 --seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

.PHONY: soak-answers
soak-answers: setup ## SOAK_CASES random cases of answers in time and of replicas (SOAK_SEED to repeat)
	TRAILMARK_SEED=$(or $(SOAK_SEED),$(shell date +%s)) TRAILMARK_CASES=$(SOAK_CASES) $(BIN)/pytest --numprocesses $(WORKERS) -x \
		tests/property/test_union_answers.py tests/property/test_union_turns.py tests/property/test_tentative.py tests/property/test_next_query.py tests/property/test_replicas.py

.PHONY: soak-standby
soak-standby: java $(VENV)/spark/classes.jsa ## Kill, stop and wake drivers with tm.standby for SOAK_SECONDS (SOAK_SEED to repeat)
	$(SPARK) $(BIN)/python -m tests.soak_standby --seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

.PHONY: soak-replicas
soak-replicas: java $(VENV)/spark/classes.jsa ## Kill, stop and cut off replicas that are followed for SOAK_SECONDS (SOAK_SEED to repeat)
	$(SPARK) $(BIN)/python -m tests.soak_replicas --seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

.PHONY: fuzz
fuzz: setup ## Changed files with right checksums, read for FUZZ_SECONDS (FUZZ_SEED to repeat it)
	@$(BIN)/python -c 'import atheris' 2> /dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris 2> /dev/null || \
		echo "atheris cannot be installed for this Python: inputs are random"
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

.PHONY: bench
bench: java ## All experiments but five in less than 15 minutes; remakes docs/benchmarks.md
	$(SPARK) $(BIN)/python -m bench run

.PHONY: bench-full
bench-full: java ## All experiments with more sizes and repetitions
	$(SPARK) $(BIN)/python -m bench run --full

.PHONY: bench-check
bench-check: java ## Fail if a cost ratio is more than 15 % worse than the baseline's
	$(SPARK) $(BIN)/python -m bench check

.PHONY: bench-engine
bench-engine: setup ## Speed of the engine against its limits; exit code 1 if any is short
	$(BIN)/python -m bench.engine

.PHONY: bench-policies
bench-policies: setup ## Costs of policies and times of recoveries against their limits; draws pictures
	$(BIN)/python -m bench.policies

.PHONY: bench-spark
bench-spark: java ## Speed on Spark against its limits; exit code 1 if any is short
	$(SPARK) $(BIN)/python -m bench.spark

.PHONY: bench-operators
bench-operators: java ## Speed of users' operators against Spark's own; exit code 1 if any is short
	$(SPARK) $(BIN)/python -m bench.operators

.PHONY: bench-joins
bench-joins: java ## Speed of joins against Spark's own; exit code 1 if any is short
	$(SPARK) $(BIN)/python -m bench.joins

.PHONY: bench-answers
bench-answers: java ## Cost of merging streams in order, and answers without one; exit code 1 if any is short
	$(SPARK) $(BIN)/python -m bench.answers

.PHONY: bench-standby
bench-standby: java ## From kill -9 to the next result, with a standby and without; exit code 1 if it is long
	$(SPARK) $(BIN)/python -m bench.standby
	$(SPARK) $(BIN)/python -m bench.replicas

.PHONY: bench-cluster
bench-cluster: java ## Warm states and cost of a batch on a cluster of namespaces; exit code 1 if any is short
	$(SPARK) $(BIN)/python -m bench.cluster

.PHONY: bench-scaling
bench-scaling: java ## What a batch and a task cost, and times for up to 1,000 buckets and 100 hosts by a model
	$(SPARK) $(BIN)/python -m bench.scaling --measure

.PHONY: bench-streams
bench-streams: java ## Speed of persistent streams against Parquet; exit code 1 if any is short
	$(SPARK) $(BIN)/python -m bench.streams

.PHONY: bench-nexmark
bench-nexmark: java ## NEXMark on Trailmark, Spark and Flink in about 10 minutes; remakes docs/benchmarks.md
	$(SPARK) $(BIN)/python -m bench run nexmark

.PHONY: profile
profile: java ## Where the time of a batch on Spark goes; remakes docs/benchmarks.md
	$(SPARK) $(BIN)/python -m bench run profile
	@$(BIN)/python -m bench.profiling

.PHONY: format
format: setup ## Reformat the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## Remove the environments and everything built
	rm -rf $(VENV) .venv-versions build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .bench .fuzz demo/out
	find src -name '*.so' -delete
