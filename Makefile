# sidestep -- the short way in: one page over Meson.
# Each target first sees to what it needs: tools/setup installs it, or says what to type.
#
#:   make                  libsidestep.so, libsidestep.a and the command line, in build/
#:   make check            every test; its last line is "N passed, N failed"
#:       SAN=address       the unit tests with a sanitizer: address, undefined or thread
#:       SUITES="unit cli" only these suites
#:   make check-gpu        tensors on devices: over a stand-in driver, and on a GPU if there is one;
#:                         for a GPU on loan: tests/gpu/run --sitting 20m
#:   make check-objects    object stores and clients that others wrote, on this machine
#:   make check-frameworks the adapters under the real Lightning, Transformers, ...: minutes
#:   make check-torch      quick tests with other versions of torch, VERSIONS="2.5.1 2.14.1": large downloads
#:   make check-source     the rules of CONTRIBUTING.md that a program can keep
#:   make lint             the checks of clang-tidy that are quiet on this code (.clang-tidy): minutes
#:   make demo             a training in PyTorch, killed and resumed, beside the same with stock DCP
#:                         ROOT=s3://BUCKET/PREFIX: with checkpoints in an object store
#:   make demo-mpi         a training in C under MPI: saved, killed, resumed on fewer ranks
#:   make bench            stall, save and load throughput
#:   make fuzz             each fuzz target for FUZZ_SECONDS=60; TARGETS="archive pickle": only these
#:   make long             the tests that take long: all of check, more of each, and ten times fuzz
#:   make combinations the tests of saving and loading, with each snapshot and each way to storage: an hour or more
#:   make kills            a training, of one rank and of 4 under torchrun, ended KILLS=200 times; an hour or more
#:   make habits       storage with the rules of NFS, Lustre, SMB, mounts of object stores: all of them; minutes
#:   make nfs          a real NFS, server and clients, in a virtual machine: half an hour
#:   make environments limits, locales, containers, allocators ...: some 70 environments; minutes, as root
#:   make hosts        hosts that freeze, or lose their network; 64 ranks, of which one is killed: minutes
#:   make dist             dist/sidestep-VERSION.tar.gz, which pip builds with gcc and make alone
#:   make check-dist       that in bare systems, SYSTEMS="debian-11 ubuntu-22.04 ...": minutes, as root
#:   make check-build      a build from source with the packages of SYSTEMS="debian-13 ubuntu-24.04 ...": minutes, as root
#:   make wheel            dist/sidestep-...-manylinux_2_28_....whl, which needs nothing but glibc 2.28
#:       ARCHITECTURES=aarch64  for ARM64
#:   make check-wheel      that wheel in bare systems, SYSTEMS="debian-11 ubuntu-24.04 ...": minutes, as root
#:       ARCHITECTURES=aarch64 SYSTEMS=debian-12-arm64  under qemu-user
#:   make check-arm64      the tests of C for ARM64, under qemu-user: an hour and a half, as root;
#:                         SUITES="unit fuzz crash-model"
#:   make check-arm64-machine  copy-on-write, O_DIRECT and io_uring in an emulated machine for ARM64,
#:                         with Linux 6.12 and PAGES="4k 16k": half an hour, as root
#:   make deb              dist/*.deb, for the Debian that this machine runs
#:   make check-deb        those, installed in a bare Debian 12, used and removed: minutes, as root
#:   make install          to PREFIX=/usr/local, below DESTDIR if that is given
#:   make clean

PREFIX ?= /usr/local
LIBDIR ?= lib
FUZZ_SECONDS ?= 60
KILLS ?= 200
BUILD := build$(if $(SAN),-$(SAN))
OPTIONS := $(if $(SAN),-Db_sanitize=$(SAN),$(if $(CI),--werror))

# The job server is make's; ninja has its own.
unexport MAKEFLAGS

.PHONY: all check check-frameworks check-gpu check-objects check-source lint demo demo-mpi bench fuzz long combinations kills habits nfs hosts dist check-dist wheel check-wheel check-arm64 check-arm64-machine deb check-deb check-torch check-build environments install clean help

# NEEDS: the groups of tools/setup that a target needs beside those to build, so that an ordinary user
# reads in one message all that is missing.
all:
	@tools/setup build $(NEEDS)
	@tools/build $(BUILD) $(OPTIONS)

check:
	@groups='build check python'; ! command -v python3 >/dev/null || \
	    groups=$$(tools/run-tests --groups $(if $(SAN),--san=$(SAN)) $(SUITES)) && tools/setup $$groups
	@tools/run-tests $(if $(SAN),--san=$(SAN)) $(SUITES)

check-gpu: NEEDS = python
check-gpu: all
	@ninja -C $(BUILD) --quiet test-programs
	@tests/gpu/run $(BUILD)

check-objects: NEEDS = objects python clients
check-objects: all
	@ninja -C $(BUILD) --quiet test-programs
	@PYTHONPATH=python SIDESTEP_LIBRARY=$(abspath $(BUILD))/libsidestep.so.0 \
	    .venv/bin/python -m pytest -q -p no:cacheprovider \
	    tests/objects -o "python_files=stores_*.py"

check-frameworks:
	@FRAMEWORKS="$(FRAMEWORKS)" tools/setup build check frameworks
	@tools/run-tests $(or $(SUITES),lightning transformers accelerate torchtitan torchtune megatron deepspeed ray adapt framework-kills)

VERSIONS ?= 2.5.1 2.14.1
check-torch: NEEDS = python
check-torch: all
	@TORCH="$(VERSIONS)" tools/setup torch
	@tests/torch/run $(VERSIONS)

lint: NEEDS = lint
lint: all
	@clang-tidy-19 --quiet -p $(BUILD) $$(git ls-files 'src/*.c' 'cli/*.c')

check-source:
	@tools/setup source
	@tools/check-source

demo: NEEDS = python
demo: all
	@$(if $(ROOT),tools/demo-bucket "$(ROOT)",tools/demo)

demo-mpi: NEEDS = demo
demo-mpi: all
	@tools/demo-mpi

bench: NEEDS = bench python
bench: all
	@bench/run

fuzz:
	@tools/setup build fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz $(TARGETS)

long:
	@SIDESTEP_LONG=1 $(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory lint check-frameworks check-wheel check-deb check-torch check-build \
	    check-arm64 check-arm64-machine
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600

combinations: NEEDS = check python
combinations: all
	@tests/combinations $(SUITES)

kills: NEEDS = python frameworks
kills: all
	@SIDESTEP_TORCHRUN=1 SIDESTEP_KILLS=$(KILLS) PYTHONPATH=python SIDESTEP_LIBRARY=$(abspath $(BUILD))/libsidestep.so.0 \
	    .venv/bin/python -m pytest -q -s -x -p no:cacheprovider \
	    python/tests/test_series_kills.py python/tests/test_series_ranks.py tests/frameworks/test_kills.py

habits: NEEDS = check
habits: all
	@ninja -C $(BUILD) --quiet test-programs
	@tests/habits/run $(BUILD) --long

nfs: NEEDS = check nfs
nfs: all
	@ninja -C $(BUILD) --quiet test-programs
	@tests/nfs/run $(BUILD) --long

hosts: NEEDS = check hosts python
hosts: all
	@ninja -C $(BUILD) --quiet test-programs
	@tests/hosts/run $(BUILD)

environments:
	@tools/setup build check python environments
	@SIDESTEP_LONG=1 tools/run-tests environments

dist:
	@tools/setup wheel
	@tools/get-libraries
	@rm -f dist/sidestep-*.tar.gz
	@PATH=$(abspath .venv/wheel/bin):$$PATH PYTHONPATH=python/backend .venv/wheel/bin/python -c \
	    'import sidestep_backend; print("dist/" + sidestep_backend.build_sdist("dist"))'

check-dist: dist
	@tools/setup systems python
	@tests/systems/run --source $(SYSTEMS)

check-build:
	@tools/setup systems python
	@tests/systems/from-source $(SYSTEMS)

wheel:
	@tools/setup wheel
	@tools/make-wheel $(ARCHITECTURES)

check-wheel: wheel
	@tools/setup systems python $(if $(filter %-arm64,$(SYSTEMS)),emulator)
	@tests/systems/run $(SYSTEMS)

check-arm64:
	@tools/setup build check emulator arm64
	@tests/arm64/run $(or $(SUITES),unit fuzz crash-model)

check-arm64-machine:
	@tools/setup build check emulator arm64
	@tests/arm64/run build-tests
	@for pages in $(or $(PAGES),4k 16k); do tests/arm64/machine $$pages || exit 1; done

deb:
	@tools/setup deb
	@tools/make-deb

check-deb: deb
	@tools/setup systems
	@tests/systems/from-deb

install: all
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) -Dlibdir=$(LIBDIR)
	@meson install -C $(BUILD) $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	rm -rf build build-address build-undefined build-thread build-fuzz build-wheel build-deb build-arm64
	rm -f python/sidestep/_c/abi.py
	rm -rf .mesonpy-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find python tests tools bench -name __pycache__ -prune -exec rm -rf {} +

help:
	@sed -n 's/^#: //p' Makefile
