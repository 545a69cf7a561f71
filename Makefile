# Every target builds the environment if it is missing and costs nothing when it is there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEMO   := $(VENV)/.demo

# One BLAS thread per process: small matrices on a few busy cores lose more to waiting than they gain.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1

.PHONY: help rooms demo test test-fast test-lowest fuzz kills lint bench figures verdicts clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

define check_python
@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v.major}.{v.minor}: make PYTHON=/path/to/python3.11 ...")'
endef

$(READY): pyproject.toml constraints.txt
	$(check_python)
	@echo "Setting up $(VENV) (about two minutes, once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[models,report,dask,huggingface,lightning,tensorboard,wandb,trackio,dev]'
	@touch $@

$(DEMO): pyproject.toml constraints.txt
	$(check_python)
	@echo "Setting up $(VENV) with what the demo needs (about a minute, once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[report]'
	@touch $@

demo: $(if $(wildcard $(READY)),$(READY),$(DEMO))  ## set-up, then two small models: a report on what one learned, a gallery of figures
	$(BIN)/python -m analyses.demo

figures: $(READY)  ## all figures at quick size, judged on the first seeds: some 40 minutes on two cores
	$(BIN)/python -m analyses --out results

verdicts: $(READY)  ## the committed verdicts anew: fresh seeds too, the linear head at the printed settings; over an hour on two cores
	$(BIN)/python -m analyses --committed --out results

test: $(READY)  ## set-up and all tests
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-fast: $(READY)  ## the tests that take seconds, without the run-time type checks that `make test` has
	$(BIN)/python -m pytest -o addopts='-q --strict-markers' -n auto --dist loadgroup -m 'not slow'

test-lowest:  ## the mathematics, tables and runs with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt . 'pytest>=8' hypothesis beartype
	.venv-lowest/bin/python -m pytest -o addopts='-q --strict-markers' tests/test_find_transitions.py tests/test_series.py \
		tests/test_tables.py tests/test_towers_and_stages.py tests/test_run_directory.py tests/test_spectra.py tests/test_grams.py
	.venv-lowest/bin/probes list

fuzz: $(READY)  ## three minutes of changed files and answers of every format: right data or an error that names the file
	$(BIN)/python -m tests.fuzz --seconds 180

kills: $(READY)  ## kill everything that writes at random moments, 50 times each: it must go on to the same result
	$(BIN)/python -m tests.kills --kills 50

rooms: $(READY)  ## who imports whom inside probes, room by room
	$(BIN)/python -m tests.import_graph

lint: $(READY)  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY)  ## speed, as ratios side by side in one run
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-lowest .pytest_cache .ruff_cache .hypothesis
