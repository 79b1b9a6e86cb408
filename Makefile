# Every target does its own set-up: a virtual environment in .venv with the versions of the constraints file.
# `make ci` is what continuous integration runs, here (.ci/run) and on GitHub (.github/workflows/ci.yml).

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
# mypy and lint-imports read files: they see the packages laid out as an installation does.
TREE := build/tree
TYPED := $(TREE)/circus_bench build_backend/backend.py build_backend/circus_bench_mteb_hook.py
# The demo and the tests need no network once the packages are installed.
export HF_HUB_OFFLINE := 1

.PHONY: demo ci test lint type bench docs lowest clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed  ## audit the embedded benchmark with the embedded models; writes demo/report.html
	$(BIN)/circus-bench demo --out demo

ci: lint type test  ## all checks

test: $(VENV)/.dev  ## the test suite, doctests included
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev  ## style and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/typos

type: $(VENV)/.dev  ## static types, as every supported platform sees them
	$(BIN)/python tests/support/package_tree.py $(TREE)
	$(BIN)/mypy $(TYPED)
	$(BIN)/mypy --config-file .ci/mypy-platforms.ini --platform darwin $(TYPED)
	$(BIN)/mypy --config-file .ci/mypy-platforms.ini --platform win32 $(TYPED)

bench: $(VENV)/.dev  ## speed and memory against peers
	$(BIN)/python benchmarks/ranking.py
	$(BIN)/python benchmarks/mini_seeds.py
	$(BIN)/python benchmarks/encoding.py
	$(BIN)/python benchmarks/validation_load.py

docs: $(VENV)/.dev  ## API reference in build/docs
	$(BIN)/pdoc --docformat google --output-directory build/docs circus_bench

lowest: $(VENV)/.dev  ## the lowest versions that setup.cfg allows, for `make test CONSTRAINTS=constraints-lowest.txt`
	$(PIP) uv
	$(BIN)/uv pip compile setup.cfg --extra dev --resolution lowest-direct --universal --python-version 3.11 \
		--no-annotate --custom-compile-command 'make lowest' --output-file constraints-lowest.txt

clean:
	rm -rf $(VENV) build demo *.egg-info

$(VENV)/.installed: setup.cfg pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@
