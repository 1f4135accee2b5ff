# stackpulse: make, make demo, make check. Everything that is built lies under $(BUILD).
#
#   make            the four tools in build/bin
#   make demo       install what is missing, build, profile a sample program (or PID=…, CMD='…')
#   make check      install what is missing, build, pass every test
#   make bench      side by side with the peers
#   make help       the other targets

# The one list of Debian packages: what a build needs, what the tests need besides, and what only
# make lint, fmt, valgrind need.
BUILD_PKGS := gcc g++ make pkg-config libzstd-dev libdeflate-dev liblzma-dev libbz2-dev libiberty-dev libisal-dev libbpf-dev
TEST_PKGS  := bats clang llvm bpftool libclang-rt-14-dev linux-perf elfutils libelf-dev libdw-dev binutils musl-tools lld mold ocaml-nox python3 nodejs dwz debuginfod libdebuginfod1 curl iproute2 \
              gdb patchelf procps xz-utils bzip2
DEV_PKGS   := shellcheck clang-format-14 valgrind
READER_PKGS := chromium valgrind clickhouse-server curl

BUILD  ?= build
PREFIX ?= /usr/local
DESTDIR ?=

Q := $(if $(V),,@)
OPT      ?= -O2 -g
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wvla -Wformat=2 -Wcast-qual \
            -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wundef -Wnull-dereference \
            -Wpointer-arith -Wwrite-strings
HARDEN   := -fstack-protector-strong -fno-omit-frame-pointer -fPIC
FORTIFY  := $(if $(SAN),,-D_FORTIFY_SOURCE=2)
# gcc 12 sees uninitialized variables where its own sanitizer code stands.
ifdef SAN
SANFLAGS := -fsanitize=$(SAN) -fno-sanitize-recover=all $(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized)
endif
ifeq ($(WERROR),1)
WARN     += -Werror
endif
CFLAGS   += -std=gnu17 $(OPT) $(WARN) $(HARDEN) $(SANFLAGS)
CPPFLAGS += $(if $(filter no,$(DEBUGINFOD)),-DSP_NO_DEBUGINFOD) $(if $(filter no,$(BPF)),-DSP_NO_BPF) -Icommon -Icommon/include $(FORTIFY) -pthread
LDFLAGS  += -Wl,-z,relro,-z,now -pthread $(SANFLAGS)
PACKERS  := zstd deflate lzma bz2
LDLIBS   := $(PACKERS:%=-l%) -liberty
# The tools take archives where there are any: ld.so needs a quarter of a millisecond to find, map and
# relocate four shared libraries, at each start, for what most inputs do not need. SHARED=yes: those.
archive   = $(firstword $(if $(filter yes,$(SHARED)),,$(filter /%,$(shell $(CC) -print-file-name=lib$(1).a))) -l$(1))
TOOLLIBS := $(foreach l,$(PACKERS),$(call archive,$(l))) -liberty

TOOLS  := sp-capture sp-unwind sp-spool sp-sym
COMMON := $(wildcard common/*/*.c)
LIBOBJ := $(COMMON:%.c=$(BUILD)/obj/%.o)
LIB    := $(BUILD)/lib/libsp.a
HAVE   := $(foreach t,$(TOOLS),$(if $(wildcard $(t)/main.c),$(t)))

all: $(HAVE:%=$(BUILD)/bin/%)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo '  CC    $<'
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Files that are part of an object.
$(BUILD)/obj/sp-sym/fmt_flamegraph.o: sp-sym/flamegraph.css sp-sym/flamegraph.js

# gcc 12 keeps the walk's pc and sp together in a vector register, on the path from frame to frame.
$(BUILD)/obj/sp-unwind/walk.o: CFLAGS += -fno-tree-slp-vectorize

# Objects are made again when the flags change.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(TOOLLIBS)' | cmp -s - $@ || echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(TOOLLIBS)' > $@
FORCE:

$(LIB): $(LIBOBJ)
	@mkdir -p $(@D)
	@rm -f $@
	@echo '  AR    $@'
	$(Q)$(AR) rcs $@ $^

define tool
$(BUILD)/bin/$(1): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)/*.c)) $(LIB)
	@mkdir -p $$(@D)
	@echo '  LD    $$@'
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(TOOLLIBS) $(LIBS_$(1))
endef
# The BPF engine; BPF=no builds without it.
LIBS_sp-capture := $(if $(filter no,$(BPF)),,$(foreach l,bpf elf z,$(call archive,$(l))))
LIBS_sp-sym     := -lisal
$(foreach t,$(HAVE),$(eval $(call tool,$(t))))

# ---- The BPF programs ----------------------------------------------------------------------------
# What they compile to is committed, so that a build needs neither clang nor bpftool: after a change
# of sp-capture/bpf/*.bpf.c, make bpf-regen; make bpf-check tells whether what is there is current.
# The line tables name files from the top folder: the same bytes wherever the tree lies.
BPF_DIR    := sp-capture/bpf
BPF_CLANG  ?= clang-14
BPFTOOL    ?= $(firstword $(wildcard /usr/sbin/bpftool /usr/local/sbin/bpftool) bpftool)
BPF_ARCHES := x86 arm64
BPF_SKELS  := $(foreach a,$(BPF_ARCHES),$(BUILD)/bpf/capture.skel.$a.h $(BUILD)/bpf/light.skel.$a.h)
BPF_SOURCE := $(filter-out %.skel.x86.h %.skel.arm64.h,$(wildcard $(BPF_DIR)/*))
# Of one kind: its name, flags for the compiler, flags for bpftool.
define bpf_skel
$$(BUILD)/bpf/$(1).skel.%.h: $$(BPF_SOURCE)
	@mkdir -p $$(@D)
	@echo '  BPF   $$@'
	$$(Q)$$(BPF_CLANG) -g -O2 -Wall -Werror -target bpf -mcpu=v3 -D__TARGET_ARCH_$$* $(2) \
		-ffile-compilation-dir=. \
		-I/usr/include/$$$$($$(CC) -dumpmachine) -c -o $$(@D)/$(1).$$*.raw.o $$(BPF_DIR)/capture.bpf.c
	$$(Q)$$(BPFTOOL) gen object $$(@D)/$(1).$$*.o $$(@D)/$(1).$$*.raw.o
	$$(Q)(echo '/* Made by make bpf-regen. */'; \
		$$(BPFTOOL) gen skeleton $(3) $$(@D)/$(1).$$*.o name $(1)_bpf) >$$@.new
	$$(Q)mv $$@.new $$@
endef
$(eval $(call bpf_skel,capture,,))
$(eval $(call bpf_skel,light,-DSPB_LIGHT,-L))
bpf-deps:
	$(call install_packages,$(BUILD_PKGS) clang bpftool,the BPF programs)
bpf-regen: bpf-deps
	@$(MAKE) -s --no-print-directory $(BPF_SKELS)
	@cp $(BPF_SKELS) $(BPF_DIR)
bpf-check: bpf-deps
	@$(MAKE) -s --no-print-directory $(BPF_SKELS)
	@for skel in $(notdir $(BPF_SKELS)); do \
		cmp $(BUILD)/bpf/$$skel $(BPF_DIR)/$$skel || { \
			echo "$(BPF_DIR)/$$skel is not current: make bpf-regen"; exit 1; }; \
	done
	@echo "bpf: the committed programs are current"

# Unit tests: each tests/unit/NAME.c is a program that speaks TAP. A test of one tool's inner parts
# names them: a line "unit: sp-unwind/cfi.c" in its first comment; "libs: -ldw" for what only it needs.
UNITS := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/*.c))
unit_parts = $(shell sed '/\*\//q' tests/unit/$(1).c | tr -s '\n\t *' ' ' | grep -o 'unit: .*' | grep -oE 'sp-[a-z]+/[a-z0-9_]+\.c')
unit_libs = $(shell sed -n 's/^.*libs: \(-l[-a-z ]*[a-z]\).*/\1/p' tests/unit/$(1).c)
define unit
$(BUILD)/unit/$(1): $(BUILD)/obj/tests/unit/$(1).o $(patsubst %.c,$(BUILD)/obj/%.o,$(call unit_parts,$(1))) $(LIB)
	@mkdir -p $$(@D)
	@echo '  LD    $$@'
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(LDLIBS) $(call unit_libs,$(1))
endef
$(foreach u,$(UNITS),$(eval $(call unit,$(u))))

units: $(UNITS:%=$(BUILD)/unit/%)

# Small programs over common/ that suites use: tests/tool/NAME.c.
TEST_TOOLS := $(patsubst tests/tool/%.c,%,$(wildcard tests/tool/*.c))
define test_tool
$(BUILD)/tests/tool/$(1): $(BUILD)/obj/tests/tool/$(1).o $(LIB)
	@mkdir -p $$(@D)
	@echo '  LD    $$@'
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(LDLIBS)
endef
$(foreach t,$(TEST_TOOLS),$(eval $(call test_tool,$(t))))
test-tools: $(TEST_TOOLS:%=$(BUILD)/tests/tool/%)

# ---- Packages ------------------------------------------------------------------------------------
# Installs only what dpkg does not have; says nothing when nothing is missing.
define install_packages
@command -v dpkg-query >/dev/null || { echo "No dpkg here. Needed by $(2): $(1)"; exit 0; }; \
missing=; for p in $(1); do \
	dpkg-query -W -f '$${db:Status-Status}\n' $$p 2>/dev/null | grep -qx installed || missing="$$missing $$p"; \
done; \
[ -z "$$missing" ] || { \
	echo "Installing for $(2):$$missing"; \
	as=; [ "$$(id -u)" = 0 ] || as=sudo; \
	if [ -n "$$as" ] && ! command -v sudo >/dev/null; then \
		echo "There is no sudo here. As root: apt-get install$$missing" >&2; exit 1; fi; \
	$$as apt-get -qq update; \
	$$as env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $$missing \
		>/dev/null </dev/null; }
endef

deps:
	$(call install_packages,$(BUILD_PKGS),the build)
test-deps:
	$(call install_packages,$(BUILD_PKGS) $(TEST_PKGS),the tests)
reader-deps:
	$(call install_packages,$(BUILD_PKGS) $(TEST_PKGS) $(READER_PKGS),this target)
dev-deps:
	$(call install_packages,$(BUILD_PKGS) $(TEST_PKGS) $(DEV_PKGS),this target)

# ---- Demo ----------------------------------------------------------------------------------------
# make demo | make demo PID=1234 | make demo CMD='gzip -k file'   (DURATION=10 for a PID)
demo: deps
	@echo "Building the four tools into $(BUILD)/bin …"
	@$(MAKE) -s --no-print-directory all $(PROG)/demo
	@BUILD='$(abspath $(BUILD))' PROG='$(abspath $(PROG))' tests/demo

# ---- Programs that the tests look at -------------------------------------------------------------
# They do not depend on how the tools are built: the sanitizer builds use the same ones.
PROG ?= build/tests/prog
comma := ,
PROGS :=

# $(call prog,NAME,SOURCES,COMPILER AND FLAGS)
define prog
PROGS += $(PROG)/$(1)
$(PROG)/$(1): $(2:%=tests/prog/%) tests/prog/target.h Makefile
	@mkdir -p $$(@D)
	@echo "  PROG $(1)"
	@$(3) -Wall -Wextra -o $$@ $(2:%=tests/prog/%) $(4)
endef
$(eval $(call prog,chain-pie,chain.c,gcc -O2 -g -fPIE -pie))
$(eval $(call prog,chain-nopie,chain.c,gcc -O2 -g -fno-pie -no-pie))
$(eval $(call prog,chain-static,chain.c,gcc -O2 -g -static))
$(eval $(call prog,chain-static-pie,chain.c,gcc -O2 -g -static-pie))
$(eval $(call prog,chain-fp,chain.c,gcc -O2 -g -fno-omit-frame-pointer))
$(eval $(call prog,chain-O0,chain.c,gcc -O0 -g -fomit-frame-pointer))
$(eval $(call prog,chain-lld,chain.c,clang -O2 -g -fuse-ld=lld))
$(eval $(call prog,chain-musl,chain.c,musl-gcc -O2 -g -static))
$(eval $(call prog,threads,threads.c,gcc -O2 -g -pthread))
$(eval $(call prog,signal,signal.c,gcc -O2 -g))
$(eval $(call prog,libplt.so,libplt.c,gcc -O2 -g -fPIC -shared))
$(eval $(call prog,plt,plt.c,gcc -O2 -g -fPIE -pie -rdynamic -Wl$(comma)-z$(comma)lazy,-L$(PROG) -lplt -Wl$(comma)-rpath$(comma)'$$$$ORIGIN'))
$(PROG)/plt: $(PROG)/libplt.so
$(eval $(call prog,libplugin.so,libplugin.c,gcc -O2 -g -fPIC -shared))
$(eval $(call prog,dlopen,dlopen.c,gcc -O2 -g))
$(PROG)/dlopen: $(PROG)/libplugin.so
$(eval $(call prog,templates,templates.cc,g++ -O2 -g))
$(eval $(call prog,short,short.c,gcc -O2 -g))
$(eval $(call prog,deep,deep.c,gcc -O2 -g))
$(eval $(call prog,off_cpu,off_cpu.c,gcc -O2 -g -pthread))
$(eval $(call prog,cap_many,cap_many.c,gcc -O2 -g -pthread))
$(eval $(call prog,cap_spawn,cap_spawn.c,gcc -O2 -g -pthread))
$(eval $(call prog,cap_exec,cap_exec.c,gcc -O2 -g -pthread))
$(eval $(call prog,cap_life,cap_life.c,gcc -O2 -g -pthread))
$(eval $(call prog,cap_jit,cap_jit.c,gcc -O2 -g))
$(eval $(call prog,rejit,rejit.c,gcc -O2 -g))
$(eval $(call prog,cap_vfork,cap_vfork.c,gcc -O2 -g))
$(eval $(call prog,cap_memfd,cap_memfd.c,gcc -O2 -g))
$(eval $(call prog,cap_storm,cap_storm.c,gcc -O2 -g))
$(eval $(call prog,cap_herd,cap_herd.c,gcc -O2 -g))
$(eval $(call prog,no_call,no_call.c,gcc -O2 -g))
$(eval $(call prog,kill_at,kill_at.c,gcc -O2 -g))
$(eval $(call prog,cap_names,cap_names.c,gcc -O2 -g -pthread))
$(PROG)/cap_names: $(PROG)/libplugin.so
$(eval $(call prog,cap_faults,cap_faults.c,gcc -O2 -g))
$(eval $(call prog,uw_life,uw_life.c,gcc -O2 -g -pthread))
$(eval $(call prog,stream,stream.c,gcc -O2 -g))
$(eval $(call prog,demo,demo/distance.c demo/text.c demo/main.cc,gcc -O2 -g -pthread,-lstdc++))

# The same code without its names.
PROGS += $(PROG)/chain-stripped
$(PROG)/chain-stripped: $(PROG)/chain-pie
	@echo "  PROG chain-stripped"
	@strip -s -o $@ $<

progs: $(PROGS)
# ---- Tests ---------------------------------------------------------------------------------------
# TESTS='tests/perf.bats …' picks suites, TAGS=smoke those tests of them that bear the tag.
TESTS ?= $(filter-out tests/peers.bats,$(wildcard tests/*.bats))
RUN_TESTS = SP_BUILD='$(abspath $(BUILD))' SP_PROG='$(abspath $(PROG))' tests/run-tests

check: test-deps
	@echo "Building …"
	@$(MAKE) -s --no-print-directory all units test-setup
	@echo "Testing …"
	@$(RUN_TESTS) $(UNITS:%=$(BUILD)/unit/%) $(TESTS)

# The views in the programs that they are for, installed into $(BUILD)/consumers. HEAVY=1: all.
check-consumers: reader-deps
	@$(MAKE) -s --no-print-directory all progs
	@SP_BUILD='$(abspath $(BUILD))' SP_PROG='$(abspath $(PROG))' HEAVY='$(HEAVY)' tests/check-consumers

# Some of them run the tools.
check-unit: all units
	@$(RUN_TESTS) $(UNITS:%=$(BUILD)/unit/%)

check-cli: all test-setup
	@$(RUN_TESTS) $(TESTS)

# What the suites need besides the tools: target programs, and a Python that knows -X perf.
test-setup: progs test-tools
	@tests/get-python $(dir $(PROG))python

# The whole suite again under the sanitizers; the programs looked at stay as they are.
asan:
	@$(MAKE) BUILD=build/asan SAN=address,undefined OPT='-O1 -g' check-unit check-cli
tsan:
	@$(MAKE) BUILD=build/tsan SAN=thread OPT='-O1 -g' check-unit check-cli

valgrind: dev-deps
	@$(MAKE) -s --no-print-directory units
	@$(RUN_TESTS) --under 'valgrind -q --error-exitcode=99 --leak-check=full' $(UNITS:%=$(BUILD)/unit/%)

# Lines that the suite runs, per file.
coverage: test-deps
	@LDFLAGS=--coverage $(MAKE) BUILD=build/coverage OPT='-O0 -g --coverage -DSP_COVERAGE_DIR=\"$(CURDIR)/build/coverage\"' \
		all check-unit check-cli || true
	@tests/coverage build/coverage

# libFuzzer over tests/fuzz/NAME.c (clang). Inputs that were found stay in build/fuzz/corpus/NAME;
# seeds are made by tests/fuzz/make-seeds. DURATION=600 is for each target; fuzz-smoke takes 10, from
# one seed, so that it gives the same answer for the same code.
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
fuzz_parts = $(filter-out %/main.c,$(wildcard $(shell sed -n 's/^.*fuzz: \(.*\.c\).*/\1/p' tests/fuzz/$(1).c)))
define fuzzer
$(BUILD)/fuzzers/$(1): $(BUILD)/obj/tests/fuzz/$(1).o $(patsubst %.c,$(BUILD)/obj/%.o,$(call fuzz_parts,$(1))) $(LIB)
	@mkdir -p $$(@D)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $$@ $$^ $(LDLIBS)
endef
$(foreach f,$(FUZZERS),$(eval $(call fuzzer,$(f))))
fuzzers: $(FUZZERS:%=$(BUILD)/fuzzers/%)

FUZZ_MAKE = $(MAKE) -s --no-print-directory BUILD=build/fuzz CC=clang OPT='-O1 -g' SAN=fuzzer-no-link,address,undefined
fuzz fuzz-smoke: test-deps
	@$(MAKE) -s --no-print-directory all progs test-tools
	@+$(FUZZ_MAKE) fuzzers
	@SP_BUILD='$(abspath $(BUILD))' SP_PROG='$(abspath $(PROG))' $(if $(filter fuzz,$@),DURATION=$(or $(DURATION),600),SEED=1 DURATION=10) \
		tests/fuzz/run build/fuzz $(FUZZERS)

# hotspot (Debian) and samply (cargo, minutes): they read our perf.data files.
check-peers: test-deps all test-setup
	$(call install_packages,hotspot,check-peers)
	@[ -x $(BUILD)/bench/samply/bin/samply ] || cargo install -q --locked --root $(BUILD)/bench/samply samply
	@$(RUN_TESTS) tests/peers.bats

# ---- Measuring -----------------------------------------------------------------------------------
bench: test-deps
	@$(MAKE) -s --no-print-directory all
	@SP_BUILD='$(abspath $(BUILD))' python3 tests/bench/bench.py $(BENCH)
	$(if $(BENCH),,@$(MAKE) -s --no-print-directory bench-live bench-unwind bench-spool bench-bpf)

# All recorders live, the Rust crate too: LIVE='--runs 3 --targets deep'.
bench-live: test-deps
	@$(MAKE) -s --no-print-directory all
	@SP_BUILD='$(abspath $(BUILD))' python3 tests/bench/live.py $(LIVE)

bench-spool: test-deps
	@$(MAKE) -s --no-print-directory all $(BUILD)/bench/spool-open $(PROG)/stream
	@SP_BUILD='$(abspath $(BUILD))' python3 tests/bench/spool.py $(SPOOL)

# sp-unwind beside framehop, perf and samply on the same recordings: UNWIND='--runs 3 FILE…'.
bench-unwind: test-deps
	@$(MAKE) -s --no-print-directory all
	@SP_BUILD='$(abspath $(BUILD))' python3 tests/bench/unwind.py $(UNWIND)

# The BPF engine beside the perf engine; waits: BPFBENCH='--runs 5 --only switches'.
bench-bpf: test-deps
	@$(MAKE) -s --no-print-directory all $(PROG)/deep $(PROG)/threads $(PROG)/off_cpu
	@SP_BUILD='$(abspath $(BUILD))' SP_PROG='$(abspath $(PROG))' python3 tests/bench/bpf.py $(BPFBENCH)

# The engine of sp-unwind alone: build/bench/walk FILE… of recordings with stacks.
$(BUILD)/bench/walk: $(BUILD)/obj/tests/bench/walk.o \
		$(filter-out %/main.o,$(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard sp-unwind/*.c))) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Opening a spool, for the bench.
$(BUILD)/bench/spool-open: $(BUILD)/obj/tests/bench/spool-open.o $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# ---- Looks ---------------------------------------------------------------------------------------
SCRIPTS := .ci/run $(shell grep -lE '^\#!.*(ba)?sh' $$(git ls-files tests 2>/dev/null) /dev/null)
lint: dev-deps
	@tests/lint-floors
	@shellcheck -x $(SCRIPTS)
	@shellcheck -x -S warning -e SC2238,SC2210 --shell=bats $(wildcard tests/*.bats)
	@echo "lint: the floors hold, the scripts are clean"

fmt: dev-deps
	@clang-format-14 -i $(wildcard common/*/*.[ch] common/include/stackpulse/*.h sp-*/*.[ch] tests/unit/*.[ch] \
		tests/fuzz/*.[ch] tests/tool/*.c tests/examples/*.c tests/prog/*.[ch] tests/prog/*.cc tests/prog/demo/*)

# ---- Installation --------------------------------------------------------------------------------
VERSION := $(shell sed -n 's/^\#define SP_VERSION "\(.*\)"/\1/p' common/base/cli.h)
ABI     := 0
SHLIB   := $(BUILD)/lib/libstackpulse.so.$(ABI)
STATIC  := $(BUILD)/lib/libstackpulse.a
LIB_DIR ?= $(PREFIX)/lib
LIBSRC  := $(filter-out common/base/cli.c,$(wildcard common/base/*.c common/elf/*.c common/spool/*.c common/sym/*.c))
PUBLIC  := $(wildcard common/include/stackpulse/*.h)

# What the library shows: the functions that its public headers declare, and nothing else.
libs: $(SHLIB) $(STATIC)
$(BUILD)/lib/names: $(PUBLIC)
	@mkdir -p $(@D)
	@grep -hoE '\bsp_[a-z0-9_]+\(' $(PUBLIC) | tr -d '(' | sort -u > $@
$(BUILD)/lib/map: $(BUILD)/lib/names
	@(echo 'STACKPULSE_$(ABI) { global:'; sed 's/$$/;/' $<; echo 'local: *; };') > $@
$(SHLIB): $(LIBSRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/lib/map
	@echo "  LD    $@"
	@$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=$(BUILD)/lib/map -Wl,--no-undefined \
		-o $@ $(filter %.o,$^) $(LDLIBS)
	@ln -sf $(@F) $(BUILD)/lib/libstackpulse.so
# One object, so that the inner names can be made local.
$(STATIC): $(LIBSRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/lib/names
	@echo "  AR    $@"
	@rm -f $@
	@$(LD) -r -o $(BUILD)/lib/libstackpulse.o $(filter %.o,$^)
	@objcopy --keep-global-symbols=$(BUILD)/lib/names $(BUILD)/lib/libstackpulse.o
	@$(AR) rcs $@ $(BUILD)/lib/libstackpulse.o

MAN1 = $(wildcard sp-*/*.1)
MANS = $(wildcard common/man/*.5 common/man/*.7)
I    = $(DESTDIR)$(PREFIX)
install: all libs
	install -d $(I)/bin $(I)/share/man/man1 $(I)/share/man/man5 $(I)/share/man/man7 $(I)/include/stackpulse \
		$(DESTDIR)$(LIB_DIR)/pkgconfig $(I)/share/bash-completion/completions
	install -m 755 $(TOOLS:%=$(BUILD)/bin/%) $(I)/bin
	$(foreach m,$(MAN1),install -m 644 $(m) $(I)/share/man/man1;)
	$(foreach m,$(MANS),install -m 644 $(m) $(I)/share/man/man$(patsubst .%,%,$(suffix $(m)))/;)
	$(foreach t,$(TOOLS),$(if $(wildcard $(t)/$(t).bash),install -m 644 $(t)/$(t).bash $(I)/share/bash-completion/completions/$(t);))
	install -m 644 $(PUBLIC) $(I)/include/stackpulse
	install -m 644 $(STATIC) $(DESTDIR)$(LIB_DIR)
	install -m 755 $(SHLIB) $(DESTDIR)$(LIB_DIR)
	ln -sf $(notdir $(SHLIB)) $(DESTDIR)$(LIB_DIR)/libstackpulse.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIB_DIR)|; s|@VERSION@|$(VERSION)|' common/stackpulse.pc.in \
		> $(DESTDIR)$(LIB_DIR)/pkgconfig/stackpulse.pc
	$(new_libs)

# The loader finds libraries of /usr/local/lib by its cache, which root can write.
new_libs = @[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || PATH=$$PATH:/usr/sbin:/sbin ldconfig

uninstall:
	rm -f $(TOOLS:%=$(I)/bin/%) $(TOOLS:%=$(I)/share/bash-completion/completions/%)
	rm -f $(foreach m,$(MAN1),$(I)/share/man/man1/$(notdir $(m)))
	rm -f $(foreach m,$(MANS),$(I)/share/man/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)))
	rm -rf $(I)/include/stackpulse
	rm -f $(DESTDIR)$(LIB_DIR)/libstackpulse.a $(DESTDIR)$(LIB_DIR)/libstackpulse.so* \
		$(DESTDIR)$(LIB_DIR)/pkgconfig/stackpulse.pc
	$(new_libs)

dist:
	@mkdir -p $(BUILD)
	git archive --prefix=stackpulse-$(VERSION)/ -o $(BUILD)/stackpulse-$(VERSION).tar.gz HEAD

help:
	@echo "make                    the four tools in $(BUILD)/bin"
	@echo "make demo               install what is missing, build, profile a sample program"
	@echo "make demo PID=1234      … or a running process (DURATION=10)"
	@echo "make demo CMD='gzip x'  … or a command"
	@echo "make check              install what is missing, build, pass every test"
	@echo "make check-peers        our perf.data files in hotspot and samply"
	@echo "make check-consumers [HEAVY=1]   the views in pprof, speedscope, Firefox, Chromium …"
	@echo "make check-unit, check-cli [TESTS=tests/x.bats] [TAGS=smoke]"
	@echo "make asan, tsan, valgrind, coverage     the tests under instruments"
	@echo "make fuzz [DURATION=600], fuzz-smoke     libFuzzer over tests/fuzz"
	@echo "make bench              side by side with perf and samply; then all that follow"
	@echo "make bench-live         recorders live: ours, perf, samply, the Rust crate (LIVE='--runs 3 --targets deep')"
	@echo "make bench-unwind       sp-unwind beside framehop, perf, samply (UNWIND='--runs 3 FILE…')"
	@echo "make bench-bpf          the BPF engine beside the perf engine, waits beside offcputime"
	@echo "make bench-spool        the spool beside the crate's: sizes, speed, memory"
	@echo "make lint, fmt          the scripts and the floors; the layout of the C files"
	@echo "make bpf-regen, bpf-check   compile sp-capture/bpf again; is what is committed current?"
	@echo "make install, uninstall [PREFIX=$(PREFIX)] [DESTDIR=…]"
	@echo "make dist, clean"
	@echo "Variables: CC, OPT, SAN=address,undefined, WERROR=1, BPF=no, SHARED=yes, BUILD=$(BUILD)"

clean:
	rm -rf $(BUILD)

-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')

.PHONY: all units clean FORCE deps test-deps dev-deps reader-deps demo progs test-setup check check-unit check-cli \
	check-consumers check-peers bpf-deps bpf-regen bpf-check asan tsan valgrind coverage fuzzers fuzz fuzz-smoke \
	bench bench-live bench-unwind bench-spool bench-bpf lint fmt libs install uninstall dist help
