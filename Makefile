# Front door for people; CMake does the work (CMakePresets.json). `make` alone lists what there is.
JOBS ?= $(shell nproc)
SECONDS ?= 30
BUILD := build/release
export JOBS

.DEFAULT_GOAL := help
.PHONY: help demo build test test-fast bench format format-check tidy asan tsan fuzz install clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo
	@echo "  Missing Debian packages are installed first (with sudo when needed). JOBS=$(JOBS)"

# $(call configure,<preset>): quiet unless it fails.
configure = cmake --preset $(1) >build/configure-$(1).log 2>&1 || { cat build/configure-$(1).log; exit 1; }

build: packages-build  ## the program, build/release/firstlight
	@mkdir -p build && $(call configure,release)
	@cmake --build $(BUILD) -j $(JOBS) --target firstlight

demo: build  ## builds, then runs the bundled model on demo/prompt.txt
	@tools/demo $(BUILD)/firstlight

test: build-all  ## builds everything and runs all tests
	@tools/run_tests $(BUILD)

test-fast: build-all  ## the same without the tests labelled slow
	@tools/run_tests $(BUILD) -LE slow

.PHONY: build-all packages-build packages-bench packages-check
build-all: packages-build
	@mkdir -p build && $(call configure,release)
	@cmake --build $(BUILD) -j $(JOBS) --target all benchmarks

packages-build packages-bench packages-check: packages-%:
	@tools/install_packages $*

bench: packages-build packages-bench  ## builds and runs the benchmarks
	@mkdir -p build && $(call configure,release)
	@cmake --build $(BUILD) -j $(JOBS) --target benchmarks firstlight
	@for b in $(BUILD)/bench/*_bench; do echo "== $$b"; $$b || exit 1; done

format: packages-check  ## rewrites the C++ files as .clang-format says
	@tools/format

format-check: packages-check  ## reports files that `make format` would change
	@tools/format --check

tidy: packages-build packages-check  ## clang-tidy on the files changed since the merge base or last commit
	@mkdir -p build && $(call configure,release)
	@tools/tidy $(BUILD)

asan: packages-build  ## unit tests under the address and undefined-behaviour sanitizers
	@mkdir -p build && $(call configure,asan)
	@cmake --build build/asan -j $(JOBS) --target unit_tests
	@tools/run_tests build/asan -L unit -LE slow

tsan: packages-build  ## unit tests under the thread sanitizer
	@mkdir -p build && $(call configure,tsan)
	@cmake --build build/tsan -j $(JOBS) --target unit_tests
	@tools/run_tests build/tsan -L unit -LE slow

fuzz: packages-build packages-check  ## every parser's fuzz target for SECONDS (30) each
	@mkdir -p build && $(call configure,fuzz)
	@cmake --build build/fuzz -j $(JOBS) --target fuzzers
	@tools/fuzz build/fuzz $(SECONDS)

PREFIX ?= /usr/local
install: packages-build  ## installs the program and the model files under PREFIX (/usr/local)
	@mkdir -p build && $(call configure,release)
	@cmake --build $(BUILD) -j $(JOBS) --target firstlight firstlight_module
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:  ## removes build/
	rm -rf build
