#!/usr/bin/env bats
# sp-capture as a recorder to trust on a production machine: what ends it, what it loses and says so,
# what the kernel does to it meanwhile; by exact numbers where there are any.
#
# shellcheck disable=SC2094,SC2030,SC2031,SC2154 # each test is a shell of its own; s is a name; live.bash has more

load lib
load live

setup() {
	live_setup
	limit='' small=''
}
teardown() {
	[ -z "$limit" ] || echo "$limit" >/proc/sys/kernel/perf_event_max_sample_rate
	live_teardown
	[ -z "$small" ] || umount -l "$small"
}

# --- holding ---

# Kill at every third instant of a hold, until it is over before: kill_all main|keeper|watch HOLD COMMAND…
kill_all() {
	local mode=$1 hold=$2 at=0 status
	shift 2
	until [ "${status:-0}" = 1 ]; do
		status=0
		"$SP_PROG/kill_at" "$mode" "$hold" $at "$@" >s 2>log || status=$?
		[ $status -le 1 ] || fail "$mode $at: $status: $(cat log)"
		await in_state "$pid" S || fail "$mode $at: $(states_of "$pid")"
		at=$((at + 3))
	done
	[ $at -gt 30 ] || fail "$at instants"
}

@test "held by ptrace: whoever is killed, and whenever, the target runs on" {
	local mode
	start cap_many 3
	await grep -q ready start.out
	for mode in main keeper watch; do
		kill_all $mode 1 sp-capture --stop -q -d 0.01 -p "$pid"
	done
}

@test "held by SIGSTOP: whoever is killed, and whenever, the target runs on" {
	local mode
	start cap_many 3
	await grep -q ready start.out
	for mode in main keeper watch; do
		kill_all $mode 2 "$SP_PROG/no_call" ptrace EPERM sp-capture --stop -q -d 0.01 -p "$pid"
	done
}

# --- attaching that fails ---

has_fds() { [ "$(find "/proc/$capture/fd" | wc -l)" -le "$1" ]; }

@test "a process that cannot be added leaves no trace: no descriptors, and the recording does not wait for it" {
	start cap_many 300
	local many=$pid first engine before
	await grep -q ready start.out
	start threads 60000
	first=$pid
	mkfifo fifo
	for engine in perf auto; do
		rm -f log
		bash -c "ulimit -n 120; exec sp-capture --engine=$engine --control fifo -p $first" >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		before=$(find "/proc/$capture/fd" | wc -l)
		echo "add $many" >fifo
		await grep -q "control: add $many: " log
		holds "$(cat log)" "control: add $many: cannot "
		holds "$(cat log)" "Too many open files"
		await has_fds "$before" || fail "$engine: $(ls -l "/proc/$capture/fd")" # but for what it has just opened
		echo "add $many" >fifo
		await sh -c "test \$(grep -c 'control: add $many: cannot ' log) = 2"
		start threads 60000
		echo "add $pid" >fifo
		await grep -q "control: add $pid: attached" log
		kill -9 "$pid"
		kill -INT "$capture"
		wait "$capture" || fail "$(cat log)"
		equal "$(stream stacks s | awk -v p="$many" '$1 == p' | wc -l)" 0 "$engine: samples of what was not added"
	done
	begin s --control fifo -p "$first"
	echo "add 2147483647" >fifo
	await grep -q "control: add 2147483647: .*no such process" log
	kill -9 "$first"
	wait "$capture" || fail "$(cat log)"
}

@test "a pid that goes to another process while we attach: refused, and that one is left alone" {
	[ "$(id -u)" = 0 ] || skip "needs root for a pid namespace"
	cat >shim.c <<-'X'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <signal.h>
		#include <stdarg.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		/* Before the SWAP_AT-th event of process SWAP: it ends, and a new one has its id. */
		static void swap(int pid)
		{
			char text[16];
			int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY), n = snprintf(text, sizeof text, "%d", pid - 1);
			kill(pid, SIGKILL);
			while (kill(pid, 0) == 0)
				usleep(1000); /* until its parent has reaped it */
			if (pwrite(fd, text, n, 0) != n)
				abort();
			int child = fork();
			if (child == 0) {
				unsetenv("LD_PRELOAD");
				execl("other", "other", "60000", NULL);
				_exit(1);
			}
			if (child != pid)
				abort();
		}
		long syscall(long n, ...)
		{
			static int n_opened;
			long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
			long a[6];
			va_list args;
			va_start(args, n);
			for (int i = 0; i < 6; i++)
				a[i] = va_arg(args, long);
			va_end(args);
			int pid = atoi(getenv("SWAP"));
			if (n == SYS_perf_event_open && (int)a[1] == pid && ++n_opened == atoi(getenv("SWAP_AT")))
				swap(pid);
			return real(n, a[0], a[1], a[2], a[3], a[4], a[5]);
		}
	X
	gcc -shared -fPIC -o shim.so shim.c -ldl
	cp "$SP_PROG/chain-pie" one
	cp "$SP_PROG/chain-nopie" other
	# Its shell reaps what ends while it waits.
	cat >swap.sh <<-'X'
		./one 60000 & p=$!
		while [ ! /proc/$p/exe -ef one ]; do :; done
		SWAP=$p SWAP_AT=$1 LD_PRELOAD=./shim.so sp-capture $2 -d 1 -p $p >s 2>log
		echo "$? $p" >ended
		until [ /proc/$p/exe -ef other ]; do :; done
		grep State: /proc/$p/status >state
		kill -9 $p
	X
	local at how status p
	# The first event only asks whether it may be sampled; of the others, one a CPU.
	for at in 2 3; do
		for how in "" --stop -f; do
			[ $at = 2 ] || [ "$(getconf _NPROCESSORS_ONLN)" -gt 1 ] || continue
			# shellcheck disable=SC2086 # none, or one
			unshare --pid --fork --mount-proc sh swap.sh $at $how
			read -r status p <ended
			equal "$status" 1 "at $at $how: $(cat log)"
			holds "$(cat log)" "cannot attach to process $p: it has ended, and another one has its id"
			equal "$(stream stacks s)" "" "samples"
			! grep -qi stopped state || fail "the other one is held: $(cat state)"
		done
	done
}

@test "a list of threads that cannot be read to its end is an error, not a shorter list" {
	local status=0
	start cap_many 5
	await grep -q ready start.out
	"$SP_PROG/no_call" getdents64 EIO sp-capture -d 0.1 -p "$pid" >s 2>log || status=$?
	equal "$status" 1
	holds "$(cat log)" "cannot list the threads of process $pid: /proc/$pid/task: Input/output error"
	stream ext s | grep -q '^end status=cut'
}

# --- names ---

# cap_names under sp-capture OPTIONS…; step LETTER is answered, and sampled, before it returns.
start_names() {
	mkfifo in fifo
	exec 9<>in
	"$SP_PROG/cap_names" <in >start.out 3>&- 9>&- &
	pid=$!
	pids+=("$pid")
	await grep -q ready start.out
	begin s --control fifo "$@" -p "$pid"
	sampled
}
# All that it does is on one CPU, and so are its records.
pin() { taskset -acp "$(a_cpu)" "$pid" >taskset.out; }
step() { : >start.out; printf %s "$1" >&9; await grep -q "done $1" start.out; }
summaries() { sed -n 's/.*control: \([0-9]*\) samples.*/\1/p' log; }
has_more() { [ "$(summaries | wc -l)" -gt "$1" ]; }
samples() {
	local n
	n=$(summaries | wc -l)
	echo summary >fifo
	await has_more "$n"
	summaries | tail -n 1
}
more_than() { [ "$(samples)" -gt "$1" ]; }
sampled() { await more_than $(($(samples) + 100)); }
# The names of the workers' samples in their order, one of a run; one worker's. EXCEPT: no thread of that id.
# Ids that are smaller than the process's came later, when the numbers began again.
names_seen() { # [EXCEPT]
	perf script --no-inline -F comm,tid -i - <s 2>/dev/null |
		awk -v but="${1-}" -v p="$pid" 'NF == 2 && $2 ~ /^[0-9]+$/ && $2 != but { print $2 + ($2 < p ? 4194304 : 0), $1 }' |
		sort -s -k1,1n | uniq | awk '$1 != last { n++; last = $1 } n == 1 { printf "%s ", $2 }'
}

@test "a pool thread renamed while recording, by itself and by another: each sample has the name of its time" {
	start_names
	step s
	sampled
	step o
	sampled
	echo stop >fifo
	wait "$capture" || fail "$(cat log)"
	stream order s
	equal "$(names_seen)" "cap_names a-self-0 other-0 " "names"
	sp-unwind <s 2>log | sp-spool -o names.spool 2>>log
	local folded
	folded=$(sp-sym --format=folded names.spool | cut -d';' -f1 | sort | tr '\n' ' ')
	holds "$folded" "cap_names "
	sp-sym -f text names.spool | awk '/^[a-z]/ { print $1 }' | sort -u | tr '\n' ' ' >seen
	equal "$(cat seen)" "a-self-0 a-self-1 cap_names other-0 other-1 " "names in the spool"
}

@test "what happens while sampling is disabled is known when it is enabled: names, an exec" {
	start_names
	echo disable >fifo
	await grep -q 'control: disabled' log
	step s
	echo enable >fifo
	await grep -q 'control: enabled' log
	sampled
	echo disable >fifo
	await sh -c 'test $(grep -c "control: disabled" log) = 2'
	printf x >&9
	await grep -q next start.out
	echo enable >fifo
	await sh -c 'test $(grep -c "control: enabled" log) = 2'
	sampled
	echo stop >fifo
	wait "$capture" || fail "$(cat log)"
	stream order s
	equal "$(names_seen)" "cap_names exe " "names of the first thread" || equal "$(names_seen)" "exe "
	equal "$(stream ext s | grep -c '^exec')" 2 "exec markers"
	holds "$(stream ext s | grep '^exec')" "cap_names next"
	perf script --no-inline -F tid,comm,ip,sym -i - <s 2>/dev/null >script
	grep -q a-self-1 script
	# After the second exec there is no name of before, and none of its functions.
	awk '/next_hot/ { at = NR } /a-self/ && at { exit 1 } /pool_hot/ && at { exit 1 }' script
}

@test "a thread renamed, a child forked, a library mapped while records are lost: all of it is known again" {
	local engine
	for engine in perf auto; do
		start_names -f -F 99 --engine $engine --ring 256K
		pin
		kill -STOP "$capture"
		step r # the ring of that CPU is full
		step s
		step c
		step l
		kill -CONT "$capture"
		sampled
		sampled
		echo stop >fifo
		wait "$capture" || fail "$(cat log)"
		kill -9 "$pid"
		exec 9>&- # its input
		stream order s
		equal "$(stream types s | awk '$1 == 7')" "" "$engine: records of births"
		equal "$(stream ext s | grep -c 'lifecycle_gaps [1-9]')" 1 "$engine: gaps"
		equal "$(names_seen "$pid")" "cap_names a-self-0 " "$engine: names"
		perf script --no-inline -F pid,ip,sym -i - <s 2>/dev/null |
			awk 'NF == 1 { who = $1 } NF == 2 && $2 ~ /_hot$/ { print who == '"$pid"', $2 }' | sort -u | tr '\n' ' ' >seen
		equal "$(cat seen)" "0 child_hot 1 plug_hot 1 pool_hot " "$engine: what runs in whom"
		rm in fifo
	done
}

@test "a target that is not dumpable for a while: said, recorded on, and read again when it may be" {
	[ "$(id -u)" = 0 ] || skip "needs root to be another user"
	local nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	publish "$SP_PROG/cap_names" "$SP_PROG/libplugin.so"
	mkfifo in "$pub/fifo"
	chmod 666 "$pub/fifo"
	ln -s "$pub/fifo" fifo
	exec 9<>in
	"${nobody[@]}" "$pub/cap_names" <in >start.out 3>&- 9>&- &
	pid=$!
	pids+=("$pid")
	await grep -q ready start.out
	rm -f log
	"${nobody[@]}" "$pub/sp-capture" --control "$pub/fifo" -F 99 --ring 128K -s 8K -p "$pid" >s 2>log 3>&- 9>&- &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
	sampled
	pin
	step d
	kill -STOP "$capture"
	step r
	step l
	kill -CONT "$capture"
	await grep -q "cannot open /proc/$pid/maps: Permission denied; what is known" log
	sampled
	step D
	# Its mappings are tried again, less and less often; then the plugin has a mapping record.
	mapped() { perf script --show-mmap-events -i - <s 2>/dev/null | grep -q 'RECORD_MMAP2.*libplugin.so'; }
	await mapped
	sampled
	echo stop >fifo
	wait "$capture" || fail "$(cat log)"
	kill -9 "$pid"
	exec 9>&- # its input
	equal "$(grep -c "what is known" log)" 1 "lines that say so"
	perf script --no-inline -F ip,sym -i - <s 2>/dev/null | grep -q plug_hot || fail "no frame of the plugin"
}

# --- the kernel's own limits ---

# The limit of the rate, lower for a while. It stays above what the other suites ask for.
lower_rate() {
	limit=$(cat /proc/sys/kernel/perf_event_max_sample_rate)
	echo 20000 >/proc/sys/kernel/perf_event_max_sample_rate
}

# bats test_tags=alone
@test "throttled: each period in the stream, in the counter, in the last line and in the spool" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	local n told
	begin s --engine perf -F 80000 -s 256 -- "$SP_PROG/threads" 400
	lower_rate
	wait "$capture" || fail "$(cat log)"
	echo "$limit" >/proc/sys/kernel/perf_event_max_sample_rate
	limit=''
	n=$(stream types s | awk '$1 == 5 { print $2 }')
	[ "${n:-0}" -gt 10 ] || fail "$n THROTTLE records: $(cat log)"
	equal "$(stream ext s | awk '$1 == "loss" && $5 == 1 { n++ } END { print n + 0 }')" "$n" "periods"
	equal "$(stream ext s | grep -o ' throttled [0-9]*')" " throttled $n" "the counter"
	holds "$(cat log)" "the kernel throttled sampling $n times, "
	# Each has a length, no longer than the recording; together what the last line says.
	told=$(stream ext s | awk '$1 == "loss" && $5 == 1 { if ($3 < $2) exit 1; n += $3 - $2 } END { printf "%.3f", n / 1e9 }')
	holds "$(cat log)" ", $told s of threads in all"
	sp-unwind <s 2>log2 | sp-spool -o held.spool 2>>log2
	equal "$(stat_of held.spool throttled)" "$n"
	holds "$(sp-sym -f stats held.spool)" "the kernel slowed sampling down"
}

# bats test_tags=alone
@test "throttled by BPF, which has no records of it: said all the same" {
	[ "$(id -u)" = 0 ] && [ -r /sys/kernel/btf/vmlinux ] || skip "needs root and BTF"
	local cpus # all, not those that this test may run on
	cpus=$(getconf _NPROCESSORS_ONLN)
	start threads 60000
	begin s --engine bpf -F 80000 -s 256 -p "$pid"
	lower_rate
	kill -INT "$capture"
	wait "$capture" || fail "$(cat log)"
	holds "$(cat log)" "the kernel throttled sampling $cpus times"
	equal "$(stream ext s | grep -o ' throttled [0-9]*')" " throttled $cpus" "the counter"
	equal "$(stream ext s | awk '$1 == "loss" && $5 == 1' | wc -l)" "$cpus" "periods"
}

@test "what is added is sampled at once beside a launched command, and from enable on while disabled" {
	local engine n
	mkfifo fifo
	burned() { awk -v least="$1" '{ exit $14 < least }' "/proc/$pid/stat"; } # in ticks of 10 ms
	for engine in perf auto; do
		rm -f log
		begin s "--engine=$engine" --control fifo -F 999 -- sleep 1000
		start threads 60000
		echo "add $pid" >fifo
		await more_than 50
		kill -9 "$pid"
		echo disable >fifo
		await grep -q "control: disabled" log
		start threads 60000
		echo "add $pid" >fifo
		await grep -q "control: add $pid: attached" log
		await burned 10
		n=$(samples)
		await burned 30
		equal "$(samples)" "$n" "$engine: samples while disabled"
		echo enable >fifo
		await more_than $((n + 50))
		echo stop >fifo
		await grep -q "control: stopping" log
		pkill -P "$capture" -x sleep
		wait "$capture" || true # the status of the sleep that was killed
		kill -9 "$pid"
		stream stacks s | awk -v p="$pid" '$1 == p { n++ } END { exit !(n > 10) }' || fail "$engine: $(cat log)"
	done
}

# bats test_tags=alone
@test "the kernel lowers its limit while recording: what is added later is sampled at the lower rate" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	start threads 60000
	local first=$pid n
	mkfifo fifo
	begin s --engine perf --control fifo -F 80000 -s 256 -p "$first"
	lower_rate
	start chain-pie 60000
	echo "add $pid" >fifo
	await grep -q "control: add $pid" log
	echo "$limit" >/proc/sys/kernel/perf_event_max_sample_rate
	limit=''
	holds "$(cat log)" "add $pid: attached"
	samples_of() { echo summary >fifo; [ "$(sed -n 's/.*control: \([0-9]*\) samples.*/\1/p' log | tail -n 1)" -gt 60000 ]; }
	await samples_of
	echo stop >fifo
	wait "$capture" || fail "$(cat log)"
	n=$(stream stacks s | awk -v p="$pid" '$1 == p' | wc -l)
	[ "$n" -gt 100 ] || fail "$n samples of what was added"
	stream ext s | grep -q 'exact_loss=1'
}

@test "above the limit, both numbers: attached, launched, all CPUs, and by --check" {
	local max how
	max=$(cat /proc/sys/kernel/perf_event_max_sample_rate)
	start threads 60000
	for how in "-p $pid" "-t $pid" "-a" "--check"; do
		local status=0
		# shellcheck disable=SC2086 # words
		sp-capture -F $((max + 1)) $how >out 2>log || status=$?
		equal "$status" 1 "$how"
		holds "$(cat out log)" "cannot sample at $((max + 1)) Hz: the kernel's limit is $max Hz"
		holds "$(cat out log)" "use -F $max or -F max"
	done
}

# --- what is lost ---

# cap_faults N DEPTH under sp-capture, which writes to $1 and has the OPTIONS…: an event for each of its
# page faults. The faults are made by go_faults.
start_faults() { # OUTPUT N DEPTH OPTIONS…
	local out=$1 n=$2 depth=$3
	shift 3
	mkfifo in
	exec 9<>in
	rm -f log start.out
	"$SP_PROG/cap_faults" "$n" "$depth" <in >start.out 3>&- 9>&- &
	pid=$!
	pids+=("$pid")
	await grep -q ready start.out
	env --default-signal=INT sp-capture --engine perf -e page-faults -F max "$@" -p "$pid" >"$out" 2>log 3>&- 9>&- &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
}
go_faults() { printf x >&9; await grep -q "^done" start.out; }
# What came and what was lost together, and by the stream's own records.
equal_faults() { # N LEAST-LOST
	local kept lost told
	kept=$(stream stacks s | wc -l)
	lost=$(sed -n 's/.* samples, \([0-9]*\) lost.*/\1/p' log)
	told=$(stream ext s | awk '$1 == "loss" && $5 == 0 { n += $6 } END { print n + 0 }')
	equal $((kept + lost)) "$1" "kept $kept and lost $lost"
	equal "$told" "$lost" "losses with CPU and time"
	[ "$lost" -ge "$2" ] || fail "$lost lost"
}
need_faults() {
	[ "$(cat /proc/sys/kernel/perf_event_max_sample_rate)" -ge 100000 ] || skip "the kernel has lowered its limit"
	# shellcheck disable=SC3045
	[ "$(ulimit -l)" = unlimited ] || [ "$(id -u)" = 0 ] || skip "pages cannot be locked"
}

@test "received and lost are all that the kernel tried to write, to the last: rings full, nobody looks" {
	need_faults
	start_faults s 20000 0 -s 1024 --ring 256K
	kill -STOP "$capture"
	go_faults
	kill -CONT "$capture"
	kill -INT "$capture"
	wait "$capture" || fail "$(cat log)"
	stream order s
	equal_faults 20000 10000
}

@test "received and lost are all that the kernel tried to write, to the last: a reader that pauses" {
	need_faults
	mkfifo pipe go
	sh -c 'read -r _ <go; exec cat' <pipe >s 3>&- &
	pids+=("$!")
	local reader=$!
	start_faults pipe 4000 40000 -s 65528
	# 160 MB of stacks; pipe and blocks hold 65.
	go_faults
	kill -INT "$capture"
	echo >go
	wait "$capture" || fail "$(cat log)"
	wait "$reader"
	stream order s
	equal_faults 4000 1000
	[ "$(stream stacks s | awk '$3 < 40000' | wc -l)" = 0 ] || fail "short stacks"
}

# Before a pipe that nobody reads 80 MiB of blocks wait, here of renames; then the kernel's are dropped.
no_room() { # ENGINE
	mkfifo pipe go
	sh -c 'read -r _ <go; exec cat' <pipe >s 3>&- &
	local reader=$!
	pids+=("$reader")
	mkfifo in fifo
	exec 9<>in
	"$SP_PROG/cap_names" <in >start.out 3>&- 9>&- &
	pid=$!
	pids+=("$pid")
	await grep -q ready start.out
	rm -f log
	sp-capture --engine="$1" -f -F 99 --control fifo -p "$pid" >pipe 2>log 3>&- 9>&- &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
	# Full is what does not grow by 7 MB of records, twice.
	local kb last=0 same=0
	while [ $same -lt 2 ]; do
		step r
		kb=$(awk '/^RssAnon/ { print $2 }' "/proc/$capture/status")
		[ $((kb - last)) -lt 256 ] && [ "$kb" -gt 30000 ] && same=$((same + 1)) || same=0
		last=$kb
	done
	step c
	printf x >&9
	await grep -q next start.out
	echo summary >fifo
	await grep -q 'control: [0-9]* samples' log
	echo >go
	sampled
	echo stop >fifo
	wait "$capture" || fail "$(cat log)"
	wait "$reader"
	kill -9 "$pid"
	stream order s
	equal "$(stream types s | awk '$1 == 7')" "" "records of births"
	perf script --no-inline -F pid,ip,sym -i - <s 2>/dev/null >script
	grep -q child_hot script || fail "$1: the child: $(tail -n 30 script)"
	grep -q next_hot script || fail "$1: the new image: $(tail -n 30 script)"
	equal "$(stream ext s | grep -c "^exec.*cap_names next")" 1 "execs told"
	rm in fifo pipe go
}

@test "a reader that pauses so long that births and execs find no room: they are told when there is room" {
	no_room perf
	no_room auto
}

# --- what ends it ---

@test "a signal to the whole process group - a closed terminal, timeout(1) - loses nothing with -o FILE.spool" {
	local sig
	start threads 60000
	for sig in HUP TERM INT; do
		rm -f log a.spool
		setsid env --default-signal=INT,HUP,TERM sp-capture -o a.spool -p "$pid" 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		kill -$sig -- -"$capture"
		wait "$capture" || fail "$sig: $?: $(cat log)"
		equal "$(sp-sym -f stats a.spool | sed -n 's/^spool  *//p')" whole "$sig"
		equal "$(stat_of a.spool samples)" "$(sed -n 's/^sp-capture: \([0-9]*\) samples.*/\1/p' log)" "$sig: samples"
	done
	in_state "$pid" T && fail "the target is stopped"
	kill -0 "$pid"
}

stage_catches() { # SHELL TOOL: until then it would end as any program does
	local stage
	stage=$(pgrep -P "$1" -x "$2") && catches "$stage"
}

@test "a signal to the whole group of a pipeline made by hand: each stage goes on to the end of its input" {
	local sig
	start threads 60000
	# shellcheck disable=SC2016 # the inner shell's
	local pipeline='trap "" HUP INT TERM
		(trap - HUP INT TERM; exec sp-capture -F 4999 -p "$1") 2>log |
			(trap - HUP INT TERM; exec sp-unwind) 2>log2 |
			(trap - HUP INT TERM; exec sp-spool -o b.spool) 2>log3
		echo "${PIPESTATUS[*]}" >statuses'
	for sig in HUP TERM INT; do
		rm -f log b.spool statuses
		setsid env --default-signal=INT,HUP,TERM bash -c "$pipeline" bash "$pid" 3>&- &
		pids+=("$!")
		local shell=$!
		await grep -q recording log
		await stage_catches "$shell" sp-unwind
		await stage_catches "$shell" sp-spool
		kill -$sig -- -"$shell"
		[ $sig != HUP ] || kill -$sig -- -"$shell" # by the kernel, and by the shell that ends
		wait "$shell"
		equal "$(cat statuses)" "0 0 0" "$sig: $(cat log log2 log3)"
		equal "$(sp-sym -f stats b.spool | sed -n 's/^spool  *//p')" whole "$sig"
		equal "$(stat_of b.spool samples)" "$(sed -n 's/^sp-capture: \([0-9]*\) samples.*/\1/p' log)" "$sig: samples"
	done
}

@test "a full disk ends FILE.data and the raw stream with the reason; what is in them is readable" {
	[ "$(id -u)" = 0 ] || skip "needs root for a small file system"
	mkdir small
	mount -t tmpfs -o size=300k stackpulse small || skip "no tmpfs can be mounted"
	small=$PWD/small
	start threads 60000
	local out status
	for out in small/x.data small/raw; do
		status=0
		if [ $out = small/raw ]; then
			sp-capture --min-free=0 -s 65528 -F 999 -p "$pid" >$out 2>log || status=$?
		else
			sp-capture --min-free=0 -s 65528 -F 999 -p "$pid" -o $out 2>log || status=$?
		fi
		equal "$status" 1 "$out"
		holds "$(cat log)" "No space left on device"
		status=0
		sp-unwind $out >s 2>log || status=$?
		[ "$(sed -n 's/^sp-unwind: \([0-9]*\) samples, .*/\1/p' log)" -gt 20 ] || fail "$(cat log)"
		[ $out = small/x.data ] || equal "$status" 3 "the cut stream"
		rm $out
	done
	# A spool that has no room: said by sp-spool, and by sp-capture's status; the target runs on.
	head -c 295k /dev/zero >small/full
	status=0
	sp-capture --min-free=0 -F 4999 -d 3 -o small/x.spool -p "$pid" 2>log || status=$?
	[ "$status" = 1 ] || [ "$status" = 3 ] || fail "$status: $(cat log)"
	holds "$(cat log)" "No space left on device"
	kill -0 "$pid"
}

is_whole() { # FILE
	case $1 in
	*.spool) equal "$(sp-sym -f stats "$1" | sed -n 's/^spool  *//p')" whole "$1" ;;
	*.data) perf script -i "$1" >script 2>perf.log && [ -s script ] || fail "$1: $(cat perf.log)" ;;
	*) stream ext "$1" | grep -q '^end status=0' ;;
	esac
}

# What the end record of s names, which must be of a whole recording.
ended_by() {
	stream ext s | awk '$1 == "end" && $2 == "status=0" { print substr($3, 10) }'
}

@test "the end record tells what ended the recording: its targets, the command, the time, a signal, a size" {
	sp-capture -- true >s 2>log || fail "$(cat log)"
	equal "$(ended_by)" command
	start threads 60000
	sp-capture -d 0.05 -p "$pid" >s 2>log || fail "$(cat log)"
	equal "$(ended_by)" duration
	sp-capture --max-size=1K -p "$pid" >s 2>log || fail "$(cat log)"
	equal "$(ended_by)" max-size
	begin s -p "$pid" --control=ctl
	echo stop >ctl
	wait "$capture" || fail "$(cat log)"
	equal "$(ended_by)" stop
	begin s -p "$pid"
	kill -INT "$capture"
	wait "$capture" || fail "$(cat log)"
	equal "$(ended_by)" signal
	sp-unwind <s 2>log >u || fail "$(cat log)"
	holds "$(stream ext u | grep ^end)" ended_by=signal # handed on
	begin s -p "$pid"
	kill -9 "$pid"
	wait "$capture" || fail "$(cat log)"
	equal "$(ended_by)" targets
}

@test "--max-size ends the recording whole, once spool, file or stream have that size" {
	local out
	start threads 60000
	# One that was there before, and is larger, does not count.
	head -c 3000000 /dev/zero >x.spool
	for out in x.spool x.data raw; do
		if [ $out = raw ]; then
			sp-capture --max-size=300K -F 4999 -p "$pid" >raw 2>log || fail "$(cat log)"
		else
			sp-capture --max-size=300K -F 4999 -p "$pid" -o $out 2>log || fail "$(cat log)"
		fi
		holds "$(cat log)" "has reached --max-size"
		[ "$(stat -c %s "$out")" -ge 307200 ] || fail "$out: $(stat -c %s $out) bytes"
		is_whole $out
	done
	kill -0 "$pid"
	sp-capture --max-size=0 -p "$pid" 2>log && fail "a size of 0"
	holds "$(cat log)" "leave nothing to record"
}

@test "a disk that fills up ends the recording before it is full: whole, status 3; one that is full is refused" {
	[ "$(id -u)" = 0 ] || skip "needs root for a small file system"
	mkdir small
	mount -t tmpfs -o size=100m stackpulse small || skip "no tmpfs can be mounted"
	small=$PWD/small
	start threads 60000
	local out status
	# By default a hundredth is left: 1 MiB here. At 50 Hz the recording itself needs seconds for
	# what others leave of it.
	for out in small/x.spool small/x.data small/raw; do
		rm -f small/* log
		if [ $out = small/raw ]; then
			sp-capture -F 50 -p "$pid" >$out 2>log 3>&- &
		else
			sp-capture -F 50 -p "$pid" -o $out 2>log 3>&- &
		fi
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		[ $out = small/x.spool ] || await has_bytes 40000 $out # beyond its head: samples
		# The recording grows meanwhile; when it fills the disk itself, that ends it too.
		until fallocate -l "$(($(stat -f -c '%a * %S' small) - 900000))" small/others; do
			kill -0 "$capture" || break
		done
		status=0
		wait "$capture" || status=$?
		equal "$status" 3 "$out: $(cat log)"
		holds "$(cat log)" "ended: the file system of"
		holds "$(cat log)" "1 are to stay free (--min-free)"
		is_whole $out
		status=0
		sp-capture -p "$pid" -o small/y.spool 2>log || status=$?
		equal "$status" 1 "full at the start: $(cat log)"
		holds "$(cat log)" "cannot record to small/y.spool: its file system has 0 MiB left, and 1 are to stay free"
		holds "$(cat log)" "--min-free=SIZE"
		[ ! -e small/y.spool ] || fail "a file after a refusal"
	done
	rm -f small/*
	status=0
	sp-capture --min-free=99M -F 4999 -p "$pid" -o small/x.data 2>log || status=$?
	equal "$status" 3 "$(cat log)"
	is_whole small/x.data
	kill -0 "$pid"
}

@test "a user without privileges: deleted and replaced programs travel, a memfd and a perf map too" {
	[ "$(id -u)" = 0 ] || skip "needs root to be another user"
	publish "$SP_PROG/chain-pie" "$SP_PROG/chain-nopie" "$SP_PROG/cap_memfd" "$SP_PROG/cap_jit"
	chown 65534 "$pub"
	local how p
	for how in deleted replaced; do
		cp "$pub/chain-pie" "$pub/prog"
		setpriv --reuid=65534 --regid=65534 --clear-groups "$pub/prog" 60000 >start.out 3>&- &
		p=$!
		pids+=("$p")
		until [ "/proc/$p/exe" -ef "$pub/prog" ]; do read -rt 0.01 <> <(:) || :; done
		rm "$pub/prog"
		[ $how = deleted ] || cp "$pub/chain-nopie" "$pub/prog"
		as_nobody "$pub/sp-capture" -p "$p" -d 0.3 >s 2>log || fail "$(cat log)"
		stream object s "$pub/prog (deleted)" | cmp - "$SP_PROG/chain-pie" || fail "$how: $(stream objects s)"
		sp-unwind <s 2>log | sp-spool -o mine.spool 2>>log
		sp-sym -f folded mine.spool | grep -q ';alpha;beta;gamma_fn' || fail "$how: $(sp-sym -f folded mine.spool)"
		kill -9 "$p"
		rm -f "$pub/prog"
	done
	(cd "$pub" && as_nobody ./sp-capture -- ./cap_memfd 200 jit) >s 2>log || fail "$(cat log)"
	stream object s "/memfd:cap_memfd (deleted)" | cmp - "$SP_PROG/cap_memfd"
	p=$(stream stacks s | awk 'END { print $1 }')
	stream object s "$pub/jit-$p.dump" | cmp - "$pub/jit-$p.dump"
	as_nobody "$pub/sp-capture" -- "$pub/cap_jit" 200 >s 2>log || fail "$(cat log)"
	p=$(stream stacks s | awk 'END { print $1 }')
	stream object s "/tmp/perf-$p.map" | grep -q jit_loop
	rm -f "/tmp/perf-$p.map"
}
