# Everything a developer or CI does. Each target works as the first command in a fresh clone:
# it makes .venv from infra/requirements.lock when that is missing or out of date.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/installed
LOCK  := infra/requirements.lock
UV    := 0.13.9

.DEFAULT_GOAL := help
.PHONY: help install demo test acceptance check format bench eval lock clean

help:
	@echo 'make install     the environment .venv, from $(LOCK)'
	@echo 'make demo        starts everything and plays three conversations'
	@echo 'make test        unit and integration tests, and the short acceptance tests'
	@echo 'make acceptance  every acceptance test: crashes, rebalances, floods (30 minutes)'
	@echo 'make check       format, lint, types, import rules'
	@echo 'make format      formats and mends what ruff can'
	@echo 'make bench       the benchmarks, as a table'
	@echo 'make eval        the labelled conversations, as a table (ARGS=--help says more)'
	@echo 'make lock        writes $(LOCK) anew from pyproject.toml'
	@echo 'make clean       removes what these targets made'

install: $(STAMP)

$(STAMP): $(LOCK) pyproject.toml infra/make-venv
	@bash infra/make-venv $(VENV) $(LOCK)
	@touch $@

demo: $(STAMP)
	@$(BIN)/keepsake demo

test: $(STAMP)
	$(BIN)/pytest tests/unit tests/integration --numprocesses 2 --dist loadfile
	$(BIN)/pytest tests/acceptance -m short

acceptance: $(STAMP)
	$(BIN)/pytest tests/acceptance

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m tests.bench

eval: $(STAMP)
	@$(BIN)/python -m tests.eval $(ARGS)

lock: $(STAMP)
	$(BIN)/pip install --quiet uv==$(UV)
	$(BIN)/uv pip compile pyproject.toml --quiet --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file $(LOCK)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
