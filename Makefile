# SPDX-License-Identifier: GPL-2.0
# The commands for users: `make help` lists the goals. The kernel's build system
# reads Kbuild instead. The scripts in scripts/ do the work; each one's first
# comment describes it.

override EBB_CACHE := $(abspath $(or $(EBB_CACHE),.cache))
export EBB_CACHE

# The kernel tree to build against: KDIR if it is set, otherwise the tree in the
# cache if it exists, otherwise that of the running kernel.
cached = $(shell EBB_CACHE='$(EBB_CACHE)' scripts/setup --print kernel 2>/dev/null)
KDIR ?= $(or $(cached),/lib/modules/$(shell uname -r)/build)

in_root := scripts/in-root
programs := $(EBB_CACHE)/target/tools/powerpc64le-unknown-linux-gnu/release

.DEFAULT_GOAL := modules
# Goals run one after the other. Each script decides itself what it runs at the same time.
.NOTPARALLEL:

.PHONY: modules
modules: ## build ebb_pmu.ko against KDIR (this is what plain `make` does)
	+@scripts/$(if $(STOCK),stock,kbuild) '$(KDIR)' '$(CURDIR)' modules

.PHONY: install
install: modules ## install it where modprobe finds it (INSTALL_MOD_PATH is respected)
	+@scripts/$(if $(STOCK),stock,kbuild) '$(KDIR)' '$(CURDIR)' modules_install

.PHONY: clean
clean: ## remove what the build left in the checkout (EBB_CACHE stays)
	@find '$(CURDIR)' \( -path '$(CURDIR)/.git' -o -path '$(CURDIR)/.cache' -o -path '$(EBB_CACHE)' \) -prune \
		-o -type f \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' -o -name '.*.cmd' \
		-o -name '.*.d' -o -name '.tmp_*' -o -name modules.order -o -name Module.symvers -o -name bindings_generated.rs \) \
		-exec rm -f {} +

.PHONY: setup
setup: ## get toolchain, kernel and emulator into EBB_CACHE
	@scripts/setup root kernel guest

.PHONY: prune
prune: ## remove from EBB_CACHE what older versions of the checkout needed
	@scripts/setup --prune

.PHONY: module
module: ## build ebb_pmu.ko against the kernel in the cache
	@scripts/setup kernel
	@scripts/kbuild "$$(scripts/setup --print kernel)" '$(CURDIR)' modules

.PHONY: tools
tools: ## build the programs for the guest
	@scripts/setup root kernel
	@scripts/cargo tools build --release
	@$(in_root) powerpc64le-linux-gnu-gcc -std=gnu11 -O2 -Wall -Wextra -Werror -static -Iinclude/uapi \
		-isystem "$$(scripts/setup --print kernel)/tools/testing/selftests" -o '$(programs)/ebb_uapi' tools/testing/selftests/ebb/ebb_uapi.c
	@scripts/libebb
	@scripts/libebbprof

.PHONY: install-ebb
install-ebb: ## install libebb for C programs: DESTDIR=, PREFIX=/usr/local, LIBDIR=
	@scripts/setup root
	@scripts/libebb library
	@scripts/libebb install '$(DESTDIR)' '$(or $(PREFIX),/usr/local)' '$(or $(LIBDIR),$(or $(PREFIX),/usr/local)/lib)'

.PHONY: install-ebbprof
install-ebbprof: tools ## install the profiler and its library: DESTDIR=, PREFIX=/usr/local, LIBDIR=
	@scripts/libebbprof install '$(DESTDIR)' '$(or $(PREFIX),/usr/local)' '$(or $(LIBDIR),$(or $(PREFIX),/usr/local)/lib)'

.PHONY: packages
packages: ## build Debian packages of module (DKMS), libraries and profiler in EBB_CACHE/debian
	@scripts/packages

.PHONY: crates
crates: ## make the crates for publication in EBB_CACHE/target/tools/package, and build each from its file
	@scripts/setup root
	@scripts/cargo tools package --allow-dirty -p ebb-perf-event -p ebb-pmu -p ebbprof-client

.PHONY: demo
demo: ## do all that is needed and show Event Based Branches in a guest
	@scripts/demo

.PHONY: check
check: ## run the tests, but for those that take long
	@scripts/setup root kernel guest libs perf selftests
	@scripts/setup rtl || echo 'The model is not compared with RTL.'
	@$(in_root) scripts/check.py

.PHONY: check-long
check-long: ## run the tests that take long
	@scripts/setup root kernel guest libs perf perf-tests selftests viewers cargo-mutants packaging
	@scripts/setup rtl || echo 'The model is not compared with RTL.'
	@$(in_root) scripts/check.py --long

.PHONY: check-debian
check-debian: ## run tests on a kernel configured like Debian's, of which the first build takes half an hour
	@scripts/setup root kernel kernel-debian guest libs perf perf-tests selftests
	@$(in_root) scripts/check.py --debian

.PHONY: check-stock
check-stock: ## run tests on Debian's own kernels for ppc64el, which have neither CONFIG_RUST nor patches
	@scripts/setup root kernel stock guest libs perf selftests
	@$(in_root) scripts/check.py --stock

.PHONY: check-debug
check-debug: ## run the guests' tests on a kernel that checks itself (most of an hour)
	@scripts/setup root kernel-debug guest libs perf perf-tests selftests
	@$(in_root) scripts/check.py --debug

.PHONY: check-here
check-here: ## run the tests on this POWER machine, as root and without QEMU, HERE='--quick' or other options
	@programs='$(programs)'; [ -d "$$programs" ] || programs=ebb-pmu-here; \
	tools/testing/selftests/hardware/check_here.sh --programs "$$programs" $(addprefix --module ,$(wildcard ebb_pmu.ko)) $(HERE)

.PHONY: here-archive
here-archive: tools ## pack check-here for a POWER machine, in ebb-pmu-here.tar.gz, with HERE_MODULE=FILE if given
	@scripts/setup selftests
	@$(in_root) scripts/here_archive.py '$(CURDIR)/ebb-pmu-here.tar.gz' $(abspath $(HERE_MODULE))

.PHONY: conformance
conformance: module ## run the kernel's own PMU selftests; COMPARE=1: under the built-in driver too
	@scripts/setup root guest selftests
	@scripts/python scripts/conformance.py --cpus $(CPUS) --suites $(SUITES) --without $(WITHOUT) --qemu '$(QEMU)' \
		$(if $(COMPARE),--compare)

.PHONY: host-test
host-test: ## run the tests that need no guest
	@scripts/setup root
	@scripts/cargo host test
	@scripts/cargo host test --manifest-path '$(CURDIR)/tools/Cargo.toml' -p ktap -p pmu-model -p ebbprof-ring
	@scripts/test-file tools/ebbprof/src/instruction.rs
	@scripts/test-file tools/ebbprof/src/perfdata/maps.rs
	@scripts/test-file tools/ebbprof/src/perfdata/output.rs
	@scripts/test-file tools/ebbprof/src/sound.rs

.PHONY: mutants
mutants: ## break the driver, one line at a time, and see that a test fails by it, MUTANTS=NAME for one
	@scripts/setup root kernel guest rtl cargo-mutants
	@$(in_root) scripts/mutants.py $(MUTANTS)
	@$(if $(MUTANTS),,scripts/cargo-mutants)

.PHONY: oracle
oracle: ## compare isa207 with a brute force search, GROUPS=100000 for each CPU
	@scripts/setup root
	@PROPTEST_CASES='$(or $(GROUPS),100000)' scripts/cargo host test --release --test properties

.PHONY: fuzz
fuzz: ## look for events that isa207 gets wrong, SECONDS=60 for each target
	@scripts/setup root
	@scripts/fuzz '$(or $(SECONDS),60)'

.PHONY: bench
bench: module tools ## measure each path through both drivers, in instructions, against scripts/tables/bench-goals
	@scripts/setup guest
	@scripts/python scripts/bench.py

.PHONY: bench-solver
bench-solver: tools ## measure what solving a group costs, in instructions
	@scripts/setup kernel guest
	@scripts/vm run --driver in-tree --program isa207_bench -- isa207_bench

.PHONY: stress
stress: module tools ## let many processes with EBBs loose on the driver, MINUTES=10 in all, LIBRARY=1 by libebb
	@scripts/setup guest perf
	@scripts/stress '$(or $(MINUTES),10)' $(if $(LIBRARY),--library)

.PHONY: fuzz-guest
fuzz-guest: module tools ## let processes do anything to the PMU by a seed, MINUTES=10 in all, SEED=, DEBUG=1 or COVERAGE=1
	@scripts/setup guest perf $(if $(DEBUG),kernel-debug)
	@scripts/fuzz-guest '$(or $(MINUTES),10)' "$(or $(SEED),$$(date +%s))" $(if $(DEBUG),--debug,$(if $(COVERAGE),--coverage))

.PHONY: clippy
clippy: ## lint all Rust, with warnings as errors
	@scripts/setup kernel
	@scripts/module-copy kernel clippy CLIPPY=1
	@scripts/cargo host clippy --all-targets -- -D warnings
	@scripts/cargo fuzz clippy --no-default-features -- -D warnings
	@scripts/cargo tools clippy --release -Zpanic-abort-tests --all-targets -- -D warnings
	@scripts/cargo libebb clippy -- -D warnings
	@scripts/cargo libebbprof clippy -- -D warnings
	@scripts/cargo libebbprof clippy --features wrap -- -D warnings

.PHONY: fmt
fmt: ## format all Rust
	@scripts/setup root
	@$(in_root) scripts/lint.py --fix

.PHONY: lint
lint: ## check form and prose of sources and documents
	@scripts/setup kernel
	@$(in_root) scripts/lint.py

.PHONY: doc
doc: ## make the reference of all Rust code in EBB_CACHE/doc
	@scripts/setup kernel
	@scripts/doc

.PHONY: rust-analyzer
rust-analyzer: module ## write rust-project.json, from which editors know all Rust code
	@$(in_root) scripts/rust-analyzer.py

.PHONY: stats
stats: ## lines and `unsafe` of each folder of rust/
	@scripts/stats

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  KDIR=DIR       kernel tree of modules and install; now $(KDIR)'
	@echo '  EBB_MODE=ebb   build the mode for EBB events only: Documentation/modes.md'
	@echo '  STOCK=1        KDIR is of a kernel without CONFIG_RUST, such as /usr/src/linux-headers-VERSION; SOURCE= is its source'
	@echo '  EBB_CACHE=DIR  where everything else is kept; now $(EBB_CACHE)'
	@echo '  CPUS=, SUITES=, WITHOUT=, QEMU=, COMPARE=   what conformance runs: Documentation/testing.md'
