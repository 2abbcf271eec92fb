# sidestep -- the short way in: one page over Meson.
# Each target first sees to what it needs: tools/setup installs it, or says what to type.
#
#:   make                  libsidestep.so, libsidestep.a and the command line, in build/
#:   make check            every test; its last line is "N passed, N failed"
#:       SAN=address       the unit tests with a sanitizer: address, undefined or thread
#:       SUITES="unit cli" only these suites
#:   make check-source     the rules of CONTRIBUTING.md that a program can keep
#:   make demo             save, kill and resume a small training, on several ranks
#:   make bench            stall, save and load throughput
#:   make fuzz             each fuzz target for FUZZ_SECONDS=60; TARGETS="archive pickle": only these
#:   make long             the tests that take long: all of check, more of each, and ten times fuzz
#:   make install          to PREFIX=/usr/local, below DESTDIR if that is given
#:   make clean

PREFIX ?= /usr/local
LIBDIR ?= lib
FUZZ_SECONDS ?= 60
BUILD := build$(if $(SAN),-$(SAN))
OPTIONS := $(if $(SAN),-Db_sanitize=$(SAN),$(if $(CI),--werror))

# The job server is make's; ninja has its own.
unexport MAKEFLAGS

.PHONY: all check check-source demo bench fuzz long install clean help

all:
	@tools/setup build
	@tools/build $(BUILD) $(OPTIONS)

check:
	@tools/setup build check $(if $(SAN),,python)
	@tools/run-tests $(if $(SAN),--san=$(SAN)) $(SUITES)

check-source:
	@tools/setup source
	@tools/check-source

demo: all
	@tools/setup demo
	@tools/demo

bench: all
	@tools/setup bench python
	@bench/run

fuzz:
	@tools/setup build fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz $(TARGETS)

long:
	@SIDESTEP_LONG=1 $(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600

install: all
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) -Dlibdir=$(LIBDIR)
	@meson install -C $(BUILD) $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	rm -rf build build-address build-undefined build-thread build-fuzz

help:
	@sed -n 's/^#: //p' Makefile
