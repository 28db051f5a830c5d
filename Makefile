# The front door. Every target installs what it needs first (scripts/setup; cheap when nothing is missing).
# make PYTHON=python3 TARGET uses a Python that already has torch and installs nothing.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 20
FAULT_REPEATS ?= 10
TRICK_REPEATS ?= 20
HANG_REPEATS ?= 8
QUIET_STEPS ?= 100000
SOAK_CALLS ?= 1000000
N ?= 10
LOAD ?= 5
CHAOS_SECONDS ?= 1800
CHAOS_SEED ?=
PROMISES ?=
BASELINE ?=
TORCH_SUITE_FLAGS ?=

# PYTHON counts only when it is given to make. The scripts see it in their environment exactly then.
ifeq ($(origin PYTHON),command line)
  python := $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null)
  setup := scripts/setup --use "$(PYTHON)"
  setup_train := $(setup)
else
  unexport PYTHON
  python := $(CURDIR)/.venv/bin/python
  setup := scripts/setup --quiet
  setup_train := $(setup) --for train
endif

# $(call configure,PRESET,FOLDER[,FLAG]): runs CMake where it has not run yet, ran with another Python, or without the tests. With
# FLAG (-DBUILD_TESTING=OFF) a folder that has run it before stays as it is.
has = grep -qsxF '$(2)' $(1)/CMakeCache.txt
configure = @[[ -f $(2)/build.ninja ]] && $(call has,$(2),FULLDECK_PYTHON:FILEPATH=$(python)) && \
  { [[ -n "$(3)" ]] || ! $(call has,$(2),BUILD_TESTING:BOOL=OFF); } || \
  cmake --preset $(1) --no-warn-unused-cli -DFULLDECK_PYTHON:FILEPATH="$(python)" -DPython3_EXECUTABLE:FILEPATH="$(python)" \
    $(or $(3),-DBUILD_TESTING=ON)

.PHONY: help setup train test build bench bench-adapters lint format portable asan tsan fuzz fault-grid hang-grid hang-quiet slow-ranks host-grid card-tricks \
  baseline test-repeat test-long promises chaos cgroup-v2 collectives-soak collectives-grid collectives-large wheel package-runs torch-suite compat checkpoint-sweep simulator-ops framework-suite clean-scripts clean

help: ## show this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1 \2/p' $(MAKEFILE_LIST) | \
	  while read -r make target words; do printf '  make %-10s %s\n' "$$target" "$$words"; done
	@echo
	@echo "With a Python that already has torch, installing nothing: make PYTHON=python3 train"

setup: ## install what is missing: Debian packages, and .venv with torch
	@$(setup)

train: ## the main job on a simulated server of 8 cards: learns land cover, fails if a card does no work for its rank, writes a report
	@$(setup_train)
	$(call configure,release,build,-DBUILD_TESTING=OFF)
	@cmake --build build -j $(JOBS) --target demo
	FULLDECK_SIMULATE=gcu:8 build/bin/fulldeck devices
	@if [[ -x build/bin/fulldeck-train ]]; then \
	  set -x; FULLDECK_SIMULATE=gcu:8 build/bin/fulldeck train configs/demo.toml --fresh --idle-card fail; \
	else \
	  echo "fulldeck: this build has no torch: eight ranks in C keep the simulated cards busy instead."; \
	  set -x; FULLDECK_SIMULATE=gcu:8 build/bin/fulldeck run --idle-card fail --idle-card-after 20 --log-dir build/runs \
	    --no-python build/examples/simulated_rank 60 50; \
	fi

test: build ## build everything and run all tests
	@scripts/test build

baseline: build ## record what users see of this build in build/baseline.json, or compare it with BASELINE=FILE
	@scripts/baseline $(if $(BASELINE),compare "$(BASELINE)" build,capture build build/baseline.json)

test-repeat: build ## run all tests N (10) times, LOAD (5) of them under CPU and disk load; resumable, recorded in docs/evidence/repeat.tsv
	@scripts/test-repeat --runs $(N) --load $(LOAD)

test-long: build ## run the tests that take minutes (tests/long)
	@cd tests && FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m pytest -q -rs -p no:cacheprovider long

promises: build ## measure every promise on an idle machine, fail at its figure, write docs/evidence/promises.json (PROMISES=R1,R2: only these)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.promises $(if $(PROMISES),--only $(PROMISES))

chaos: build ## random faults for CHAOS_SECONDS (1800): kills, stops, full disks, dead links, clock jumps (CHAOS_SEED repeats a series)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.chaos --seconds $(CHAOS_SECONDS) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED))

cgroup-v2: build ## out of memory on cgroup v2, in a virtual machine (qemu; half a minute with KVM, three without)
	@scripts/cgroup-v2 build

build: setup ## build into build/
	$(call configure,release,build)
	@cmake --build build -j $(JOBS)

bench: build ## measure the figures of docs/benchmarks.md
	@if grep -qs torch_benches build/build.ninja; then cmake --build build -j $(JOBS) --target torch_benches; fi
	@scripts/bench

bench-adapters: build ## measure what the hook and the adapters cost a Python rank: at its start, and in a step (3 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" "$(python)" bench/adapters_overhead.py

host-grid: build ## break two hosts in every way, 20 times each (root; 12 minutes)
	@PYTHONPATH="$(CURDIR)/tests" $(python) -m grids.host_grid

torch-suite: build ## run torch's own tests of its collectives with our backend beside Gloo, and write docs/torch-suite.md (30 minutes)
	@cd tests && FULLDECK_BUILD_DIR="$(CURDIR)/build" "$(python)" -m torch_suite --document ../docs/torch-suite.md $(TORCH_SUITE_FLAGS)

checkpoint-sweep: build ## kill a save at every write, sync and rename, damage checkpoints 20,000 times, restart killed trainings (10 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" $(python) -m grids.checkpoint_sweep

framework-suite: build ## run Accelerate's own test scripts and FSDP2 under torchrun and under fulldeck, on processors and simulated cards (10 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" $(python) -m grids.framework_suite

clean-scripts: build ## run sound scripts, ours and PyPI packages' own, under fulldeck run --strict: no warning may come (10 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" $(python) -m grids.clean_suite

simulator-ops: build ## try torch's own list of operators on a simulated card, and write docs/simulator-ops.md (10 minutes)
	@FULLDECK_SIMULATE=gcu:1 PYTHONPATH="$(CURDIR)/build/lib/python:$(CURDIR)/tests" $(python) -m grids.simulator_ops --table docs/simulator-ops.md

lint: setup ## check format, clang-tidy, scripts, Python syntax and names
	$(call configure,release,build)
	@scripts/lint build

format: setup ## format the C++ sources in place
	@scripts/lint --fix

portable: setup ## build for old containers (glibc 2.27, x86_64 and aarch64) into dist/
	@scripts/portable

asan: setup ## build and run the C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer
	$(call configure,asan,build-asan)
	@cmake --build build-asan -j $(JOBS)
	@scripts/test --no-python build-asan

tsan: setup ## build and run the C++ tests with ThreadSanitizer
	$(call configure,tsan,build-tsan)
	@cmake --build build-tsan -j $(JOBS)
	@scripts/test --no-python build-tsan

fuzz: setup ## run every fuzzer for FUZZ_SECONDS (20)
	$(call configure,fuzz,build-fuzz)
	@cmake --build build-fuzz -j $(JOBS)
	@scripts/fuzz build-fuzz $(FUZZ_SECONDS)

card-tricks: build ## runs that only seem to keep every card busy, TRICK_REPEATS (20) times each, verdict and exit code checked (20 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.card_tricks --repeats $(TRICK_REPEATS)

fault-grid: build ## kill, stop, starve and freeze ranks and launchers, each cell FAULT_REPEATS (10) times
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.fault_grid --repeats $(FAULT_REPEATS)

wheel: build ## write the wheels into dist/: for this Python and its torch, and for any Python without
	@"$(python)" python/build_backend/fulldeck_build.py dist built=build python="$(python)"
	@if grep -qs fulldeck_torch build/build.ninja; then "$(python)" python/build_backend/fulldeck_build.py dist built=build python="$(python)" torch=no; fi

hang-grid: build ## let ranks loop, deadlock, sleep, stop, skip and differ, in C and in plain torch, HANG_REPEATS (8) times each (20 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.hang_grid --repeats $(HANG_REPEATS) --torchrun 60

slow-ranks: build ## one rank of four 1.3 times slower, and 10,000 clean steps, in C and in plain torch (8 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.hang_grid --stragglers 12 --seconds 420

hang-quiet: build ## QUIET_STEPS (100,000) clean steps with and without load, a slow first step, checkpoints, silent uploads, a debugger: no hang (35 minutes)
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.hang_grid --quiet $(QUIET_STEPS) --seconds 1800

package-runs: build ## compile and install the Python package as pip does, and end 200 runs without goodbye (20 minutes)
	@PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.wheel_runs
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.exit_runs --runs 200

collectives-soak: build ## SOAK_CALLS (1,000,000) random collective calls in several groups at once, all checked
	@build/tests/collectives_soak --calls $(SOAK_CALLS) --ranks 4 --seed 1 --seconds 7200
	@build/tests/collectives_soak --calls $$(($(SOAK_CALLS) / 10)) --ranks 9 --seed 2 --seconds 7200

collectives-grid: build ## kill, stop and desync ranks at every phase of a collective, each cell FAULT_REPEATS (10) times
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.collectives_grid --repeats $(FAULT_REPEATS)

collectives-large: build ## collectives of more than 4 GiB (needs 10 GiB of free memory), and every size of the values test
	@FULLDECK_BUILD_DIR="$(CURDIR)/build" PYTHONPATH="$(CURDIR)/tests" "$(python)" -m grids.collectives_grid --large
	@FULLDECK_LONG_TESTS=1 build/tests/collectives_test --gtest_brief=1 --gtest_filter='*GroupValues*:*GroupLevels*'

compat: setup ## compile the c10d backend against the headers of torch 2.6, 2.7, 2.11 and 2.13 (downloads 1 GB once)
	@scripts/compat

clean: ## remove everything that was built; .venv stays
	rm -rf build build-asan build-tsan build-fuzz build-portable build-compat dist
