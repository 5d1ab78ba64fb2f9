# Everything a fresh machine needs: Python >= 3.11, git and make. uv is used when it is there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
UV     := $(shell command -v uv 2>/dev/null)
ARGS   ?=
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help chat serve test test-long test-clients lint types flags clean

help:
	@echo "make chat       talk to the model (./ds4flash.gguf, else the small one in the box)"
	@echo "make serve      start the HTTP server on 127.0.0.1:8000"
	@echo "make test       run the tests"
	@echo "make test-long  run the long tests: every length, load, hostile input"
	@echo "make test-clients  run real agents from the npm registry against the server"
	@echo "make lint types ruff; mypy"
	@echo "Pass options through ARGS, for example: make chat ARGS='-p \"Hello\" --nothink'"

# A virtual environment counts as made only when its last install step ended well.
$(VENV)/.run: pyproject.toml
	@$(MAKE) --no-print-directory $(BIN)/python
	$(call install,.[mlx])
	@touch $@

$(VENV)/.dev: pyproject.toml
	@$(MAKE) --no-print-directory $(BIN)/python
	$(call install,.[mlx$(COMMA)dev])
	@touch $@ $(VENV)/.run

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ds4 needs Python 3.11 or later: make PYTHON=/path/to/python3.11 ..."; exit 1; }
ifneq ($(UV),)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
else
	$(PYTHON) -m venv $(VENV)
endif

COMMA := ,
ifneq ($(UV),)
install = $(UV) pip install --quiet --python $(BIN)/python -e '$(1)'
else
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '$(1)'
endif

chat: $(VENV)/.run
	@$(BIN)/ds4 chat $(ARGS)

serve: $(VENV)/.run
	@$(BIN)/ds4 serve $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) -m "not long and not clients" $(ARGS)

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) -m long $(ARGS)

test-clients: $(VENV)/.dev
	$(BIN)/python -m pytest -m clients $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

flags: $(VENV)/.dev
	$(BIN)/python -m apps.flags_table docs/flags.md

clean:
	rm -rf $(VENV) .clients build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
