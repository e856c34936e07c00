PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install quickstart test test-slow lint format clean

help:
	@echo "make quickstart  install, translate with the shipped model, train a new one, evaluate it"
	@echo "make test        install, run the tests (make test-slow: the slow ones)"
	@echo "make lint        install, check style and format (make format: mend them)"
	@echo "make clean       remove .venv"

.venv/installed: requirements.txt setup.py pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

install: .venv/installed

quickstart: install
	PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/quickstart.sh

test: install
	$(BIN)/python -m pytest

test-slow: install
	$(BIN)/python -m pytest -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv
