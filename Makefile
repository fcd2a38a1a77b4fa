# The two commands of this project are `make run` and `make test`. Both need Python 3.11 or later. CONTRIBUTING.md says
# what `make test` fetches.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
SOURCES := $(wildcard askfirst gateway channels tests examples bench scripts)
BIN := .venv/bin
MYPY = $(BIN)/mypy $(SOURCES)
# Bytecode is kept whatever the environment says: workers and a hundred child processes would compile everything anew.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 3
# `$(call install,environment,options)`. uv takes seconds where pip takes minutes; an index may be set up for pip alone.
install = $(BIN)/uv pip install --quiet --python $(1) $(2) || \
	$(1)/bin/pip install --quiet --disable-pip-version-check $(2)
LOCKED = --no-build-isolation --require-hashes -r
OURS = --no-build-isolation --no-deps -e .

.PHONY: run test docs pictures platforms lowest nightly fuzz soak bench lint style format sentences commands cookbook words lock sbom

## The invoices example in the browser: offline model, embedded store, no account.
run: .venv/run.installed
	$(BIN)/askfirst dev examples/invoices.py

## Formatting, lint and import rules, then every test but the nightly ones; mypy runs beside them and is told at the end.
test: style
	@$(BIN)/python -m scripts.redis_server
	@$(BIN)/python -m scripts.chromium
	@$(MYPY) >.venv/types.txt 2>&1 & types=$$!; trap 'kill $$types 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	echo '$(PYTEST) -m "not nightly"'; $(PYTEST) -m "not nightly"; tested=$$?; \
	wait $$types; typed=$$?; echo '$(MYPY)'; cat .venv/types.txt; exit $$((tested | typed))

## The tests that `make test` leaves out but the soak, and more examples of some: see CONTRIBUTING.md. Under an hour.
nightly: .venv/test.installed
	@$(BIN)/python -m scripts.redis_server
	@$(BIN)/python -m scripts.chromium
	$(PYTEST) -m "nightly or hypothesis" --hypothesis-profile nightly --timeout 600 --ignore tests/soak

## The next 100,000 requests that are nearly right, of a million; .nightly/fuzz.json says where to go on.
fuzz: .venv/test.installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m nightly tests/fuzz

## Eight minutes more of a busy server on each store; four runs are the half hour of docs/performance.md.
soak: .venv/test.installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 -m nightly --timeout 1200 tests/soak

lint: style
	$(MYPY)

style: .venv/test.installed
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.house

format: .venv/test.installed
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

## Writes the tables of docs/confirmation-rules.md and docs/wording.md that are made from the wording files.
sentences: .venv/test.installed
	$(BIN)/python -m scripts.sentences

## Writes the list of docs/commands.md from the command line's own parser.
commands: .venv/test.installed
	$(BIN)/python -m scripts.commands

## Writes the bots of askfirst init into the pages of the cookbook, with the conversation that each leads to.
cookbook: .venv/test.installed
	$(BIN)/python -m scripts.cookbook

## Writes the table of docs/platforms.md from the channels' capabilities.
platforms: .venv/test.installed
	$(BIN)/python -m scripts.platforms

## Writes the index of gateway/pending/words and the table of docs/confirmation-rules.md that says how well they are read.
words: .venv/test.installed
	$(BIN)/python -m scripts.words

## Takes the pictures of the chat page: all into .pictures/, to be looked at, and those of the docs into docs/images.
pictures: .venv/test.installed
	$(BIN)/python -m scripts.pictures

## Builds the site of docs/, README.md and examples/ into .site/; a dead link ends it.
docs: .venv/test.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

## Writes what Askfirst is made of, with licences: .sbom/sbom.cdx.json and .sbom/licences.md.
sbom: .venv/test.installed
	$(BIN)/python -m scripts.sbom .sbom

## Writes the locks from pyproject.toml. Versions that still fit stay; `make lock UPGRADE=--upgrade` takes the newest.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(UPGRADE)
LIBRARIES = --extra telegram --extra slack --extra twilio --extra openai --extra anthropic --extra redis \
	--extra languages --extra otel --extra mcp --extra pii --group build
lock: .venv/test.installed
	$(COMPILE) pyproject.toml --extra all --group build --output-file requirements/run.txt
	$(COMPILE) pyproject.toml $(LIBRARIES) --constraint requirements/run.txt --output-file requirements/image.txt
	$(COMPILE) pyproject.toml --extra all --extra test --group build --group test --group docs \
		--constraint requirements/run.txt --output-file requirements/test.txt
	$(COMPILE) pyproject.toml --extra all --group build --group bench --constraint requirements/run.txt \
		--output-file requirements/bench.txt
	$(COMPILE) --group aiogram --output-file requirements/aiogram.txt
	$(COMPILE) --group install --output-file requirements/uv.txt
	$(COMPILE) pyproject.toml --extra all --resolution lowest-direct --output-file .venv/lowest.txt
	$(COMPILE) pyproject.toml --extra all --extra test --group build --group test --constraint .venv/lowest.txt \
		--output-file requirements/lowest.txt

## The contracts of channels, stores and models with the oldest libraries that pyproject.toml takes.
CONTRACTS = $(addprefix tests/, channels/test_contract.py providers/test_contract.py store/test_contract.py \
	store/redis/test_contract.py test_frame.py)
lowest: .lowest/installed
	.lowest/bin/pytest -n 2 -m "not nightly" $(CONTRACTS)

.lowest/installed: requirements/lowest.txt pyproject.toml | $(BIN)/uv
	@echo "Installing requirements/lowest.txt"
	@$(PYTHON) -m venv .lowest
	@$(call install,.lowest,--require-hashes -r requirements/lowest.txt)
	@$(call install,.lowest,$(OURS))
	@touch $@

## Measures webhooks, whole turns, the start-up, asks with their yes and approvals elsewhere; quiet machine, 25 minutes.
bench: .venv/test.installed .bench/installed
	for part in webhooks replies startup confirm approvals; do .bench/bin/python -m bench.$$part || exit 1; done

.bench/installed: requirements/bench.txt requirements/aiogram.txt .venv/run.installed
	@echo "Installing requirements/bench.txt"
	@$(PYTHON) -m venv .bench
	@$(call install,.bench,$(LOCKED) requirements/bench.txt)
	@$(PYTHON) -m venv .bench/aiogram
	@$(call install,.bench/aiogram,--require-hashes -r requirements/aiogram.txt)
	@touch $@

# Installed anew only when a lock or the project's own description changed. Nothing but the locks is asked of an index:
# what builds a package is locked in run.txt, which therefore goes first.
.venv/test.installed: requirements/test.txt .venv/run.installed
	@echo "Installing requirements/test.txt"
	@$(call install,.venv,$(LOCKED) requirements/test.txt)
	@touch $@

.venv/run.installed: requirements/run.txt pyproject.toml | $(BIN)/uv
	@echo "Installing requirements/run.txt"
	@$(call install,.venv,$(LOCKED) requirements/run.txt)
	@$(call install,.venv,$(OURS))
	@touch $@

$(BIN)/uv: requirements/uv.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: https://www.python.org/downloads/" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@touch $@
