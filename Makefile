# stackpulse: make, make demo, make check. Everything that is built lies under $(BUILD).
#
#   make            the four tools in build/bin
#   make demo       install what is missing, build, profile a sample program (or PID=…, CMD='…')
#   make check      install what is missing, build, pass every test
#   make bench      side by side with the peers
#   make help       the other targets

# The one list of Debian packages: what a build needs, and what the tests need besides.
BUILD_PKGS := gcc g++ make pkg-config libelf-dev libdw-dev libzstd-dev zlib1g-dev liblzma-dev libiberty-dev
TEST_PKGS  := bats clang libclang-rt-14-dev linux-perf elfutils binutils musl-tools lld python3 python3-venv nodejs gdb

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
ifdef SAN
SANFLAGS := -fsanitize=$(SAN) -fno-sanitize-recover=all
endif
ifeq ($(WERROR),1)
WARN     += -Werror
endif
CFLAGS   += -std=gnu17 $(OPT) $(WARN) $(HARDEN) $(SANFLAGS)
CPPFLAGS += -Icommon -Icommon/include $(FORTIFY) -pthread
LDFLAGS  += -Wl,-z,relro,-z,now -pthread $(SANFLAGS)
LDLIBS   := -lzstd -lz -llzma -liberty

TOOLS  := sp-capture sp-unwind sp-spool sp-sym
COMMON := $(wildcard common/*/*.c)
LIBOBJ := $(COMMON:%.c=$(BUILD)/obj/%.o)
LIB    := $(BUILD)/lib/libsp.a
HAVE   := $(foreach t,$(TOOLS),$(if $(wildcard $(t)/*.c),$(t)))

all: $(HAVE:%=$(BUILD)/bin/%)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo '  CC    $<'
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Objects are made again when the flags change.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)' | cmp -s - $@ || echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)' > $@
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
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(LDLIBS)
endef
$(foreach t,$(HAVE),$(eval $(call tool,$(t))))

# Unit tests: each tests/unit/NAME.c is a program that speaks TAP. A test of one tool's inner parts
# names them: a line "unit: sp-unwind/cfi.c" in its first comment.
UNITS := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/*.c))
unit_parts = $(shell sed -n 's/^.*unit: \(.*\.c\).*/\1/p' tests/unit/$(1).c)
define unit
$(BUILD)/unit/$(1): $(BUILD)/obj/tests/unit/$(1).o $(patsubst %.c,$(BUILD)/obj/%.o,$(call unit_parts,$(1))) $(LIB)
	@mkdir -p $$(@D)
	@echo '  LD    $$@'
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(LDLIBS)
endef
$(foreach u,$(UNITS),$(eval $(call unit,$(u))))

units: $(UNITS:%=$(BUILD)/unit/%)

clean:
	rm -rf $(BUILD)

-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')

.PHONY: all units clean FORCE
