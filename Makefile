# Everything starts from a clean clone and a Python >= 3.11; the first target that needs it makes .venv.
# A newcomer wants `make demo` and `make test`.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
DOCUMENTS ?=
ARGS ?=

.PHONY: demo test check bench format clean

demo: $(VENV)/.installed
	$(BIN)/jobctl demo $(if $(DOCUMENTS),--documents "$(DOCUMENTS)")

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/docs -q

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks $(ARGS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.installed: pyproject.toml tools/make-venv
	PYTHON="$(PYTHON)" sh tools/make-venv $(VENV)
	$(BIN)/python tools/install_demo.py
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
