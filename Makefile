# Every target sets up what it needs, in .venv, from a bare Python 3.11 with pip. `make` alone lists them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# Builds of torch without CUDA stand on an index of their own, which is asked for torch and nothing else.
TORCH := --extra-index-url https://download.pytorch.org/whl/cpu torch

# The versions of constraints.txt hold for pip's build environments too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Hundreds of processes of the tests would each compile all modules that they import.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet
PACKAGE := pyproject.toml constraints.txt $(shell find src -name "*.[ch]")

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format package prebuilt bundle bundle-check clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.torch ## run a program with stalls and the mended one on a virtual GPU, and explain them
	@rm -rf .demo
	@$(BIN)/unstall demo .demo

test: $(VENV)/.dev ## run the fast tests, laws with few examples (ARGS: more for pytest)
	$(BIN)/pytest -n auto $(ARGS)

test-all: ARGS += -m "" --hypothesis-profile=thorough
test-all: test ## run every test, laws with three times the examples

check: $(VENV)/.dev ## lint, formatting, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev ## put the code in form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

package: $(VENV)/.dev ## build the sdist and the wheel, and check that they work on their own
	rm -rf dist
	$(BIN)/python .ci/package.py dist

prebuilt: $(VENV)/.dev ## compile the virtual GPU for the installed torch into the package, for wheels
	$(BIN)/python -m unstall.virtual.shim.prebuild

bundle: web/node_modules/.installed ## build the HTML report's page from web/
	cd web && npm run --silent build

bundle-check: web/node_modules/.installed ## check web/, and that the committed page is what it builds
	cd web && npm run --silent types && npm test --silent
	$(MAKE) --no-print-directory bundle
	git diff --exit-code --stat -- src/unstall/document/page.html

clean: ## remove what the targets made
	rm -rf $(VENV) .demo web/node_modules build dist src/*.egg-info $(shell find src -name "_*.so") .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: $(PACKAGE) | $(VENV)/bin/python
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.torch: | $(VENV)/.package
	@$(PIP_INSTALL) --retries 1 $(TORCH) && touch $@ || \
	  echo "PyTorch could not be installed, so the demo explains what was recorded earlier"

$(VENV)/.dev: $(PACKAGE) | $(VENV)/bin/python
	$(PIP_INSTALL) --no-deps --retries 2 $(TORCH)
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

web/node_modules/.installed: web/package.json web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@
