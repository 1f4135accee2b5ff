# shellcheck shell=bash
# What the suites share that look at time off the CPU. Load it after lib: load waits

# What needs the privilege and the kernel for BPF is skipped without.
need_bpf() {
	[ "$(id -u)" = 0 ] || skip "BPF programs need root"
	[ -r /sys/kernel/btf/vmlinux ] || skip "this kernel tells no BTF"
}

# What the log says of waits below the least, and of those without an end; and 5 us for each: the switch
# away is told so long after the scheduler has stopped the thread's CPU time.
untimed_ms() {
	awk '/ shorter than the least| have no end: / {
			n += $2 * 0.005
			sub(/.*waits \((at most )?/, "")
			n += $1 * 1000
		}
		END { printf "%d\n", n }' log
}

# Two threads that wait for each other, a third for them, and a stopped process: recorded a second and
# more, each has one wait, of all the time, in state 1, the last one in state 4. Their stacks: in folded.
all_asleep() { # OPTIONS
	[ -n "${deadlock-}" ] || {
		"$SP_PROG/off_cpu" deadlock 1 3>&- &
		deadlock=$!
		sleep 1000 3>&- &
		stopped=$!
		pids+=("$deadlock" "$stopped")
		await grep -q '(sleep) S ' "/proc/$stopped/stat"
		kill -STOP "$stopped"
		are_asleep() { [ "$(cat /proc/"$deadlock"/task/*/stat /proc/"$stopped"/stat | grep -c ') [ST] ')" = 4 ]; }
		await are_asleep
	}
	# shellcheck disable=SC2086 # several words
	sp-capture $1 -k -p "$deadlock,$stopped" -d 1.2 >s 2>log
	stream order s
	stream ext s >ext
	awk -v p="$stopped" '$1 == "wait" { n++; good += $4 > 1.1e9 && $5 == ($2 == p ? 4 : 1) }
		END { exit !(n == 4 && good == 4) }' ext || fail "$1" "$(grep ^wait ext)"
	sp-unwind <s 2>unwind | sp-spool -o x.spool 2>>unwind
	sp-sym -q -e offcpu-time --weight=weight --format=folded x.spool >folded
}

# Record a way of waiting of tests/prog/off_cpu.c and compare its waits with what it tells of them;
# then the stacks: the share of the waits below the function that waited, without those until all threads
# are there. It goes into $group, where there is one.
waits() { # OPTIONS WHAT STATE WAKER WAY…
	local options=$1 what=$2 state=$3 waker=$4 status=0 less late=
	shift 4
	less=$(stolen_ms)
	# shellcheck disable=SC2086 # several words
	sp-capture -v $options -k -F 4999 -- sh -c "${group:+echo \$\$ >$group/cgroup.procs;}"'"$0" "$@" >told' "$SP_PROG/off_cpu" "$@" >s 2>log || status=$?
	[ "$status" != 77 ] || skip "no reads past the page cache here"
	[ "$status" = 0 ] || fail "$(cat log)"
	stream order s
	python3 "$TOP/tests/waits.py" s
	less=$(($(stolen_ms $less) + $(untimed_ms)))
	[[ $(sp-capture --check --off-cpu) != *"found late"* ]] || late=late
	python3 "$TOP/tests/off_cpu.py" s told "$what" "$state" "$waker" $less $late || {
		fail "$options $*" "$(cat log)"
		return 1 # where errexit is off too
	}
	sp-unwind <s 2>unwind | sp-spool -o x.spool 2>>unwind
	sp-sym -e offcpu-time --weight=weight --format=folded x.spool >folded
	[ "$what" = both ] || awk -v what=";$what;" '
		!/;in_|;nap;|;block;/ || /barrier/ { next }
		{ all += $NF } index($0, what) { good += $NF }
		END { if (!all || good < all * 0.8) { print good " of " all; exit 1 } }' folded
}
