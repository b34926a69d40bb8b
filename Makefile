# Two commands do everything: `make demo` (the product's main job) and `make test` (all checks).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check lint clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/ollama-spec demo

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

# Also what needs Go and its module proxy, a docker daemon, or very long.
test-all: test
	$(BIN)/pytest -m 'real_ollama or docker or slow'

# Do the hooks fit every llama.cpp tag that Ollama has carried? 16 source trees, some minutes.
check: $(VENV)/.installed
	$(BIN)/ollama-spec build check --tags all

clean:
	rm -rf $(VENV) dist
