# Every target creates .venv by itself and reuses it; `make PYTHON=python3.12 test` picks the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install quickstart test lint format docs tables

help:
	@echo "make quickstart   train an operator and look at what it does (five minutes on a laptop)"
	@echo "make test         lint, types, layering and all tests"
	@echo "make lint         ruff, mypy, import-linter"
	@echo "make docs         build the documentation site in site/"
	@echo "make tables       write the tables of README.md and docs/ anew from results/"
	@echo "make format       let ruff rewrite the files"

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lno needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	@touch $@

quickstart: install
	$(BIN)/lno quickstart

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

tables: install
	$(BIN)/python -m lno.experiments.documents
	$(BIN)/lno report --markdown docs/results.md
