# Everything runs in .venv, made and filled once: each stamp says what is installed, and is renewed when the files that
# name the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
STAMPS := .venv/.stamps
# torch is asked for by name and version: this build is CPU-only and small.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs bench bench-full clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

$(BIN)/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip

$(STAMPS)/%: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing into .venv ($*): a few minutes the first time, never again"
	$(INSTALL) -e '.$(if $(filter-out run,$*),[$*])'
	@mkdir -p $(@D) && touch $@

demo: $(STAMPS)/run ## simulate a click log, fit every method, print the comparison
	@$(BIN)/mcnet demo

test: $(STAMPS)/test ## run every test
	@$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMPS)/lint ## ruff, mypy (strict), import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

docs: $(STAMPS)/docs ## build the documentation site into site/, warnings being errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict

bench: $(STAMPS)/test ## measure mcnet beside its peers on the same rows (minutes); writes benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks

bench-full: $(STAMPS)/test ## the same with all sizes, seeds and time limits (hours)
	@$(BIN)/python -m benchmarks --full

clean: ## remove the environment and everything generated
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
