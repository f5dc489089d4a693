# Greenroom's commands. `make` alone lists them; each first brings .venv up to date, which is quick when it is.
.PHONY: help setup demo test test-long walk sweep campaign soak fuzz bench gpu-check check docs lock clean
.DEFAULT_GOAL := help

PYTEST_ARGS ?=

help:      ## list these commands
	@sed -n 's/^\([a-z-]*\): *\([a-z]* *\)## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup:     ## make .venv from requirements.lock, with greenroom, runsc and busybox (AGAIN=1: even if it is up to date)
	@scripts/setup $(if $(AGAIN),--again)

demo: setup ## the main job: an actor is started, suspended, resumed in a fresh sandbox and stopped; then one with GPUs of a mock node
	@.venv/bin/greenroom demo --or-simulated

test: setup ## the test suite, without the long tests
	@scripts/test $(PYTEST_ARGS)

test-long: setup ## the long tests, and the suite again on a newer Python when the machine has one
	@scripts/test-long $(PYTEST_ARGS)

walk: setup ## crash and send SIGTERM at every point of every life in the simulated world, and look (WALK_ARGS="run-stop --every 10")
	@.venv/bin/python -m sim.cli.walk $(WALK_ARGS)

sweep: setup ## let every call of a life fail, hang, lie or be cut in the middle, in the simulated world (SWEEP_ARGS="--every 10")
	@.venv/bin/python -m sim.cli.sweep $(SWEEP_ARGS)

campaign: setup ## the contract of runsc and 200 lives on fake and real, the long walks, 2,000 seeds of chaos and its defects
	@.venv/bin/pytest -m campaign -o faulthandler_timeout=3600 $(PYTEST_ARGS)

soak: setup ## 200 rounds of suspend and resume of one actor in real gVisor: nothing may grow
	@.venv/bin/pytest -m campaign -o faulthandler_timeout=3600 tests/real/test_drift.py $(PYTEST_ARGS)

fuzz: setup ## look for inputs that break a reader, five minutes each (FUZZ_S=60: for one; FUZZ="cdi journal": these)
	@for target in $(or $(FUZZ),$$(.venv/bin/python -m tests.fuzzing.targets)); do \
		.venv/bin/python -m tests.fuzzing $$target $(or $(FUZZ_S),300) || exit 1; \
	done

bench: setup ## measure what has a bound in seconds, on a machine that does nothing else
	@.venv/bin/pytest -m bench -s $(PYTEST_ARGS)

gpu-check: setup ## pack the check of a real GPU, and make it where there is one (77: not here, and why)
	@scripts/gpu-check $(GPU_CHECK_ARGS)

check: setup ## lint, format, types and the import layers
	@scripts/check

docs: setup ## write the generated parts of the documentation anew
	@.venv/bin/python scripts/render-docs

lock:      ## remake requirements.lock from pyproject.toml (UPGRADE=1: newest versions)
	@scripts/lock $(if $(UPGRADE),--upgrade)

clean:     ## remove everything that the other commands made
	rm -rf .venv .venv-* .venv.lock .venv.log build dist
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
