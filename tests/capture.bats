#!/usr/bin/env bats
# sp-capture: what it attaches to and launches, what it refuses and how it says so, what it leaves
# behind. The streams are looked at with tests/stream.py and with the real perf.
#
# shellcheck disable=SC2094,SC2012,SC2030,SC2031,SC2119,SC2154 # each test is a shell of its own; s is a name

load lib
load live

setup() { live_setup; }
teardown() { live_teardown; }

# A refused command line: nothing written, status 2, the text in the message.
refused() { # TEXT ARG…
	local text=$1
	shift
	local status=0
	sp-capture "$@" >out 2>log || status=$?
	equal "$status" 2 "status of $*"
	[ ! -s out ] || fail "output after a refusal: $*"
	holds "$(cat log)" "$text"
}

perf_tids() { perf script -F tid -i - <"$1" 2>/dev/null | awk 'NF == 1 && $1 ~ /^[0-9]+$/' | sort -u; }

# --- the stream ---

# bats test_tags=smoke
@test "a launched command: whole, in time order, under one id, stacks trimmed, status in the end record" {
	sp-capture -- "$SP_PROG/chain-pie" 300 >s 2>log
	stream order s
	stream ext s >ext
	holds "$(cat ext)" "chain=return"
	holds "$(cat ext)" "stack_bytes=61440"
	equal "$(tail -n 1 ext | grep -o 'command_status=[0-9]*')" command_status=0
	holds "$(grep '^exec' ext)" "chain-pie 300"
	n=$(stream stacks s | wc -l)
	[ "$n" -gt 200 ] || fail "$n samples"
	holds "$(cat log)" "$n samples, 0 lost;"
	# hot() lies some hundred bytes below the top: nothing of the environment above is copied.
	equal "$(stream stacks s | awk '$3 > 2048 { n++ } END { print n + 0 }')" 0 "samples with long stacks"
	equal "$(stream objects s | awk '$1 == 1 { print $4 }')" "[vdso]"
	stream object s '[vdso]' | head -c 4 | cmp - <(printf '\177ELF')
}

@test "threads' stacks end below what glibc keeps at their top, not in what lies above" {
	sp-capture -- "$SP_PROG/threads" 200 >s 2>log
	stream stacks s >stacks
	[ "$(wc -l <stacks)" -gt 400 ] || fail "too few samples"
	# A few frames and the room of static TLS: no mapping above, not the 2,304 of struct pthread.
	# (The first thread's stack is the process's, under whose top the dynamic linker works too.)
	awk '$1 != $2 && $3 > 3000 { exit 1 }' stacks || fail "$(sort -k3n stacks | tail -n 3)"
}

@test "perf script and perf report read a threaded program's stream, without a complaint" {
	sp-capture -- "$SP_PROG/threads" 200 >s 2>log
	perf script --no-inline -i - <s >script 2>err
	for n in 1 2 3 4; do
		grep -q "^worker-$n " script || fail "no samples of worker-$n"
		grep -q "hot_$n+" script
		grep -q "worker_$n+" script
	done
	run cat err
	equal "$output" ""
	perf report --stdio --no-children --no-inline -g none -i - <s >report 2>err
	grep -q 'hot_1' report
}

@test "a perf.data file: perf reads it, it belongs to its owner only" {
	sp-capture -q -o x.data -- "$SP_PROG/chain-pie" 200 2>log
	equal "$(stat -c %a x.data)" 600 "mode"
	perf script --no-inline -i x.data 2>err | grep -q 'gamma_fn+'
}

# --- options ---

# bats test_tags=smoke
@test "ids that are none are refused before anything is opened" {
	local id
	for id in 0 -1 2147483648 99999999999999999999 12x '' '1,' ,1; do
		refused "is not an id" -p "$id"
		refused "is not an id" -t "$id"
	done
}

@test "stack sizes: beyond the kernel's limit and 0 refused, others rounded up to 8" {
	local size
	for size in 65529 65530 100000 131072 1M; do
		refused 65528 -s $size -- true
	done
	refused "0 bytes" -s 0 -- true
	sp-capture -s 1001 -- "$SP_PROG/chain-pie" 50 2>log | perf script --header-only -i - 2>/dev/null >header
	stream ext <(sp-capture -s 1001 -- true 2>>log) | grep -q stack_bytes=1008
	sp-capture -s 65528 -- "$SP_PROG/chain-pie" 100 >s 2>log
	stream order s
	[ "$(stream stacks s | wc -l)" -gt 50 ] || fail "no samples with the largest stack"
}

@test "rates: 0 and nonsense refused, above the kernel's limit with both numbers, max is the limit" {
	refused "whole number" -F 0 -- true
	refused "whole number" -F fast -- true
	local limit=0 status
	# Another suite lowers it for a while.
	until [ "$(cat /proc/sys/kernel/perf_event_max_sample_rate)" = "$limit" ]; do
		limit=$(cat /proc/sys/kernel/perf_event_max_sample_rate)
		status=0
		sp-capture -F $((limit + 1)) -- true >out 2>log || status=$?
		sp-capture -F max -s 8 -- true >s 2>log.max || :
	done
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	holds "$(cat log)" "$((limit + 1)) Hz"
	holds "$(cat log)" "$limit Hz"
	stream ext s | grep -q "rate_hz=$limit" || fail "$(cat log.max)"
}

@test "what is of a later version, and what does not go together, is refused by name" {
	refused "nothing to record" -d 1
	refused "one of" -p 1 -- true
	refused "one of" -p 1 -t 1
	refused "unknown event" -e nonsense -- true
	refused ".spool" -o x.y -- true
	refused "--embed" --embed some -- true
	refused "is not a time" -d soon -- true
	refused "needs an argument" -d
	refused "unknown option" --nonsense
}

@test "the rate asked for is the rate sampled at" {
	local hz n stolen
	for hz in 99 999 4999; do
		stolen=$(stolen_ms)
		n=$(sp-capture -F $hz -- "$SP_PROG/chain-pie" 1000 2>log | stream stacks /dev/stdin | wc -l)
		stolen=$(stolen_ms "$stolen")
		# One CPU second. The time that the host takes is none of it, but the samples' clock goes on.
		[ "$n" -gt $((hz * 85 / 100)) ] && [ "$n" -lt $((hz * (1100 + stolen) / 1000)) ] ||
			fail "$n samples at $hz Hz, $stolen ms stolen"
	done
}

@test "-e page-faults: the event is named, its samples are there" {
	sp-capture -e page-faults -F 20000 -- "$SP_PROG/chain-pie" 50 >s 2>log
	perf script -F event -i - <s 2>/dev/null | grep -q page-faults
	stream ext s | grep -q 'clock=page-faults'
}

@test "-d ends the recording, not the target; fractions and units" {
	start threads 20000
	sp-capture -d 300ms -p "$pid" >s 2>log
	stream ext s | grep -q '^end status=0'
	local sec
	sec=$(sed -n 's/.*; \([0-9.]*\) s.*/\1/p' log)
	awk -v s="$sec" 'BEGIN { exit !(s >= 0.3 && s < 15) }' || fail "recorded for $sec s"
	kill -0 "$pid"
}

@test "-D begins later: nothing before it, and what was mapped and forked meanwhile is known" {
	local before first
	before=$(now_ns)
	sp-capture -D 0.3 -- sh -c "\"$SP_PROG/chain-pie\" 900; :" >s 2>log
	stream order s
	perf script --no-inline -i - <s 2>/dev/null >script
	grep -q 'gamma_fn+' script || fail "$(head -n 20 script)"
	first=$(stream stacks s | awk 'NR == 1 { print $5 }')
	[ $((first - before)) -ge 300000000 ] || fail "the first sample after $((first - before)) ns"
	n=$(stream stacks s | wc -l)
	[ "$n" -gt 50 ] || fail "$n samples of 900 ms, of which 300 ms of time were left out"
}

@test "-k: kernel frames, the kernel's map, and the names of the sampled addresses only" {
	[ "$(id -u)" = 0 ] || skip "kernel frames need root"
	sp-capture -k -- dd if=/dev/zero of=/dev/null bs=1M count=3000 >s 2>log
	perf script --no-inline -i - <s >script 2>/dev/null
	grep -q 'entry_SYSCALL_64' script || fail "no kernel chain"
	stream object s /proc/kallsyms >names
	grep -q ' _stext$' names
	[ "$(wc -l <names)" -lt 5000 ] || fail "all of kallsyms: $(wc -l <names) lines"
	# The kernel's own answer for the hottest symbol is in what we sent.
	local name
	name=$(awk '/^\t/ && $1 ~ /^ffff/ { sub(/\+.*/, "", $2); print $2 }' script | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
	grep -q " $name\$" names || fail "no $name"
	stream ext s | grep -q 'kernel_enabled 1'
}

@test "the stream's own start time and interval are kept as given" {
	stream ext <(sp-capture --start-time-us 1234567 --interval-us 1000 -- true 2>log) >ext
	holds "$(cat ext)" "start_time_us=1234567"
	holds "$(cat ext)" "interval_us=1000"
}

@test "a terminal as output is refused with the pipeline to type" {
	script -qec "sp-capture -p $$" /dev/null >out </dev/null || :
	holds "$(cat out)" "sp-unwind | sp-spool"
	holds "$(cat out)" "-p $$"
}

# --- attaching ---

@test "-p: all threads that exist and all that come; the same pid twice counts once" {
	local stolen
	stolen=$(stolen_ms)
	start threads 1500
	begin s -p "$pid" -p "$pid,$pid"
	wait "$pid"
	wait "$capture"
	n=$(stream stacks s | wc -l)
	# Four threads, 1.5 s of CPU each, less what passed before.
	[ "$n" -le $((6400 + $(stolen_ms "$stolen"))) ] || fail "$n samples: some were counted twice"
	stream order s
	equal "$(stream stacks s | cut -d' ' -f2 | sort -u | wc -l)" 4 "threads"
}

@test "several processes at once; each ends on its own, the recording with the last" {
	local first
	mkfifo go
	# Shells, which become the programs once they are recorded.
	sh -c 'read -r _ <go; exec "$0" 300' "$SP_PROG/chain-pie" >out.1 3>&- &
	first=$!
	sh -c 'read -r _ <go; exec "$0" 900' "$SP_PROG/chain-nopie" >out.2 3>&- &
	pid=$!
	pids+=("$first" "$pid")
	begin s -p "$first,$pid"
	exec 9<>go
	printf '\n\n' >&9
	wait "$capture" || fail "$(cat log)"
	exec 9>&-
	stream stacks s | cut -d' ' -f1 | sort | uniq -c >counts
	grep -q " $first\$" counts
	grep -q " $pid\$" counts
	grep -q '2, …\|, …' log || holds "$(cat log)" "recording $first"
}

@test "-t: one thread's samples, and mappings that another thread made" {
	start threads 60000
	local tid
	await has_threads "$pid" 5
	tid=$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 ! -name "$pid" -printf '%f\n' | head -n 1)
	sp-capture -t "$tid" -d 0.5 >s 2>log
	equal "$(stream stacks s | cut -d' ' -f2 | sort -u)" "$tid"
	perf script --no-inline -i - <s 2>/dev/null | grep -q 'hot_[1-4]+'
}

@test "a thread's id as process is refused, naming the process" {
	start threads 60000
	local tid status=0
	await has_threads "$pid" 5
	tid=$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 ! -name "$pid" -printf '%f\n' | head -n 1)
	sp-capture -p "$tid" >out 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "thread of process $pid"
	[ ! -s out ] || fail "output after a refusal"
}

@test "a process that is not there is refused, without a byte of output" {
	local status=0
	sp-capture -p 2147483647 >out 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "no such process"
	[ ! -s out ] || fail "output after a refusal"
}

@test "threads that are born all the time while we attach: none twice, and all of them later" {
	start cap_spawn 600 # until the end of the test
	local i
	for i in 1 2 3; do
		sp-capture -p "$pid" -d 0.4 >s 2>log
		# An event samples a thread once per ms, give or take one late interrupt.
		equal "$(stream doubled s 900)" "" "threads that two events sample"
		[ "$(perf_tids s | wc -l)" -gt 3 ] || fail "$(perf_tids s | wc -l) threads"
		perf script --no-inline -i - <s 2>/dev/null | grep -q 'spawn_hot+'
	done
}

@test "children: followed with -f, not without; both of a command's by default" {
	local n
	cat >loop.sh <<-'X'
		while :; do echo | "$1" 20; done
	X
	sh loop.sh "$SP_PROG/short" >/dev/null 2>&1 3>&- &
	pid=$!
	pids+=("$pid")
	sp-capture -p "$pid" -d 0.5 >s 2>log
	n=$(stream stacks s | awk -v p="$pid" '$1 != p { n++ } END { print n + 0 }')
	equal "$n" 0 "samples of children without -f"
	begin s -f -p "$pid"
	has_children() { [ "$(stream stacks s | awk -v p="$pid" '$1 != p' | wc -l)" -gt 20 ]; }
	await has_children
	kill -INT "$capture"
	wait "$capture" || fail "$(cat log)"
	kill "$pid"
	perf script --no-inline -i - <s 2>/dev/null | grep -q 'stage_hot+'
	# Not followed by wish.
	sp-capture --no-follow -- sh -c "echo | \"$SP_PROG/short\" 100; :" >s 2>log
	perf script --no-inline -i - <s 2>/dev/null >script
	run grep stage_hot script
	equal "$status" 1
}

@test "--descendants: those that exist are attached, each once" {
	sh -c "\"$SP_PROG/chain-pie\" 60000 & \"$SP_PROG/chain-nopie\" 60000; wait" 3>&- &
	pid=$!
	pids+=("$pid")
	await sh -c "[ \$(cat /proc/$pid/task/$pid/children | wc -w) -eq 2 ]"
	# shellcheck disable=SC2207
	pids+=($(cat /proc/$pid/task/$pid/children))
	sp-capture --descendants -p "$pid" -d 0.5 >s 2>log
	perf script --no-inline -i - <s 2>/dev/null >script
	grep -q '^chain-pie' script
	grep -q '^chain-nopie' script
	equal "$(stream doubled s 900)" "" "samples that follow too closely"
}

@test "exec in place: the old image's names before it, the new one's after, by a thread too" {
	local how
	for how in "" thread; do
		sp-capture -- "$SP_PROG/cap_exec" 200 $how >s 2>log
		stream order s
		perf script --no-inline -F ip,sym,time -i - <s 2>/dev/null |
			awk '/:$/ { t = $1 } /spin_[ab]$/ { print $2 }' | uniq >seen
		equal "$(tr '\n' ' ' <seen)" "spin_a spin_b " "order of the images ($how)"
		equal "$(stream ext s | grep -c '^exec')" 2 "exec markers"
	done
}

@test "an exec while what runs is read from /proc: its new image is told once" {
	cat >shim.c <<-'X'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <stdarg.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		/* When /proc/TARGET/cmdline is opened first, the target runs its next program before that. */
		int __open_2(const char *path, int flags)
		{
			static int done;
			int (*real)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_NEXT, "__open_2");
			char name[64], args[64];
			snprintf(name, sizeof name, "/proc/%s/cmdline", getenv("TARGET"));
			if (!done && !strcmp(path, name)) {
				done = 1;
				close(real("go", O_WRONLY));
				do { /* it has none for a moment */
					int fd = real(name, O_RDONLY);
					if (read(fd, args, sizeof args) < 0)
						abort();
					close(fd);
				} while (memcmp(args, "./prog", 7) != 0);
			}
			return real(path, flags);
		}
		int open(const char *path, int flags, ...)
		{
			va_list args;
			va_start(args, flags);
			int mode = va_arg(args, int);
			va_end(args);
			if (flags & (O_CREAT | __O_TMPFILE))
				return ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
			return __open_2(path, flags);
		}
	X
	gcc -shared -fPIC -o shim.so shim.c -ldl
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
	mkfifo go
	cp "$SP_PROG/chain-pie" prog
	sh -c 'read -r _ <go; exec ./prog 60000' 3>&- &
	pid=$!
	pids+=("$pid")
	TARGET=$pid LD_PRELOAD=$PWD/shim.so sp-capture -p "$pid" -d 0.1 >s 2>log || fail "$(cat log)"
	equal "$(stream ext s | grep -c '^exec')" 1 "exec markers: $(stream ext s | grep '^exec')"
	holds "$(stream ext s | grep '^exec')" "./prog 60000"
}

@test "processes of 3 ms: the last one's samples still find their modules" {
	sp-capture -F 4999 -- sh -c "i=0; while [ \$i -lt 100 ]; do echo | \"$SP_PROG/short\" 3; i=\$((i + 1)); done" >s 2>log
	perf script --no-inline -F comm,ip,dso -i - <s 2>/dev/null | awk '
		/^short/ { n++; getline; if ($2 == "([unknown])") bad++ }
		END { print n + 0, bad + 0; exit !(n > 200 && bad * 100 <= n) }' || fail "samples, and leaves without a module"
}

@test "processes of 1 ms: each exec marker has its command line" {
	need_tracefs
	# Little environment: between the arguments and what points to them no page is left untouched.
	env -i "$(command -v sp-capture)" -- /bin/sh -c 'i=0; while [ $i -lt 200 ]; do "$0" 1 "nr $i" </dev/null; i=$((i + 1)); done' \
		"$SP_PROG/short" >s 2>log
	equal "$(stream ext s | grep -c '^exec')" 201 "exec markers"
	local i=0 right=0
	while read -r _ _ _ args; do
		[ "$args" != "$SP_PROG/short 1 nr $i" ] || right=$((right + 1))
		i=$((i + 1))
	done < <(stream ext s | grep '^exec' | tail -n 200)
	[ "$right" -ge 194 ] || fail "$right of 200 have their own"
}

@test "a shell that runs short commands is sampled itself while its children are followed" {
	# Without a pinned context, half-done periods would go to children and die with them.
	local with=0 without=0
	sh -c 'while :; do /bin/true; done' 3>&- &
	pid=$!
	pids+=("$pid")
	shell_samples() { sp-capture --engine=perf -F 4999 "$@" -p "$pid" -d 0.5 2>log | stream stacks /dev/stdin | awk -v p="$pid" '$1 == p' | wc -l; }
	# In turns, as other tests come and go; on a busy machine it takes many to have enough of it.
	more_turns() {
		without=$((without + $(shell_samples)))
		with=$((with + $(shell_samples -f)))
		[ "$without" -ge 40 ]
	}
	await more_turns
	[ $((with * 3)) -ge "$without" ] || fail "$with samples with -f, $without without"
}

# --- holding ---

@test "a held target runs on" {
	start cap_many 200
	await grep -q ready start.out
	sp-capture --stop -p "$pid" -d 0.1 >s 2>log
	await in_state "$pid" S
}

@test "a target that was stopped stays stopped, and is recorded" {
	start threads 20000
	kill -STOP "$pid"
	await in_state "$pid" T
	sp-capture --stop -p "$pid" -d 0.1 >s 2>log
	equal "$(states_of "$pid")" T
	stream ext s | grep -q '^end'
	kill -CONT "$pid"
}

@test "a thread that cannot be stopped: given up after 2 s, said, recorded all the same, and never stopped" {
	start cap_vfork 60
	await in_state "$pid" D
	sp-capture --stop -p "$pid" -d 0.1 >s 2>log
	holds "$(cat log)" "did not stop within 2 s"
	stream ext s | grep -q '^end status=0'
	# On a busy machine it is the holder's own alarm that ends it.
	sp-capture --stop -p "$pid" -d 0.1 >s 2>log 3>&- &
	capture=$!
	pids+=("$capture")
	await pkill -ALRM -P "$capture"
	wait "$capture" || fail "$(cat log)"
	holds "$(cat log)" "did not stop within 2 s"
	# Its child ends, it comes back from vfork, and nothing is left that stops it then.
	pkill -P "$pid"
	await in_state "$pid" S
}

@test "holding ourselves, or a reader of this stream, is refused" {
	local status=0
	sh -c 'exec sp-capture --stop -p $$' >out 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "itself"
	mkfifo fifo
	cat fifo >/dev/null 3>&- &
	pid=$!
	pids+=("$pid")
	status=0
	exec 9>fifo # the reader may not have come out of its open() yet
	sp-capture --stop -p "$pid" >&9 2>log 9>&- || status=$?
	exec 9>&-
	equal "$status" 1
	holds "$(cat log)" "reads this very stream"
}

# --- commands ---

# bats test_tags=smoke
@test "a command's status is ours; a signal that ended it ends us" {
	local status=0
	sp-capture -- sh -c 'exit 7' >s 2>log || status=$?
	equal "$status" 7
	stream ext s | grep -q "command_status=$((7 << 8))"
	status=0
	sp-capture -- sh -c 'kill -TERM $$' >s 2>log || status=$?
	equal "$status" 143
	stream ext s | grep -q 'command_status=15$\|command_status=15 '
}

@test "a command that cannot be run: 127 or 126, with the reason" {
	local status=0
	sp-capture -- ./nonesuch >s 2>log || status=$?
	equal "$status" 127
	holds "$(cat log)" "cannot launch ./nonesuch: No such file"
	status=0
	echo x >plain
	sp-capture -- ./plain >s 2>log || status=$?
	equal "$status" 126
	holds "$(cat log)" "Permission denied"
	status=0
	printf '#!/no/such/interpreter\n' >script
	chmod +x script
	sp-capture -- ./script >s 2>log || status=$?
	equal "$status" 127
}

@test "a command's output goes to standard error while the stream has standard output" {
	sp-capture -- sh -c 'echo its own words' >s 2>log
	holds "$(cat log)" "its own words"
	stream ext s | grep -q '^end'
	sp-capture -q -o x.data -- sh -c 'echo its own words' >out 2>log
	equal "$(cat out)" "its own words"
}

@test "a command is born with default SIGPIPE and what its shell ignored" {
	timeout 20 sp-capture -- sh -c 'yes | head -n 1' >s 2>log
	(
		trap '' HUP
		sp-capture -- sh -c 'kill -HUP $$; echo alive' >s 2>log
	)
	holds "$(cat log)" alive
}

@test "the search path is the command's own" {
	mkdir bin
	printf '#!/bin/sh\necho found it\n' >bin/onlyhere
	chmod +x bin/onlyhere
	env PATH="$PWD/bin:$PATH" sp-capture -- onlyhere >s 2>log
	holds "$(cat log)" "found it"
}

@test "a command that ends before -d ends the recording at once" {
	local t=$SECONDS
	sp-capture -d 60 -- true >s 2>log
	[ $((SECONDS - t)) -lt 20 ] || fail "$((SECONDS - t)) s"
}

@test "SIGINT and SIGTERM to us: the recording is whole, the command gets them too" {
	local sig
	for sig in INT TERM; do
		rm -f log # the last one's: it says that it records
		# A shell without job control starts its background commands with SIGINT ignored.
		env --default-signal=INT sp-capture -- sleep 100 >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		kill -$sig "$capture"
		local status=0
		wait "$capture" || status=$?
		[ $status -gt 128 ] || fail "status $status after $sig"
		stream ext s | grep -q '^end'
	done
}

@test "Ctrl-C while attached: drained, status 0, the target runs on" {
	start threads 20000
	begin s -p "$pid"
	kill -INT "$capture"
	wait "$capture"
	stream ext s | grep -q '^end status=0'
	[ "$(state_of "$pid")" != T ]
}

# --- outputs that fail ---

@test "a dead reader ends us with the reason, at once" {
	start threads 20000
	local status=0 t=$SECONDS
	(sp-capture -p "$pid" 2>log || echo $? >status) | true
	equal "$(cat status)" 1
	holds "$(cat log)" "Broken pipe"
	[ $((SECONDS - t)) -lt 10 ]
	[ "$(state_of "$pid")" != T ]
}

@test "a full disk and a removed directory are errors of the output" {
	local status=0
	sp-capture -- true >/dev/full 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "No space left"
	status=0
	sp-capture -o gone/x.data -- true 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "cannot create gone/x.data"
}

@test "a reader that stops for seconds: the target runs on, what was lost is counted" {
	mkfifo fifo
	# The reader waits until the target is done.
	sh -c 'read -r _ <go; cat' <fifo >s 3>&- &
	local reader=$!
	mkfifo go
	pids+=("$reader")
	sp-capture -F 4999 -- "$SP_PROG/chain-O0" 200 >/dev/null 2>log # warm
	sp-capture -s 65528 -F max --ring 1M -- "$SP_PROG/chain-pie" 1500 >fifo 2>log 3>&- &
	capture=$!
	pids+=("$capture")
	await sh -c "pgrep -P $capture chain-pie"
	await sh -c "! pgrep -P $capture chain-pie"
	echo >go
	wait "$capture" || fail "$(cat log)"
	wait "$reader"
	stream order s
	local kept lost sum
	kept=$(stream stacks s | wc -l)
	lost=$(sed -n 's/.* samples, \([0-9]*\) lost.*/\1/p' log)
	sum=$(stream ext s | awk '$1 == "loss" && $5 == 0 { n += $6 } END { print n + 0 }')
	equal "$sum" "$lost" "losses in the stream's records"
	equal "$(stream ext s | grep -o 'lost_events [0-9]*')" "lost_events $lost"
	[ "$kept" -gt 0 ]
}

# --- refusals of the kernel ---

@test "a user without privileges records his own programs" {
	publish "$SP_PROG/chain-pie" "$SP_PROG/threads"
	as_nobody "$pub/sp-capture" -- "$pub/chain-pie" 300 >s 2>log
	stream order s
	[ "$(stream stacks s | wc -l)" -gt 200 ] || fail "$(cat log)"
	perf script --no-inline -i - <s 2>/dev/null | grep -q 'gamma_fn+'
}

@test "kernel frames without the right to: user frames, said, and the counter tells" {
	[ "$(cat /proc/sys/kernel/perf_event_paranoid)" -ge 2 ] || skip "perf_event_paranoid is below 2"
	publish "$SP_PROG/chain-pie"
	as_nobody "$pub/sp-capture" -k -- "$pub/chain-pie" 200 >s 2>log
	holds "$(cat log)" "no kernel frames"
	holds "$(cat log)" "perf_event_paranoid is"
	stream ext s | grep -q 'kernel_enabled 0'
}

@test "counters that are not there, and older kernels: each refusal has its way out, or its message" {
	cat >shim.c <<-'X'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <errno.h>
		#include <linux/perf_event.h>
		#include <stdarg.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/syscall.h>
		/* SHIM: "pmu N", "guest", "lost", "thread": what perf_event_open refuses, in place of the kernel. */
		long syscall(long n, ...)
		{
			long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
			const char *shim = getenv("SHIM");
			long a[6];
			va_list args;
			va_start(args, n);
			for (int i = 0; i < 6; i++)
				a[i] = va_arg(args, long);
			va_end(args);
			if (n == SYS_perf_event_open) {
				struct perf_event_attr *attr = (void *)a[0], mine = *attr;
				int refuse = 0;
				if (!strncmp(shim, "pmu ", 4) && mine.type == PERF_TYPE_HARDWARE)
					refuse = atoi(shim + 4);
				if (!strcmp(shim, "guest") && mine.type == PERF_TYPE_HARDWARE) {
					refuse = mine.exclude_guest ? 0 : EOPNOTSUPP;
					mine.type = PERF_TYPE_SOFTWARE;
					mine.config = PERF_COUNT_SW_CPU_CLOCK;
					mine.exclude_guest = 0;
				}
				if (!strcmp(shim, "lost") && mine.read_format & PERF_FORMAT_LOST)
					refuse = EINVAL;
				if (!strcmp(shim, "thread") && mine.inherit_thread)
					refuse = EINVAL;
				if (refuse) {
					errno = refuse;
					return -1;
				}
				return real(n, &mine, a[1], a[2], a[3], a[4]);
			}
			return real(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		}
	X
	gcc -shared -fPIC -o shim.so shim.c -ldl
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
	shimmed() { # SHIM OPTION…
		local shim=$1
		shift
		SHIM=$shim LD_PRELOAD=$PWD/shim.so sp-capture -v "$@" >s 2>log
	}
	local os text status
	while read -r os text; do # ENOENT, ENODEV, ENXIO, EOPNOTSUPP
		shimmed "pmu $os" -- "$SP_PROG/chain-pie" 50 || fail "$(cat log)"
		holds "$(cat log)" "no hardware cycles here: perf_event_open: $text; sampling by cpu-clock"
		stream ext s | grep -q 'clock=cpu-clock' || fail "$os: the clock in the stream"
		status=0
		shimmed "pmu $os" -e cycles -- "$SP_PROG/chain-pie" 50 || status=$?
		equal "$status" 1 "a counter that was asked for ($text)"
		holds "$(cat log)" "perf_event_open: $text (event cycles: no such counter here)"
		holds "$(cat log)" "use -e cpu-clock"
	done <<-X
		2 No such file or directory
		19 No such device
		6 No such device or address
		95 Operation not supported
	X
	# Anything else is no missing counter.
	while read -r os text; do
		status=0
		shimmed "pmu $os" -- "$SP_PROG/chain-pie" 50 || status=$?
		equal "$status" 1 "$text"
		[ ! -s s ] || fail "output after a refusal"
		holds "$(cat log)" "perf_event_open: $text"
	done <<-X
		13 Permission denied
		22 Invalid argument
		24 Too many open files (
	X
	shimmed guest -- "$SP_PROG/chain-pie" 50 || fail "$(cat log)"
	holds "$(cat log)" " Hz, cycles"
	stream ext s | grep -q 'clock=cycles' || fail "the clock in the stream"
	shimmed lost -- "$SP_PROG/chain-pie" 100 || fail "$(cat log)"
	holds "$(cat log)" "losses are known by LOST records only"
	[ "$(stream stacks s | wc -l)" -gt 50 ] || fail "$(cat log)"
	# A kernel that follows children though nobody asked: they are left out.
	sh -c "\"$SP_PROG/chain-pie\" 300 & exec \"$SP_PROG/chain-O0\" 100000" >out 3>&- &
	pid=$!
	pids+=("$pid")
	await sh -c "grep -q chain-O0 /proc/$pid/comm"
	shimmed thread -p "$pid" -d 0.2 || fail "$(cat log)"
	equal "$(stream stacks s | cut -d' ' -f1 | sort -u)" "$pid" "processes"
}

@test "once it records, root's sp-capture may do little else; what comes later works all the same" {
	[ "$(id -u)" = 0 ] || skip "a user has no capabilities"
	grep -q '^CapEff:.*1ff' /proc/self/status || skip "this root has not all of them"
	local t caps threads=0
	mkfifo fifo
	start threads 60000
	begin s --control fifo -p "$pid"
	for t in /proc/"$capture"/task/*/status; do
		equal "$(awk '/^NoNewPrivs/ { print $2 }' "$t")" 1 "no_new_privs"
		for caps in $(awk '/^Cap(Inh|Prm|Eff|Amb)/ { print $2 }' "$t"); do
			# DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, IPC_LOCK, SYS_PTRACE, SYSLOG, PERFMON, BPF,
			# CHECKPOINT_RESTORE.
			equal $((0x$caps & ~0x1c40008402e)) 0 "capabilities $caps beyond the needed"
		done
		threads=$((threads + 1))
	done
	[ "$threads" -ge 2 ] || fail "$threads threads"
	# Another user's program whose file is gone: events, maps and map_files of a process that comes later.
	publish "$SP_PROG/chain-pie"
	chmod 700 "$pub"
	chown -R 65534 "$pub"
	setpriv --reuid=65534 --regid=65534 --clear-groups "$pub/chain-pie" 60000 >other.out 3>&- &
	local other=$!
	pids+=("$other")
	until [ "/proc/$other/exe" -ef "$pub/chain-pie" ]; do read -rt 0.01 <> <(:) || :; done
	rm "$pub/chain-pie"
	echo "add $other" >fifo
	await grep -q "add $other: attached" log
	ticks() { awk '{ print $14 }' "/proc/$other/stat"; } # of 10 ms on the CPU
	local before
	before=$(ticks)
	sampled() { [ "$(ticks)" -ge $((before + 30)) ]; }
	await sampled
	echo stop >fifo
	wait "$capture" || fail "$(cat log)"
	stream object s "$pub/chain-pie (deleted)" | cmp - "$SP_PROG/chain-pie"
	[ "$(stream stacks s | awk -v p="$other" '$1 == p' | wc -l)" -gt 50 ] || fail "no samples of what was added"
}

@test "another user's process: refused with call, errno, level and cure" {
	[ "$(id -u)" = 0 ] || skip "needs a second user"
	publish
	start threads 60000
	local status=0
	as_nobody "$pub/sp-capture" -p "$pid" >out 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "perf_event_open: Permission denied"
	holds "$(cat log)" "perf_event_paranoid is"
	holds "$(cat log)" "belongs to user 0"
	[ ! -s out ] || fail "output after a refusal"
}

@test "a small mlock budget: smaller rings, all alike, said; too small for a sample: refused" {
	publish "$SP_PROG/chain-pie"
	local need=$(($(getconf _NPROCESSORS_ONLN) * (16384 + $(getconf PAGESIZE) / 1024)))
	as_nobody bash -c "ulimit -l 0; '$pub/sp-capture' -- '$pub/chain-pie' 200" >s 2>log
	holds "$(cat log)" "instead of 16384 KiB"
	holds "$(cat log)" "to lose less: ulimit -l $need, or a smaller -s"
	as_nobody bash -c "ulimit -l 0; '$pub/sp-capture' --check" >out
	holds "$(cat out)" "; 16384 KiB are wanted: ulimit -l $need, or"
	[ "$(stream stacks s | wc -l)" -gt 100 ]
	equal "$(stream ext s | grep -o 'minimum_ring_buffer_bytes [0-9]*' | cut -d' ' -f2)" \
		"$(stream ext s | grep -o 'maximum_ring_buffer_bytes [0-9]*' | cut -d' ' -f2)"
	local status=0
	sp-capture --engine=perf --ring 32K -- true >out 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "one sample needs"
}

@test "too few descriptors: the soft limit is raised; the hard one names the number needed" {
	start cap_many 200
	await grep -q ready start.out
	bash -c "ulimit -Sn 64; exec sp-capture -d 0.1 -p $pid" >s 2>log
	stream ext s | grep -q '^end'
	local status=0
	bash -c "ulimit -n 64; exec sp-capture -d 0.1 -p $pid" >s 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "Too many open files"
	holds "$(cat log)" "ulimit -n"
}

@test "--check tells what works, and records nothing" {
	sp-capture --check >out 2>log
	holds "$(cat out)" "perf_event_paranoid"
	grep -q 'cpu-clock *yes' out
	grep -q 'rings *yes' out
	local status=0
	sp-capture --check -p 2147483647 >out 2>log || status=$?
	equal "$status" 1
	grep -q 'process 2147483647 no' out
	start cap_many 20
	await grep -q ready start.out
	sp-capture --check --engine=perf -e page-faults -p "$pid" >out
	grep -q 'page-faults *yes' out
	local tid n=0
	for tid in /proc/"$pid"/task/*; do tid=${tid##*/} n=$((n + 1)); done
	holds "$(cat out)" "yes: $n threads, some $(((n + 4) * $(getconf _NPROCESSORS_ONLN) + 64)) descriptors"
	status=0
	sp-capture --check -p "$tid" >out 2>log || status=$?
	equal "$status" 1
	holds "$(cat out)" "it is a thread of process $pid"
	status=0
	bash -c "ulimit -n 64; exec sp-capture --check --engine=perf -p $pid" >out || status=$?
	equal "$status" 1
	holds "$(cat out)" "cure: raise the limit: ulimit -n"
}

# --- files ---

@test "a deleted program travels in the stream" {
	[ "$(id -u)" = 0 ] || skip "map_files needs root"
	cp "$SP_PROG/chain-pie" gone
	./gone 60000 3>&- &
	pid=$!
	pids+=("$pid")
	await sh -c "grep -q libc /proc/$pid/maps"
	rm gone
	sp-capture -p "$pid" -d 0.2 >s 2>log
	stream objects s >objects
	holds "$(cat objects)" "gone (deleted)"
	stream object s "$PWD/gone (deleted)" | cmp - "$SP_PROG/chain-pie"
}

@test "a replaced program: the old one travels, not the one of its name" {
	[ "$(id -u)" = 0 ] || skip "map_files needs root"
	cp "$SP_PROG/chain-pie" prog
	./prog 60000 3>&- &
	pid=$!
	pids+=("$pid")
	await sh -c "grep -q libc /proc/$pid/maps"
	cp "$SP_PROG/chain-nopie" new
	mv new prog
	sp-capture -p "$pid" -d 0.2 >s 2>log
	stream objects s | grep -q 'prog (deleted)$'
	stream object s "$PWD/prog (deleted)" | cmp - "$SP_PROG/chain-pie"
}

@test "--embed none, auto, all" {
	sp-capture --embed none -- "$SP_PROG/chain-pie" 50 >s 2>log
	equal "$(stream objects s)" ""
	sp-capture -- "$SP_PROG/chain-pie" 50 >s 2>log
	equal "$(stream objects s | wc -l)" 1 "objects by default"
	sp-capture --embed all -- "$SP_PROG/chain-pie" 50 >s 2>log
	stream object s "$SP_PROG/chain-pie" | cmp - "$SP_PROG/chain-pie"
}

@test "a perf map is taken when its process exits, and marked" {
	local p
	sp-capture -- "$SP_PROG/cap_jit" 100 >s 2>log
	p=$(stream stacks s | awk 'NR == 1 { print $1 }')
	stream object s "/tmp/perf-$p.map" >map
	rm -f "/tmp/perf-$p.map"
	grep -q jit_loop map
	stream ext s | grep -q "^runtime $p 2 1"
}

@test "a perf map of another kind than a file of the process's user is not touched" {
	local p
	start cap_jit 60000
	p=$pid
	await test -s "/tmp/perf-$p.map"
	rm "/tmp/perf-$p.map"
	mkfifo "/tmp/perf-$p.map"
	timeout 20 sp-capture -p "$p" -d 0.2 >s 2>log
	equal "$(stream objects s | grep -c map)" 0
	rm "/tmp/perf-$p.map"
	echo 'secret' >secret
	ln -s "$PWD/secret" "/tmp/perf-$p.map"
	sp-capture -p "$p" -d 0.2 >s 2>log
	rm "/tmp/perf-$p.map"
	equal "$(stream objects s | grep -c map)" 0
}

@test "python -X perf is marked as such, a python without is not, exec ends it" {
	local python
	python=$(dirname "$SP_PROG")/python/bin/python3
	[ -x "$python" ] || skip "no python with perf support"
	sp-capture -- "$python" -X perf -c 'import os; os.execv("/bin/true", ["true"])' >s 2>log
	stream ext s | awk '$1 == "runtime" && $3 == 1 { print $4 }' >marks
	equal "$(tr '\n' ' ' <marks)" "1 0 "
	sp-capture -- "$python" -c 'pass' >s 2>log
	equal "$(stream ext s | grep -c '^runtime')" 0
}

# --- lives of processes ---

@test "a daemon: two forks and a session away, recorded to its own end" {
	daemon_lives perf
}

@test "a leader that exits while another thread runs: recorded until that one ends" {
	leader_lives perf
}

@test "a process whose leader has exited already is attached to, with its mappings" {
	start_life leader 2000
	begin_life
	await sh -c "grep -q '^State:.*Z' /proc/$pid/status"
	begin s -p "$pid"
	wait "$capture" || fail "$(cat log)"
	stream ext s | grep -q '^end status=0'
	equal "$(stream stacks s | awk -v p="$pid" '{ print $1 == p, $1 == $2 }' | sort -u)" "1 0" "whose samples"
	equal "$(perf script --no-inline -F ip,sym -i - <s 2>/dev/null | grep -o '[a-z]*_hot$' | sort -u)" orphan_hot
}

@test "a pid that is used again within the recording: each process has its own modules" {
	[ "$(id -u)" = 0 ] || skip "needs root for a pid namespace"
	cat >two.sh <<-'X'
		"$SP_PROG/chain-pie" 100 & p=$!
		wait
		echo $((p - 1)) >/proc/sys/kernel/ns_last_pid
		"$SP_PROG/chain-nopie" 100 & q=$!
		wait
		echo "$p $q" >used
	X
	unshare --pid --fork --mount-proc sp-capture -- sh two.sh >s 2>log || fail "$(cat log)"
	local p q
	read -r p q <used
	equal "$q" "$p" "the pid is used again"
	stream order s
	equal "$(stream ext s | grep -c "^exec $p .*chain-")" 2 "exec markers of the pid"
	sp-unwind <s 2>log | sp-spool -o reused.spool 2>>log || fail "$(cat log)"
	sp-sym --format=raw reused.spool | awk -v p="$p" '
		/^sample/ { mine = $3 == p; next }
		mine && /chain-/ { print $2; mine = 0 }
	' | uniq >modules
	equal "$(sed 's|.*/||' modules | tr '\n' ' ')" "chain-pie chain-nopie " "modules in time order"
	# No frame of either in the other's image: names by value.
	sp-sym --format=folded reused.spool >folded
	equal "$(grep '\[chain-' folded | head -n 3)" "" "addresses without a name"
}

@test "SIGHUP ends the recording with a whole stream; a launched command has it too" {
	start threads 20000
	begin s -p "$pid"
	kill -HUP "$capture"
	wait "$capture" || fail "status $?: $(cat log)"
	stream ext s | grep -q '^end status=0'
	equal "$(state_of "$pid" | tr -d '\n' | grep -c '[RS]')" 1 "the target runs on"
	begin s -- sleep 100
	kill -HUP "$capture"
	local status=0
	wait "$capture" || status=$?
	equal "$status" 129 "status: as the command's"
	stream ext s | grep -q '^end status=0'
}

@test "behind nohup a hangup ends nothing" {
	start threads 20000
	(trap '' HUP && exec sp-capture -p "$pid" >s 2>log 3>&-) &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
	local ignored
	ignored=$(awk '/^SigIgn/ { print $2 }' "/proc/$capture/status")
	[ $((0x$ignored & 1)) = 1 ] || fail "SigIgn $ignored"
	kill -INT "$capture"
	wait "$capture" || fail "status $?: $(cat log)"
	stream ext s | grep -q '^end status=0'
}

# --- control ---

@test "closed standard descriptors: no message goes into a recording, and the pipeline still runs" {
	start chain-pie 20000
	sp-capture -vv -d 0.3 -o closed.data -p "$pid" 2>&-
	equal "$(head -c 8 closed.data)" PERFILE2
	equal "$(grep -ac 'sp-capture: ' closed.data)" 0
	sp-capture -d 0.3 -o closed.spool -p "$pid" <&- >&- 2>&-
	equal "$(sp-sym -f stats closed.spool | sed -n 's/^spool  *//p')" whole
	local rc=0
	sp-capture -d 0.1 -p "$pid" >&- 2>log || rc=$?
	equal "$rc" 1
	holds "$(cat log)" "cannot write standard output: Bad file descriptor"
}

@test "output to a terminal is refused with the pipelines to type, a line each" {
	script -qec "sp-capture -p $$" /dev/null </dev/null >out && fail "not refused"
	equal "$(tr -d '\r' <out)" "sp-capture: a stream is not for a terminal; type:
  sp-capture -p $$ | sp-unwind | sp-spool -o out.spool; sp-sym out.spool
or: sp-capture -o out.spool -p $$
sp-capture: see 'sp-capture --help'"
}

@test "--control: what is no command is shown without what a terminal would obey" {
	start chain-pie 20000
	mkfifo fifo
	begin s --control fifo -p "$pid"
	printf 'a\033[2Jb\302\233c\177d\nstop\n' >fifo
	wait "$capture"
	holds "$(cat log)" "unknown command 'a?[2Jb??c?d'; known"
}

@test "--control: root takes no commands from another user's fifo" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	start chain-pie 20000
	mkfifo fifo
	chown 65534 fifo
	local rc=0
	env -u SUDO_UID sp-capture --control fifo -d 0.1 -p "$pid" >s 2>log || rc=$?
	equal "$rc" 1
	equal "$(cat log)" "sp-capture: cannot take commands from fifo: it belongs to user 65534"
	[ -p fifo ] # not ours to remove
	SUDO_UID=65534 sp-capture --control fifo -d 0.1 -p "$pid" >s 2>log
	holds "$(cat log)" ", 0 lost"
}

@test "--control: each command is answered and done" {
	start threads 20000
	local other n
	start chain-pie 20000
	other=$pid
	mkfifo fifo
	begin s --control fifo -p "${pids[0]}"
	echo disable >fifo
	await grep -q 'control: disabled' log
	echo "summary" >fifo
	await grep -q 'control: [0-9]* samples' log
	printf 'enable\nadd %d\nadd %d\nrefresh %d\nnonsense\n' "$other" "$other" "$other" >fifo
	await grep -q "unknown command 'nonsense'" log
	holds "$(cat log)" "add $other: attached"
	holds "$(cat log)" "add $other: attached already"
	holds "$(cat log)" "refresh $other: 0 new mappings"
	# Until the added process has been sampled.
	more() { echo summary >fifo; [ "$(sed -n 's/.*control: \([0-9]*\) samples.*/\1/p' log | tail -n 1)" -gt 200 ]; }
	await more
	echo stop >fifo
	wait "$capture"
	n=$(stream stacks s | awk -v p="$other" '$1 == p' | wc -l)
	[ "$n" -gt 10 ] || fail "$n samples of the added process"
	stream order s
	stream ext s | grep -q '^end status=0'
}

@test "--control on a socket: each connection has its own answers; the file is ours only and goes" {
	start threads 20000
	local target=$pid other
	start chain-pie 20000
	other=$pid
	begin s --control here.sock -p "$target"
	equal "$(stat -c '%a %F' here.sock)" "600 socket"
	python3 - "$target" "$other" <<-'X'
		import os, socket, sys
		target, other = sys.argv[1:]
		def connect():
		    s = socket.socket(socket.AF_UNIX)
		    s.settimeout(60)
		    s.connect("here.sock")
		    return s
		def ask(s, text):
		    s.sendall(text.encode())
		    return hear(s)
		def hear(s):
		    line = b""
		    while not line.endswith(b"\n"):
		        part = s.recv(1)
		        if not part:
		            return line.decode() + "<end>"
		        line += part
		    return line.decode().rstrip("\n")
		def want(got, wanted):
		    assert got == wanted, f"got {got!r}, wanted {wanted!r}"
		a, b = connect(), connect()
		want(ask(a, "disable\n"), "disabled")
		want(ask(b, "enable\r\n"), "enabled")
		want(ask(a, "add %s\nadd %s\nrefresh %s\nsum" % (other, other, target)), f"add {other}: attached")
		want(hear(a), f"add {other}: attached already")
		assert hear(a).startswith(f"refresh {target}: 0 new mappings, ")
		assert ask(b, "summary\n").endswith(" lost, 2 processes")
		assert ask(a, "mary\n").endswith(" lost, 2 processes"), "a command in two parts"
		want(ask(b, "nonsense\n")[:26], "unknown command 'nonsense'")
		# Half of a command, and gone.
		for _ in range(3):
		    c = connect()
		    c.sendall(b"stop")
		    c.close()
		# No end of line: megabytes are not taken, the connection ends.
		c = connect()
		try:
		    c.sendall(b"x" * (4 << 20))
		except (BrokenPipeError, ConnectionResetError):
		    pass
		want(hear(c), "a command has less than 256 bytes")
		try:
		    want(hear(c), "<end>")
		except ConnectionResetError:
		    pass
		# Commands without end whose answers nobody reads: hung up on.
		c = connect()
		try:
		    while True:
		        c.sendall(b"summary\n" * 1000)
		except (BrokenPipeError, ConnectionResetError):
		    pass
		# More than there is room for: the newcomer is heard, the one that spoke last stays.
		ask(b, "summary\n")
		crowd = [connect() for _ in range(20)]
		want(ask(crowd[-1], "disable\n"), "disabled")
		want(ask(crowd[-1], "enable\n"), "enabled")
		c = connect()
		samples = lambda: int(ask(c, "summary\n").split()[0])
		enough = samples() + 600 # the added process's too
		while samples() < enough:
		    pass
		want(ask(c, "stop\n"), "stopping")
		want(hear(c), "<end>")
	X
	wait "$capture" || fail "$(cat log)"
	[ ! -e here.sock ] || fail "the socket is still there"
	[ "$(stream stacks s | awk -v p="$other" '$1 == p' | wc -l)" -gt 10 ] || fail "few samples of the added process"
	stream order s
	stream ext s | grep -q '^end status=0'
}

@test "--control on a socket: one that nobody listens on is replaced, all else is left alone" {
	start threads 20000
	local target=$pid status=0 first
	begin s --control here.sock -p "$target"
	first=$capture
	sp-capture --control here.sock -p "$target" >out 2>log2 || status=$?
	equal "$status" 1 "somebody listens"
	holds "$(cat log2)" "cannot make the socket here.sock: it is there already"
	kill -9 "$first"
	wait "$first" 2>/dev/null || :
	[ -S here.sock ] || fail "the socket of the one that was killed is not there"
	begin s --control here.sock -p "$target"
	mv here.sock elsewhere.sock
	echo mine >here.sock
	kill -INT "$capture"
	wait "$capture"
	equal "$(cat here.sock)" mine "what another put there"
	status=0
	sp-capture --control here.sock -p "$target" >out 2>log2 || status=$?
	equal "$status" 1 "a file"
	equal "$(cat here.sock)" mine "the file"
	ln -sf elsewhere.sock link.sock
	status=0
	sp-capture --control link.sock -p "$target" >out 2>log2 || status=$?
	equal "$status" 1 "a symbolic link"
	status=0
	sp-capture --control "$(printf '%0120d' 0).sock" -p "$target" >out 2>log2 || status=$?
	equal "$status" 1 "a long name"
	holds "$(cat log2)" "at most 107 bytes"
}

# --- cost ---

@test "descriptors stay few over 1,000 processes, each of which has its exec marker" {
	cat >loop.sh <<-'X'
		i=0
		while [ $i -lt 1000 ]; do /bin/true; i=$((i + 1)); done
		: >finished
	X
	begin s -- sh loop.sh
	local most=0 n=0
	# Looks while the loop runs, which then says so.
	until [ -e finished ]; do
		n=$(find /proc/"$capture"/fd 2>/dev/null | wc -l)
		[ "$n" -le "$most" ] || most=$n
	done
	wait "$capture"
	[ "$most" -gt 0 ] && [ "$most" -lt 60 ] || fail "$most descriptors"
	n=$(stream ext s | grep -c '^exec')
	[ "$n" -ge 1000 ] || fail "$n exec markers"
}

# --- the rest of what can go wrong ---

@test "ptrace refused: SIGSTOP with a watchdog; the target runs on" {
	start cap_many 50
	await grep -q ready start.out
	"$SP_PROG/no_call" ptrace EPERM sp-capture --stop -p "$pid" -d 0.1 >s 2>log || fail "$(cat log)"
	stream ext s | grep -q '^end status=0'
	equal "$(states_of "$pid")" S
	kill -STOP "$pid"
	await in_state "$pid" T
	"$SP_PROG/no_call" ptrace EPERM sp-capture --stop -p "$pid" -d 0.1 >s 2>log
	equal "$(states_of "$pid")" T "a target that was stopped before"
	kill -CONT "$pid"
}

# The CPUs share the ring of the BPF engine, which begins with room for stacks of 20 KiB.
first_ring() { # HZ
	local all=$((20480 * $1 / 4 * $(nproc --all))) bytes=$((4 << 20))
	while [ $((bytes * 2)) -le $all ]; do bytes=$((bytes * 2)); done
	echo $bytes
}

@test "the default ring holds 250 ms of the rate and stack: nothing is lost while nobody looks" {
	[ "$(id -u)" = 0 ] || skip "a user's rings are limited by his budget"
	mkfifo go
	local engine hz ms bytes
	# Samples of a clock: as many as the CPU time of its four threads has periods, wherever they run.
	while read -r engine hz ms bytes; do
		rm -f log # the last one's: it says that it records
		sp-capture --engine="$engine" -F "$hz" -- sh -c 'read -r _ <go; exec "$0" "$1"' "$SP_PROG/threads" "$ms" >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		kill -STOP "$capture" # before the first of them
		echo >go
		await sh -c "! pgrep -P $capture -r S,R,D"
		kill -CONT "$capture"
		wait "$capture" || fail "$(cat log)"
		holds "$(cat log)" " samples, 0 lost;"
		equal "$(stream ext s | grep -o 'minimum_ring_buffer_bytes [0-9]*')" "minimum_ring_buffer_bytes $bytes"
		[ "$(stream stacks s | wc -l)" -gt $((hz * ms / 300)) ] || fail "$(cat log)"
	done <<-X
		perf 999 55 16777216
		perf 4999 48 67108864
		bpf 999 55 $(first_ring 999)
		bpf 4999 48 $(first_ring 4999)
	X
}

@test "an exec that was lost in a full ring is told all the same: the old image's names end" {
	start cap_exec 1500
	begin s --engine=perf -F 4999 -s 65528 --ring 256K -p "$pid"
	kill -STOP "$capture"
	await sh -c "tr '\0' ' ' </proc/$pid/cmdline | grep -q ' b $'"
	kill -CONT "$capture"
	wait "$capture" || fail "$(cat log)"
	stream order s
	[ "$(sed -n 's/.* samples, \([0-9]*\) lost.*/\1/p' log)" -gt 100 ] || fail "$(cat log)"
	perf script --no-inline -F ip,sym,time -i - <s 2>/dev/null | awk '/spin_[ab]$/ { print $2 }' | uniq >seen
	equal "$(tr '\n' ' ' <seen)" "spin_a spin_b " "order of the images"
	equal "$(stream ext s | grep -c '^exec')" 2 "exec markers"
}

@test "3,000 threads: with ulimit -n 256 the number needed is said, and enough is enough" {
	start cap_many 3000
	await grep -q ready start.out
	local status needed engine each
	for engine in perf auto; do
		status=0
		bash -c "ulimit -n 256; exec sp-capture --engine=$engine -d 0.1 -p $pid" >s 2>log || status=$?
		equal "$status" 1
		needed=$(sed -n 's/.*ulimit -n \([0-9]*\).*/\1/p' log)
		each=$(getconf _NPROCESSORS_ONLN)
		grep -q 'on CPU [0-9]*: perf_event_open' log || each=1 # BPF samples a thread on all CPUs
		[ "$needed" -gt $((3001 * each)) ] || fail "$(cat log)"
		[ "$needed" -lt $((3001 * each + 1000)) ] || fail "$(cat log)"
		equal "$(stream ext s | grep -o '^end status=cut')" "end status=cut" "the stream's end"
		stream ext s | grep -q "reason=sp-capture failed: .*Too many open files"
		[ "$needed" -le "$(ulimit -Hn)" ] || skip "the hard limit is below $needed"
		bash -c "ulimit -n $needed; exec sp-capture --engine=$engine -d 0.1 -p $pid" >s 2>log || fail "$(cat log)"
		stream ext s | grep -q '^end status=0'
	done
}

@test "-o FILE.spool: refused when some threads are attached to already, it leaves the spool that was there" {
	start cap_many 100
	await grep -q ready start.out
	local status=0
	echo old >out.spool
	bash -c "ulimit -n 80; exec sp-capture -q --engine=perf -o out.spool -p $pid" 2>log || status=$?
	equal "$status" 1
	holds "$(sed -n 1p log)" "Too many open files"
	equal "$(grep -v '^sp-capture: ' log || :)" "" "what other stages say"
	equal "$(cat out.spool)" old
}

@test "1,000 idle threads cost next to no CPU" {
	start cap_many 1000
	await grep -q ready start.out
	begin s -p "$pid"
	local before after
	before=$(awk '{ print $14 + $15 }' /proc/"$capture"/stat)
	sleep 2 # the time that is measured
	after=$(awk '{ print $14 + $15 }' /proc/"$capture"/stat)
	kill -INT "$capture"
	wait "$capture"
	# In hundredths of a second.
	[ $((after - before)) -le 6 ] || fail "$((after - before))0 ms of CPU in 2 s"
}

@test "20,000 children that exec: descriptors and memory stay bounded, nothing is forgotten" {
	begin s -F 99 -- "$SP_PROG/cap_storm" 20000
	local most=0 n rss=0 kb
	while kill -0 "$capture" 2>/dev/null && [ "$(state_of "$capture" 2>/dev/null)" != Z ]; do
		n=$(find /proc/"$capture"/fd 2>/dev/null | wc -l)
		kb=$(awk '/^RssAnon/ { print $2 }' /proc/"$capture"/status 2>/dev/null || :)
		[ "$n" -le "$most" ] || most=$n
		[ "${kb:-0}" -le "$rss" ] || rss=$kb
		read -rt 0.05 <> <(:) || :
	done
	wait "$capture" || fail "$(cat log)"
	[ "$most" -gt 0 ] && [ "$most" -lt 60 ] || fail "$most descriptors"
	[ "$rss" -lt 65536 ] || fail "$rss KiB"
	grep -q '^20000$' log || fail "$(cat log)"
	local lost
	lost=$(sed -n 's/.* samples, \([0-9]*\) lost.*/\1/p' log)
	n=$(stream ext s | grep -c '^exec')
	[ "$n" = 20001 ] || [ "$lost" -gt 0 ] || fail "$n exec markers, nothing lost"
}

@test "a program in a memfd travels in the stream; a jitdump too" {
	[ "$(id -u)" = 0 ] || skip "map_files needs root"
	sp-capture -- "$SP_PROG/cap_memfd" 300 jit >s 2>log
	stream objects s >objects
	holds "$(cat objects)" "/memfd:cap_memfd"
	stream object s "/memfd:cap_memfd (deleted)" | cmp - "$SP_PROG/cap_memfd"
	local p
	p=$(stream stacks s | awk 'END { print $1 }')
	stream object s "$PWD/jit-$p.dump" | cmp - "jit-$p.dump"
	stream ext s | grep -q "^runtime $p 3 1"
}

@test "a program of another mount namespace travels in the stream, its perf map too" {
	[ "$(id -u)" = 0 ] || skip "needs a mount namespace"
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	mkdir in
	unshare -m sh -c 'mount -t tmpfs x in && cp "$1" in/ && cd in && mount -t tmpfs y /tmp && exec ./cap_jit 60000' \
		sh "$SP_PROG/cap_jit" 3>&- &
	local p=$!
	pids+=("$p")
	await test -s "/proc/$p/root/tmp/perf-$p.map"
	sp-capture -p "$p" -d 0.3 >s 2>log
	stream objects s >objects
	stream object s "$(readlink /proc/"$p"/exe)" | cmp - "$SP_PROG/cap_jit" || fail "$(cat objects)"
	stream object s "/tmp/perf-$p.map" | grep -q jit_loop
}

@test "a file that may not grow ends the recording with the reason; what is in it is readable" {
	local status=0
	bash -c 'ulimit -f 400; exec sp-capture -o x.data -- "$0" 1000' "$SP_PROG/chain-pie" >out 2>log || status=$?
	equal "$status" 1 "$(cat log)"
	holds "$(cat log)" "File too large"
	status=0
	sp-unwind x.data >s 2>log || status=$?
	equal "$status" 3 "$(cat log)"
	[ "$(sed -n 's/^sp-unwind: \([0-9]*\) samples, .*/\1/p' log)" -gt 50 ] || fail "$(cat log)"
}

@test "behind sudo: the fifo and the socket of --control are the user's" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	start chain-pie 60000
	local path
	for path in commands commands.sock; do
		rm -f log
		SUDO_UID=65534 SUDO_GID=65534 sp-capture --control "$path" -p "$pid" >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		equal "$(stat -c '%u:%g %a' "$path")" "65534:65534 600" "$path"
		kill -INT "$capture"
		wait "$capture"
		[ ! -e "$path" ] || fail "$path is still there"
	done
}

@test "behind sudo: the file and the command are the user's" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	publish
	chmod 711 "$BATS_TEST_TMPDIR"
	SUDO_UID=65534 SUDO_GID=65534 sp-capture -o x.data -- id -u >out 2>log
	equal "$(cat out)" 65534 "the command's user"
	equal "$(stat -c %u:%g x.data)" 65534:65534 "the file's owner"
	cp "$SP_PROG/chain-pie" prog # where that user may read it
	SUDO_UID=65534 SUDO_GID=65534 sp-capture -q -o x.spool -- ./prog 50 >out 2>log
	equal "$(stat -c %u:%g x.spool)" 65534:65534 "the spool's owner"
}

@test "a terminal sees what goes on: time, samples, processes, lost" {
	script -qec "sp-capture -d 2.2 -o x.data -- '$SP_PROG/chain-pie' 5000 & wait" /dev/null >out </dev/null || :
	grep -qE '[0-9]+ s, [0-9]+ samples, 1 process, 0 lost' out || fail "$(cat out)"
}

@test "--control refresh with -f takes descendants along that nobody attached" {
	sh -c "\"$SP_PROG/chain-pie\" 20000; :" 3>&- &
	pid=$!
	pids+=("$pid")
	await sh -c "grep -q chain /proc/\$(tr -d ' ' </proc/$pid/task/$pid/children)/comm"
	local child
	child=$(tr -d ' ' </proc/$pid/task/$pid/children)
	pids+=("$child")
	mkfifo fifo
	begin s -f --control fifo -p "$pid"
	echo "refresh $pid" >fifo
	await grep -q 'new descendants' log
	holds "$(cat log)" "refresh $pid: 0 new mappings, 1 threads, 1 new descendants"
	more() { echo summary >fifo; [ "$(sed -n 's/.*control: \([0-9]*\) samples.*/\1/p' log | tail -n 1)" -gt 50 ]; }
	await more
	echo stop >fifo
	wait "$capture"
	equal "$(stream stacks s | cut -d' ' -f1 | sort -u)" "$child"
}

# --- words ---

@test "code, help, man page and completion know the same options" {
	sp-capture --help | grep -oE -- '--[a-z][a-z-]+' | sort -u >help
	sed 's/\\-/-/g' "$TOP/sp-capture/sp-capture.1" | grep -oE -- '--[a-z][a-z-]+' | sort -u >manual
	grep -oE -- '--[a-z][a-z-]+' "$TOP/sp-capture/sp-capture.bash" | sort -u >completion
	# -q and -v are short in the manual.
	equal "$(comm -23 help manual | grep -vxE -- '--(quiet|verbose)')" "" "options that the manual lacks"
	equal "$(comm -23 help completion)" "" "options that the completion lacks"
	equal "$(comm -13 help completion)" "" "options that only the completion has"
}
