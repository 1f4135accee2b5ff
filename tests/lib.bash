# shellcheck shell=bash
# What the bats suites share. Load it with: load lib
#
# The tools come from $SP_BUILD/bin (in PATH), the programs looked at from $SP_PROG.

TOP=$(cd "$BATS_TEST_DIRNAME/.." && pwd)
SP_BUILD=${SP_BUILD:-$TOP/build}
SP_PROG=${SP_PROG:-$TOP/build/tests/prog}
export TOP SP_BUILD SP_PROG PATH="$SP_BUILD/bin:$PATH" LC_ALL=C.UTF-8
export XDG_CACHE_HOME=$BATS_RUN_TMPDIR/cache
unset DEBUGINFOD_URLS STACKPULSE_DEBUG_DIRS

# End the test with a text.
fail() {
	printf '%s\n' "$@"
	return 1
}

# Compare two values.
equal() { # GOT WANTED [WHAT]
	[ "$1" = "$2" ] || fail "${3:-value}: got '$1', wanted '$2'"
}

# GOT must hold the text WANTED.
holds() { # GOT WANTED
	[[ $1 == *"$2"* ]] || fail "wanted '$2' in:" "$1"
}

# Tracepoints by number, which only root has. On a fresh machine nobody has mounted them yet; another
# suite may do it at this moment.
need_tracefs() {
	local at=/sys/kernel/tracing
	[ "$(id -u)" = 0 ] || skip "tracepoints need root"
	[ -e $at/events ] || mount -t tracefs tracefs $at 2>/dev/null || [ -e $at/events ] ||
		skip "this kernel has no tracefs"
}

# Of suites that record live: a folder of the test's own; what it started (pids) and what it published
# for other users (pub) goes with it.
live_setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR
	pids=()
}
live_teardown() {
	[ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || :
	[ -z "${pub-}" ] || rm -rf "$pub"
}

# What a stream holds: stream order|stacks|ext|… FILE.
stream() { python3 "$TOP/tests/stream.py" "$@"; }

# Wait for a condition, a command that is asked again and again; a minute at most.
await() { # COMMAND…
	local end=$((SECONDS + 60))
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "waited in vain for: $*"
		read -rt 0.02 <> <(:) || :
	done
}

has_bytes() { [ "$(stat -c %s "$2")" -ge "$1" ]; } # N FILE: or more

# The first of the CPUs that this test may run on.
a_cpu() { awk '/^Cpus_allowed_list/ { split($2, at, /[-,]/); print at[1] }' /proc/self/status; }

catches() { # PID: SIGTERM (bit 14) has a handler
	(((0x$(awk '/^SigCgt/ { print $2 }' /proc/"$1"/status) >> 14) & 1))
}

# What the host of a virtual machine took of its CPUs, since a value of before.
stolen_ms() { # [BEFORE]
	awk -v hz="$(getconf CLK_TCK)" -v before="${1-0}" '$1 == "cpu" { printf "%d\n", $9 * 1000 / hz - before }' /proc/stat
}

# The clock of the samples.
now_ns() { python3 -c 'import time; print(time.monotonic_ns())'; }

# Record, unwind, spool: profile OUT.spool OPTIONS… -- COMMAND… (or -p PID). The stages' own last
# lines go to OUT.log. The command's output goes to OUT.out.
profile() {
	local out=$1
	shift
	(
		set -o pipefail
		sp-capture "$@" 2>"$out.capture" | sp-unwind 2>"$out.unwind" | sp-spool -o "$out" 2>"$out.spool"
	) || {
		local status=$?
		cat "$out.capture" "$out.unwind" "$out.spool"
		fail "the pipeline ended with $status"
	}
}

# Check a known chain by value: see tests/chains.py.
chain() {
	python3 "$TOP/tests/chains.py" "$@"
}

# One number of stats-json.
stat_of() { # SPOOL NAME
	sp-sym --format=stats-json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2"
}
