#!/usr/bin/env bats
# Time off the CPU by context switch events, where BPF is not to be had: the same waits as BPF's; what
# a normal user gets of them; all processes and control groups, by both engines.
#
# shellcheck disable=SC2030,SC2031,SC2094 # each test is a shell of its own

load lib
load waits

setup() {
	live_setup
	group=''
}

teardown() {
	live_teardown
	[ -z "$group" ] || await rmdir "$group"
}

# Stacks of waits need a look into the kernel.
need_kernel() {
	sp-capture -k -- true 2>log >s
	stream ext s | grep -q '^start.*kernel=1' || skip "no kernel frames here"
}
need_all_cpus() {
	sp-capture -a -d 0 >/dev/null 2>&1 || skip "this user may not record all CPUs"
}

# A sleeper: $pid is its process.
start_naps() {
	"$SP_PROG/off_cpu" naps 100000 >/dev/null 3>&- &
	pid=$!
	pids+=("$pid")
}

waits_of() { stream ext "$1" | awk -v p="$2" '$1 == "wait" && $3 == p' | wc -l; }

# bats test_tags=smoke
@test "a sleeper, a convoy, a ping-pong by context switches: lengths and stacks" {
	need_kernel
	local perf="--engine=perf --off-cpu"
	waits "$perf" nap 1 some naps 30
	stream ext s | grep -q '^start.*engine=perf'
	holds "$(cat folded)" "_[k]"
	waits "$perf" enter 1 some convoy 20
	waits "$perf" pong 1 some pingpong 60
	dd if=/dev/urandom of=blob bs=4096 count=100 2>dd.log
	sync blob
	waits "$perf" block 2 some reads blob 100
}

@test "by context switches, on and off the CPU together are the time that passed" {
	need_kernel
	waits "--engine=perf --off-cpu" both 0 some both 3000
	waits "--engine=perf --off-cpu=20us" both 0 some both 3000
	waits "--engine=perf --off-cpu" both 0 some born 1500
}

@test "by context switches: who is asleep all the time of a recording is in it, without stacks" {
	all_asleep "--engine=perf --off-cpu"
	equal "$(grep -c ';\[truncated\] ' folded)" 2 "processes"
	awk '{ n += $NF } END { exit !(n > 4.4e9) }' folded || fail "$(cat folded)"
}

# The stack that most naps of a stream have, the kernel's part too.
stack_of_naps() {
	sp-unwind -q <"$1" | sp-spool -q -o "$1.spool"
	sp-sym -q -e offcpu-time --format=folded "$1.spool" |
		awk '/;nap;/ && $NF > most { most = $NF; sub(/ [0-9]*$/, ""); stack = $0 } END { print stack }'
}

@test "both engines at once tell the same waits, by the same stacks" {
	need_bpf
	need_kernel
	start_naps
	sp-capture --engine=bpf --off-cpu -k -p "$pid" >b 2>log.b 3>&- &
	pids+=($!)
	local bpf=$!
	await grep -q recording log.b
	sp-capture --engine=perf --off-cpu -k -p "$pid" >a 2>log.a 3>&- &
	pids+=($!)
	local perf=$!
	stream until a waits 60 "$pid"
	kill -INT "$bpf" "$perf"
	wait "$bpf" "$perf"
	python3 "$TOP/tests/waits.py" a b "$pid"
	# What perf cannot tell is told as unknown.
	equal "$(stream ext a | awk '$1 == "wait" { print $6 }' | sort -u)" 0 "wakers"
	equal "$(stack_of_naps a)" "$(stack_of_naps b)" "stacks"
	# Where it waits, not the scheduler's way off the CPU.
	holds "$(stack_of_naps a)" "nanosleep_[k]"
	[[ "$(stack_of_naps a)" != *schedule* ]]
}

# A command for $capture, which is answered; when it was sent and answered goes into $at.
tell() { # COMMAND ANSWER HOW_OFTEN_BY_THEN
	answered() { [ "$(grep -c "control: $1" log)" -ge "$2" ]; }
	at+=("$(now_ns)")
	echo "$1" >fifo
	await answered "$2" "$3"
	at+=("$(now_ns)")
}

@test "disable ends the waits that are open, enable begins them: a sleeper has two, by both engines" {
	need_bpf
	sleep 1000 3>&- &
	pid=$!
	pids+=("$pid")
	await grep -q '(sleep) S ' "/proc/$pid/stat"
	mkfifo fifo
	local engine option at
	for engine in perf bpf; do
		for option in --off-cpu --off-cpu=20us; do
			rm -f log
			sp-capture --engine=$engine $option --control fifo -p "$pid" >s 2>log 3>&- &
			capture=$!
			pids+=("$capture")
			await grep -q recording log
			at=()
			tell disable disabled 1
			tell disable disabled 2
			tell enable enabled 1
			tell enable enabled 2
			tell stop stopping 1
			wait "$capture"
			stream order s
			stream ext s | awk '$1 == "wait" { printf "%.0f %.0f %d\n", $8 - $4, $8, $5 }' >waits
			# shellcheck disable=SC2048,SC2086 # all of them, each a word
			awk -v at="${at[*]}" '
				BEGIN { split(at, t) }
				{ begin[NR] = $1; end[NR] = $2; good += $3 == 1 }
				END { exit !(NR == 2 && good == 2 && t[1] <= end[1] && end[1] <= t[2] &&
					t[5] <= begin[2] && begin[2] <= t[6] && t[9] <= end[2]) }' waits ||
				fail "$engine $option" "${at[*]}" "$(cat waits)"
		done
	done
}

@test "by context switches: waits below the least, those that outlast the recording, chosen threads" {
	need_kernel
	sp-capture --engine=perf --off-cpu=1s -- "$SP_PROG/off_cpu" naps 20 >s 2>log
	equal "$(stream ext s | awk '$1 == "wait" && $4 < 1e9' | wc -l)" 0 "short waits"
	n=$(sed -n 's/.*: \([0-9]*\) waits (.*) shorter than the least of --off-cpu/\1/p' log)
	[ "${n:-0}" -ge 15 ] || fail "$(cat log)"
	mkfifo never
	sp-capture --engine=perf --off-cpu -d 2 -- cat never >s 2>log 3>&- &
	capture=$!
	pids+=("$capture")
	await grep -q "waiting for" log
	: >never
	wait "$capture"
	equal "$(stream ext s | awk '$1 == "wait" && $4 > 500e6' | wc -l)" 1 "waits at the end"
	start_naps
	sp-capture --engine=perf --off-cpu -t "$pid" -d 1 >s 2>log
	equal "$(stream ext s | awk '$1 == "wait" { print $3 }' | sort -u)" "$pid" "threads that waited"
}

@test "a normal user: lengths without stacks, and both lines that say so; no BTF: the same by root" {
	[ "$(id -u)" = 0 ] || skip "needs root to become nobody"
	local level
	level=$(cat /proc/sys/kernel/perf_event_paranoid)
	[ "$level" -le 2 ] || skip "a normal user may not record here"
	pub=$(mktemp -d /tmp/stackpulse.XXXXXX)
	cp "$SP_BUILD/bin/sp-capture" "$SP_PROG/off_cpu" "$pub"
	chmod -R a+rX "$pub"
	setpriv --reuid=65534 --regid=65534 --clear-groups "$pub/sp-capture" --off-cpu -- "$pub/off_cpu" naps 30 >s 2>log
	holds "$(cat log)" "time off the CPU by context switch events, without states and wakers: cannot use the BPF engine"
	if [ "$level" = 2 ]; then
		holds "$(cat log)" "time off the CPU without stacks: perf_event_open: Permission denied (perf_event_paranoid is 2)"
		holds "$(cat log)" "sysctl kernel.perf_event_paranoid=1"
	else
		! grep -q "without stacks" log || fail "$(cat log)"
	fi
	n=$(stream ext s | awk '$1 == "wait" && $4 >= 9.8e6' | wc -l)
	[ "$n" -ge 28 ] || fail "$n naps"
	# shellcheck disable=SC2016 # $0 is the inner shell's
	local hide='mount -t tmpfs none /sys/kernel/btf && exec sp-capture "$@"'
	unshare -m sh -c "$hide" sh --off-cpu -- "$SP_PROG/off_cpu" naps 5 >s 2>log
	holds "$(cat log)" "without states and wakers: cannot use the BPF engine: this kernel tells no BTF"
	! grep -q "without stacks" log || fail "$(cat log)"
	stream ext s | grep -q '^start.*engine=perf'
}

@test "-a with --off-cpu, by both engines: who was there, who comes; not the kernel's, not our own" {
	need_all_cpus
	need_bpf
	local engine
	for engine in perf bpf; do
		start_naps
		local before=$pid
		rm -f log
		sp-capture -a --engine=$engine --off-cpu=1ms -k -s 8K >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q recording log
		start_naps
		local later=$pid
		stream until s waits 20 "$before" "$later" || fail "$engine" "$(cat log)"
		kill -INT "$capture" || fail "$engine: it has ended" "$(cat log)"
		wait "$capture"
		stream order s
		equal "$(waits_of s "$capture")" 0 "our own waits"
		stream ext s | awk '$1 == "wait" { print $2 }' | sort -un >who
		! grep -qx 2 who || fail "kthreadd waits"
		sp-unwind -q <s | sp-spool -q -o x.spool
		sp-sym -q -e offcpu-time --weight=weight --pid "$later" --format=folded x.spool >folded
		# All of it but what is cut short at its ends; others on the machine may have taken the room of stacks.
		awk '/;main;.*nap/ { n += $NF } !/;\[truncated\] / { all += $NF }
			END { exit !(n > all * 0.9 && n >= 50e6) }' folded ||
			fail "$engine" "$(cat folded)"
		kill -9 "$before" "$later"
	done
}

@test "--cgroup with --off-cpu, by both engines: the waits of those in the group" {
	need_all_cpus
	need_bpf
	local root engine
	root=$(awk '$(NF - 2) == "cgroup2" { print $5; exit }' /proc/self/mountinfo)
	[ -n "$root" ] || skip "no cgroup v2 is mounted"
	group=$root/stackpulse-off-$$
	mkdir "$group" 2>/dev/null || {
		group=
		skip "this user may not make control groups"
	}
	for engine in perf bpf; do
		start_naps
		local outside=$pid
		start_naps
		local inside=$pid
		echo "$inside" >"$group/cgroup.procs"
		sp-capture --cgroup "$group" --engine=$engine --off-cpu >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		stream until s waits 20 "$inside"
		kill -INT "$capture" || fail "$engine: it has ended" "$(cat log)"
		wait "$capture"
		equal "$(stream ext s | awk '$1 == "wait" { print $2 }' | sort -u)" "$inside" "who waited"
		kill -9 "$inside" "$outside"
		waits "--cgroup $group --engine=$engine --off-cpu" both 0 some born 1500
	done
}
