# Everything runs in .venv, made and filled once: each stamp says what is installed, and is renewed when the files that
# name the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
STAMPS := .venv/.stamps
PIP := $(BIN)/pip --quiet --disable-pip-version-check
# Every package is named by version and checksum in requirements/, made anew by `make lock`.
LOCKED := install --require-hashes --no-deps --no-build-isolation
# torch alone is asked for by name and version: this build is CPU-only and small.
TORCH := torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-core test-numerics soak system lint docs paper paper-results bench bench-full lock audit sbom clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-13s %s\n", $$1, $$2}'

# The build tools come first: packages without a wheel, and mcnet itself, are built with these and no others.
$(STAMPS)/build: requirements/build.txt
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(PIP) install --require-hashes --no-deps -r requirements/build.txt
	@mkdir -p $(@D) && touch $@

$(STAMPS)/%: requirements/%.txt pyproject.toml $(STAMPS)/build
	@echo "installing into .venv ($*): a few minutes the first time, never again"
	@$(PIP) $(LOCKED) -r $<
	@$(if $(filter run test engines,$*),$(PIP) install $(TORCH))
	@$(PIP) install --no-deps --no-build-isolation -e .
	@mkdir -p $(@D) && touch $@

demo: $(STAMPS)/run ## simulate a click log, fit every method, print the comparison
	@mkdir -p build
	@$(BIN)/mcnet demo --output build/demo.parquet --force
	@echo
	@echo "Next, with the simulated rows; put your own log and its columns in their place:"
	@echo "  source .venv/bin/activate"
	@echo "  mcnet fit build/demo.parquet --score score --label label --field field -o model.json"
	@echo "  mcnet apply model.json build/demo.parquet -o calibrated.parquet"

test: $(STAMPS)/test ## run the tests; the last lines say what was left out for lack of a program
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: system $(STAMPS)/engines $(STAMPS)/docs ## install what the tests can use (Chromium, PostgreSQL, Spark, …) and run every test, none skipped
	@MCNET_SKIP_NOTHING=1 $(BIN)/python -m pytest -n 2 --dist worksteal --durations 25

# The settings under which BLAS and NumPy compute as on an older processor.
OTHER_PROCESSOR = OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES="$$($(1)/python .ci/cpu_features.py)"
NUMERICAL = tests/bayes tests/calibrators tests/curves tests/metrics tests/model tests/scikit_learn tests/sketch
NETWORKS = tests/networks

test-numerics: $(STAMPS)/test ## run the numerical tests as on another processor (other BLAS kernels, plain NumPy loops)
	@$(call OTHER_PROCESSOR,$(BIN)) $(BIN)/python -m pytest -n 2 --dist worksteal $(NUMERICAL) $(NETWORKS)

test-core: $(STAMPS)/build ## install mcnet without any extra into .venv-core; run the tests that need none, as on another processor
	@test -x .venv-core/bin/pip || $(PYTHON) -m venv .venv-core
	@.venv-core/bin/pip --quiet --disable-pip-version-check install --require-hashes --no-deps -r requirements/build.txt
	@.venv-core/bin/pip --quiet --disable-pip-version-check $(LOCKED) -r requirements/core.txt
	@.venv-core/bin/pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation -e .
	@$(call OTHER_PROCESSOR,.venv-core/bin) .venv-core/bin/python -m pytest -n 2 --dist worksteal $(NUMERICAL) tests/cli tests/rows \
	  tests/selection --ignore tests/calibrators/test_oracles.py --ignore tests/cli/test_export.py --ignore tests/metrics/test_binned.py

soak: $(STAMPS)/test ## draw new examples for the properties, attack formats, files, signals, weights for MINUTES (10), kill the loop KILLS times (200), break hours of it; writes tests/fuzz/RESULTS.md, benchmarks/RESULTS.md
	@MCNET_NEW_EXAMPLES=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m hypothesis
	@MCNET_KILLS=$(or $(KILLS),200) $(BIN)/python -m pytest -q tests/service/test_many_machines.py
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) --kills $(or $(KILLS),200) --write tests/fuzz/RESULTS.md
	@$(BIN)/python -m benchmarks --full time_parts time_poison time_worlds

system: ## install the programs that some tests need, where they are missing
	@bash .ci/system-packages

lint: $(STAMPS)/test $(STAMPS)/lint ## ruff, mypy (strict), import-linter, hadolint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/hadolint deploy/Dockerfile

docs: $(STAMPS)/docs ## build the documentation site into site/, warnings being errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict

paper: $(STAMPS)/test ## run the study of the paper in its full form into build/paper; goes on where it was (hours)
	@$(BIN)/python -m reproduction headline --scale 1 --seeds 1 --resume --output build/paper/headline
	@$(BIN)/python -m reproduction all --resume --output build/paper

paper-results: $(STAMPS)/test ## run the forms that docs/reproduction.md has, and write its figures (two hours of one core)
	@for study in headline performance; do \
	$(BIN)/python -m reproduction $$study --scale 1 --seeds 1 --resume --output build/results; done
	@$(BIN)/python -m reproduction features --scale 0.1 --seeds 1 --resume --output build/results
	@for study in auxiliary datasets sir expressiveness; do \
	$(BIN)/python -m reproduction $$study --resume --output build/results; done
	@for study in balance efficiency curves sensitivity overfitting; do \
	$(BIN)/python -m reproduction $$study --quick --resume --output build/results; done
	@cp build/results/*.md build/results/*.csv reproduction/results
	@cp build/results/headline-bins.svg docs/images
	@sed -i '/^!\[/d' reproduction/results/*.md
	@$(BIN)/python -m reproduction.documentation

bench: $(STAMPS)/test ## measure mcnet beside its peers on the same rows (minutes); writes benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks

bench-full: $(STAMPS)/test ## the same with all sizes, seeds and time limits (hours)
	@$(BIN)/python -m benchmarks --full

lock: $(STAMPS)/build ## make requirements/*.txt anew: the newest versions that pyproject.toml allows, with checksums
	@bash requirements/lock

audit: $(STAMPS)/test ## look the installed packages up in a database of known vulnerabilities
	@bash .ci/audit

sbom: $(STAMPS)/test ## write the software bill of materials of .venv to sbom.json (CycloneDX)
	@$(BIN)/cyclonedx-py environment .venv --output-format JSON --output-file sbom.json

clean: ## remove the environments and everything generated
	rm -rf .venv .venv-core build dist site sbom.json .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
