# Every target does its own set-up: a virtual environment in .venv with the versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# The demo and the tests need no network once the packages are installed.
export HF_HUB_OFFLINE := 1

.PHONY: demo test lint type bench docs clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed  ## audit the embedded benchmark with the embedded models; writes demo/report.html
	$(BIN)/circus-bench demo --out demo

test: $(VENV)/.dev  ## the test suite, doctests included
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/.dev  ## static types
	$(BIN)/mypy circus_bench

bench: $(VENV)/.dev  ## speed and memory against peers
	$(BIN)/python benchmarks/ranking.py
	$(BIN)/python benchmarks/mini_seeds.py
	$(BIN)/python benchmarks/encoding.py
	$(BIN)/python benchmarks/validation_load.py

docs: $(VENV)/.dev  ## API reference in build/docs
	$(BIN)/pdoc --docformat google --output-directory build/docs circus_bench

clean:
	rm -rf $(VENV) build demo *.egg-info

$(VENV)/.installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@
