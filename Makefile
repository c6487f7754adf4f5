# Everything starts from a clean clone and a Python >= 3.11; the first target that needs it makes .venv.
# A newcomer wants `make demo` and `make test`.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
DOCUMENTS ?=
ARGS ?=
SCENARIOS ?=
# How many processes share the tests, each with servers of its own, four at most: one more than there are processors,
# for a test waits for its servers during more than half of its time.
PROCESSES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
SPREAD := -n $(PROCESSES) --maxprocesses 4 --dist loadscope -p jobcontract.conformance.record

.PHONY: demo test test-pythons check docs faults faults-long bench format clean

demo: $(VENV)/.installed
	$(BIN)/jobctl demo $(if $(DOCUMENTS),--documents "$(DOCUMENTS)")
	$(BIN)/jobctl demo --migrate $(if $(DOCUMENTS),--documents "$(DOCUMENTS)")

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

# The other Pythons that are declared and at hand, each in a .venv-3.x of its own.
test-pythons: $(VENV)/.installed-dev
	$(BIN)/python tools/pythons.py $(SPREAD) $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/docs -q --ignore tests/docs/test_pages.py

# The documentation as a site, in build/docs. `make check` builds it too and follows its links; `make test` does what it shows.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

# Every scenario and every red control, with fixed seeds, and the tests marked slow: minutes. SCENARIOS names some of them.
faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults $(SCENARIOS) $(ARGS)
	$(if $(SCENARIOS)$(ARGS),,$(BIN)/python -m pytest -m slow)

# The attacks for an hour, with random seeds; what fails is printed with its seed, and keeps its history.
faults-long: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults $(SCENARIOS) --minutes 60 --jobs 5000 --rounds 2 $(ARGS)

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
	rm -rf $(VENV) .venv-3.* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
