#!/usr/bin/env bats
# The BPF engine of sp-capture: the same records as the perf engine's, whole stacks, every fallback
# for what older kernels lack, and what is said where it cannot run.
#
# shellcheck disable=SC2030,SC2031 # each test is a shell of its own

load lib
load live
load waits

setup() { live_setup; }
teardown() { live_teardown; }

# The chain of a recursion of $1 frames of some 200 bytes, from main to leaf, in all samples of a
# spool but the few at its ends.
all_deep() { # SPOOL DEPTH
	sp-sym --format=folded "$1" | awk -v depth="$2" '
		{ n = gsub(/;deep/, ""); all += $NF; if (n == depth + 1 && /;leaf/) good += $NF }
		END { if (all < 50 || good < all * 0.95) { print good + 0 " of " all; exit 1 } }'
}

ring_of() { # minimum|maximum: what the stream in s says
	stream ext s | sed -n "s/.*$1_ring_buffer_bytes \\([0-9]*\\).*/\\1/p"
}

# bats test_tags=smoke
@test "a launched command by BPF: a known chain, one id, in time order, stacks trimmed" {
	need_bpf
	sp-capture --engine=bpf -- "$SP_PROG/chain-pie" 300 >s 2>log
	stream order s
	stream ext s >ext
	holds "$(cat ext)" "engine=bpf"
	equal "$(tail -n 1 ext | grep -o 'command_status=[0-9]*')" command_status=0
	n=$(stream stacks s | wc -l)
	holds "$(cat log)" "$n samples, 0 lost;"
	[ "$n" -gt 50 ] || fail "$n samples"
	equal "$(stream stacks s | awk '$3 > 2048 { n++ } END { print n + 0 }')" 0 "samples with long stacks"
	sp-unwind <s 2>log | sp-spool -o x.spool 2>>log
	# All but the few samples at its ends and between two rounds.
	sp-sym --format=folded x.spool | awk -v all="$n" '/;main;alpha;beta;gamma_fn;hot / { n += $NF } END { exit n < all * 0.95 }'
}

@test "stacks of 400 KB are whole, and so is every other depth" {
	need_bpf
	for depth in 3 250 310 330 1900; do
		profile x.spool --engine=bpf -- "$SP_PROG/deep" "$depth" 300
		all_deep x.spool "$depth" || fail "depth $depth: $(cat x.spool.unwind)"
	done
}

@test "a stack goes on above a missing page that holds nothing, and ends marked at one that is wanted" {
	need_bpf
	for depth in 3 40 330 1900; do
		profile x.spool --engine=bpf -- "$SP_PROG/deep" "$depth" 200 hole
		all_deep x.spool "$depth" || fail "$depth: $(cat x.spool.unwind)"
		sp-sym --format=folded x.spool | awk '/;deep/ { all += $NF } /;_start;.*;below_a_hole;deep/ { good += $NF }
			END { exit !(all && good == all) }' || fail "$depth: $(cat x.spool.unwind)"
		profile x.spool --engine=bpf -- "$SP_PROG/deep" "$depth" 200 lost
		sp-sym --format=folded x.spool | awk '/;deep/ { all += $NF } /;\[truncated\];below_a_hole;deep/ { good += $NF }
			END { exit !(all && good == all) }' || fail "lost, $depth: $(sp-sym --format=folded x.spool)"
	done
}

@test "beside --off-cpu too, and the stacks of waits: above a missing page that holds nothing" {
	need_bpf
	local least kind event root without
	while read -r least kind without; do
		root='_start;.*;below'
		[ "$kind" = hole ] || root='\\[truncated\\];below'
		STACKPULSE_BPF_WITHOUT=$without profile x.spool --engine=bpf -e cpu-clock "--off-cpu=$least" -- \
			"$SP_PROG/deep" 330 60 "$kind" naps
		for event in cpu-clock offcpu-time; do
			sp-sym --format=folded --event=$event x.spool | awk -v root="$root" '
				/;deep/ { all += $NF } $0 ~ root "_a_hole;deep" { good += $NF }
				END { print good + 0, all; exit !(all && good == all) }' ||
				fail "$event $kind $least $without: $(cat x.spool.unwind)"
		done
	done <<-'X'
		0 hole
		0 lost
		0 hole light
		100us hole
		100us lost
		100us hole exit
	X
}

@test "of a stack with a missing page all that lies before it is copied, where no more can be" {
	need_bpf
	for depth in 3 40 330 1900; do
		STACKPULSE_BPF_WITHOUT=user_dynptr profile x.spool --engine=bpf -- "$SP_PROG/deep" "$depth" 200 hole
		all_deep x.spool "$depth" || fail "$depth: $(cat x.spool.unwind)"
		! grep -q " 100.0% complete" x.spool.unwind || fail "$depth: no page was missing"
	done
}

@test "the ring grows with the stacks: all samples come, in time order, those on both sides of it too" {
	need_bpf
	sp-capture --engine=bpf -F 199 -- "$SP_PROG/deep" 330 800 >s 2>log
	holds "$(cat log)" " samples, 0 lost;"
	[ "$(ring_of minimum)" -lt "$(ring_of maximum)" ] || fail "$(ring_of minimum) $(ring_of maximum)"
	stream order s
	n=$(stream stacks s | wc -l)
	[ "$n" -gt 140 ] || fail "$n samples"
	sp-unwind <s 2>log | sp-spool -o x.spool 2>>log
	all_deep x.spool 330 || fail "$(cat log)"
	# Of small stacks it stays as it is; so it does when its size was asked for.
	sp-capture --engine=bpf -F 999 -- "$SP_PROG/chain-pie" 200 >s 2>log
	equal "$(ring_of minimum)" "$(ring_of maximum)"
	sp-capture --engine=bpf -F 199 --ring 1M -- "$SP_PROG/deep" 330 200 >s 2>log
	equal "$(ring_of minimum)" "$(ring_of maximum)"
}

@test "what older kernels lack is done without: registers, stack ends, copies" {
	need_bpf
	local depth without
	while read -r depth without; do
		STACKPULSE_BPF_WITHOUT=$without profile x.spool --engine=bpf -k -- "$SP_PROG/deep" "$depth" 300
		all_deep x.spool "$depth" || fail "without $without"
	done <<-X
		1900 light
		1900 user_dynptr
		1900 user_dynptr,light
		200 dynptr
		200 dynptr,light
		200 find_vma
		200 user_dynptr,task_regs,light
		200 dynptr,find_vma,task_regs,cookie
	X
}

@test "threads outlive those that they inherited from: a daemon's, and behind its leader" {
	need_bpf
	daemon_lives bpf
	rm go
	leader_lives bpf
}

@test "a sleeper of 10 ms: lengths, state, no waker, stacks; copied before and after" {
	need_bpf
	for option in --off-cpu --off-cpu=20us; do
		waits $option nap 1 nobody naps 30
		# All of the time, in ns, is in the view, with its stack: 30 naps of 10 ms.
		awk '/;nap;/ { n += $NF } END { exit !(n >= 300e6) }' folded || fail "$(cat folded)"
		holds "$(cat folded)" "_[k]"
	done
}

@test "a convoy at a lock: the maker of the way is the waker" {
	need_bpf
	for option in --off-cpu --off-cpu=20us; do
		waits $option enter 1 maker convoy 20
	done
}

@test "two threads and two pipes: each wakes the other" {
	need_bpf
	for option in --off-cpu --off-cpu=20us; do
		waits $option pong 1 maker pingpong 60
	done
}

@test "reads past the page cache: uninterruptible, woken by an interrupt" {
	need_bpf
	dd if=/dev/urandom of=blob bs=4096 count=100 2>dd.log
	sync blob
	for option in --off-cpu --off-cpu=20us; do
		waits $option block 2 some reads blob 100
	done
}

@test "on and off the CPU together are the time that passed" {
	need_bpf
	for option in --off-cpu --off-cpu=20us; do
		for _ in 1 2; do
			waits "$option" both 0 some both 3000
		done
		waits "$option" both 0 some born 1500
	done
}

@test "switches back that the kernel does not tell of are found: the same sum, all naps" {
	need_bpf
	for without in switches switches,exit; do
		for option in --off-cpu --off-cpu=20us; do
			export STACKPULSE_BPF_WITHOUT=$without
			waits "$option" both 0 some both 3000
			n=$(sed -n 's/.*: \([0-9]*\) waits ended by switches that the kernel did not tell of/\1/p' log)
			[ "${n:-0}" -ge 10 ] || fail "$without $option" "$(cat log)"
			# None is given up, but those before the two clocks were compared.
			lost=$(sed -n 's/.*: \([0-9]*\) waits (at most .*) have no end: .*/\1/p' log)
			[ "${lost:-0}" -le 5 ] || fail "$without $option" "$(cat log)"
			waits "$option" nap 1 nobody naps 30
			awk '/;nap;/ { n += $NF } END { exit !(n >= 300e6) }' folded || fail "$without $option" "$(cat folded)"
		done
	done
}

@test "waits on kernels that lack what 6.18 has: the same" {
	need_bpf
	for without in task_work dynptr,task_work user_dynptr find_vma,task_regs,task_work; do
		STACKPULSE_BPF_WITHOUT=$without waits --off-cpu=20us nap 1 nobody naps 20
	done
}

@test "waits in one system call, and of kernel threads, have their own times, not that of their stack" {
	need_bpf
	# shellcheck disable=SC2016 # $0 is the inner shell's
	sp-capture -a --kernel-threads --off-cpu=20us -- sh -c 'dd if=/dev/zero bs=4M count=60 2>"$0" | cat >/dev/null' "$PWD/dd" >s 2>log
	stream order s
	n=$(python3 "$TOP/tests/waits.py" s) || fail "$n"
	[ "$n" -ge 100 ] || fail "$n waits" "$(cat log)"
}

@test "long waits beside too many short ones: all naps, with their stacks" {
	need_bpf
	for option in --off-cpu --off-cpu=20us; do
		"$SP_PROG/off_cpu" storm 60000 3>&- &
		pids+=($!)
		# shellcheck disable=SC2016 # $0 is the inner shell's
		sp-capture -a $option -- sh -c 'exec "$0" naps 30 >told' "$SP_PROG/off_cpu" >s 2>log
		kill "${pids[-1]}"
		# Nine in ten, here too: others on the machine may wait for long, and that often.
		python3 "$TOP/tests/off_cpu.py" s told nap 1 nobody
		sp-unwind -q <s | sp-spool -q -o x.spool
		sp-sym -q -e offcpu-time --weight=weight --format=folded --pid "$(awk '{ print $2; exit }' told)" x.spool >folded
		awk '/;nap;/ { n += $NF } END { exit !(n >= 270e6) }' folded || fail "$option" "$(cat folded)"
		[ $option != --off-cpu ] || holds "$(cat log)" "beyond 20000 a second"
	done
}

@test "waits shorter than the least make no sample; they are counted and said" {
	need_bpf
	sp-capture --off-cpu=1s -- "$SP_PROG/off_cpu" naps 20 >s 2>log
	equal "$(stream ext s | awk '$1 == "wait" && $4 < 1e9' | wc -l)" 0 "short waits"
	n=$(sed -n 's/.*: \([0-9]*\) waits (.*) shorter than the least of --off-cpu/\1/p' log)
	[ "${n:-0}" -ge 15 ] || fail "$(cat log)"
}

@test "a wait that outlasts the recording is in it, up to its end, with its stack" {
	need_bpf
	mkfifo never
	for option in --off-cpu --off-cpu=20us; do
		rm -f log
		sp-capture $option -d 2 -- cat never >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await grep -q "waiting for" log
		: >never
		wait "$capture"
		sp-unwind <s 2>unwind | sp-spool -o x.spool 2>>unwind
		sp-sym -e offcpu-time --weight=weight --format=folded x.spool >folded
		# Copied after waits, the stack of one that goes on is had from Linux 6.16 on.
		[ "$option" = --off-cpu ] || grep -q bpf_copy_from_user_task_dynptr /proc/kallsyms || continue
		awk '/^cat;.*open/ && $NF > 500e6 { n++ } END { exit n != 1 }' folded || fail "$option" "$(cat folded)"
	done
}

@test "who is asleep all the time of a recording is in it, with all stacks" {
	need_bpf
	grep -q bpf_copy_from_user_task_dynptr /proc/kallsyms || skip "stacks of others from Linux 6.16 on"
	local option
	for option in --off-cpu --off-cpu=20us; do
		all_asleep "--engine=bpf $option"
		equal "$(grep -c 'in_deadlock;stuck;pthread_mutex_lock.*futex_wait_\[k\]' folded)" 1 "stuck stacks"
		awk '/;stuck;/ { n += $NF } END { exit !(n > 2.2e9) }' folded || fail "$(cat folded)"
		awk '/;run_threads;.*futex_wait_/ { n += $NF } END { exit !(n > 1.1e9) }' folded || fail "$(cat folded)"
		awk '/^sleep;.*nanosleep/ { n += $NF } END { exit !(n > 1.1e9) }' folded || fail "$(cat folded)"
	done
}

@test "chosen threads and followed children: only their waits" {
	need_bpf
	"$SP_PROG/off_cpu" naps 100000 >told 3>&- &
	pids+=($!)
	sp-capture --off-cpu -t "${pids[0]}" -d 1 >s 2>log
	equal "$(stream ext s | awk '$1 == "wait" { print $3 }' | sort -u)" "${pids[0]}" "threads that waited"
	sp-capture --off-cpu -- sh -c '"$0" naps 5; :' "$SP_PROG/off_cpu" >s 2>log
	# The shell waits for its child, the child for the clock.
	equal "$(stream ext s | awk '$1 == "wait" && $4 >= 10e6 { print $3 }' | sort -u | wc -l)" 2 "threads that waited"
}

@test "few descriptors: a low limit is raised, a hard one is said with the cure" {
	need_bpf
	(ulimit -Sn 16 && sp-capture -q --engine=bpf -d 0.1 -p $$ >s)
	stream ext s | grep -q '^end status=0'
	local rc=0
	(ulimit -n 16 && exec sp-capture --engine=bpf -d 0.1 -p $$ >s 2>log) || rc=$?
	equal "$rc" 1
	holds "$(cat log)" "cannot use the BPF engine: it needs 64 descriptors, and the limit is 16"
	local cure="sp-capture: raise the limit of open files: ulimit -n "
	holds "$(tail -n 1 log)" "$cure"
	local limit
	limit=$(tail -n 1 log)
	limit=${limit#"$cure"}
	# The cure is right whatever is open besides, and one less is one too few.
	for limit in "$((limit - 1)) 1" "$limit 0"; do
		rc=0
		(ulimit -n "${limit% *}" && exec sp-capture -q --engine=bpf -d 0.1 -p $$ >s 2>log) || rc=$?
		equal "$rc" "${limit#* }" "with a limit of ${limit% *}"
	done
}

@test "a normal user is refused BPF with the cure, before anything is written" {
	pub=$(mktemp -d /tmp/stackpulse.XXXXXX)
	cp "$SP_BUILD/bin/sp-capture" "$pub"
	chmod a+rx "$pub" "$pub/sp-capture"
	as=()
	[ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	status=0
	"${as[@]}" "$pub/sp-capture" --engine=bpf -- true >out 2>log || status=$?
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	holds "$(cat log)" "cannot use the BPF engine"
	holds "$(cat log)" "CAP_BPF and CAP_PERFMON"
}

@test "no BTF, no CAP_BPF: refused with the reason; --check says it too, and what is done without" {
	need_bpf
	holds "$(sp-capture --check)" "BPF, off-CPU       yes"
	holds "$(STACKPULSE_BPF_WITHOUT=task_work sp-capture --check)" "waits copied before they are long"
	# shellcheck disable=SC2016 # $0 is the inner shell's
	local hide='mount -t tmpfs none /sys/kernel/btf && exec sp-capture "$@"'
	status=0
	unshare -m sh -c "$hide" sh --engine=bpf --off-cpu -- true >out 2>log || status=$?
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	holds "$(cat log)" "tells no BTF (/sys/kernel/btf/vmlinux: No such file or directory)"
	holds "$(cat log)" "CONFIG_DEBUG_INFO_BTF=y"
	status=0
	unshare -p -f --mount-proc sp-capture --engine=bpf --off-cpu -- true >out 2>log || status=$?
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	holds "$(cat log)" "another pid namespace"
	holds "$(cat log)" "--pid=host"
	holds "$(unshare -m sh -c "$hide" sh --check)" "BPF, off-CPU       no: cannot use the BPF engine: this kernel tells no BTF"
	status=0
	setpriv --bounding-set=-sys_admin,-bpf --inh-caps=-all -- sp-capture --engine=bpf -- true >out 2>log || status=$?
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	holds "$(cat log)" "Operation not permitted"
	holds "$(cat log)" "CAP_BPF and CAP_PERFMON"
	# What sampling needs is there as ever.
	setpriv --bounding-set=-sys_admin,-bpf --inh-caps=-all -- sp-capture -- "$SP_PROG/chain-pie" 50 >s 2>log
	stream order s
}

@test "--check tells the engine that would be taken: BPF where it loads, else perf events" {
	need_bpf
	# shellcheck disable=SC2016 # $0 is the inner shell's
	local hide='mount -t tmpfs none /sys/kernel/btf && exec sp-capture "$@"' option
	for option in --off-cpu --engine=auto; do
		holds "$(sp-capture --check $option)" "engine             yes: bpf"
		holds "$(unshare -m sh -c "$hide" sh --check $option)" "engine             yes: perf"
	done
	holds "$(sp-capture --check --engine=perf)" "engine             yes: perf"
	status=0
	unshare -m sh -c "$hide" sh --check --engine=bpf >out || status=$?
	equal "$status" 1
	holds "$(cat out)" "engine             no"
}

@test "--check tells the rings of the engine that would be taken, as a recording has them" {
	need_bpf
	local engine option kib
	for engine in bpf perf; do
		for option in '-F 999' '-F 4999 -s 8K' '--ring=2M' '-F 99 --off-cpu'; do
			# shellcheck disable=SC2086 # words
			kib=$(sp-capture --check --engine=$engine $option | sed -n 's/^  rings  *yes: \([0-9]*\) KiB .*/\1/p')
			# shellcheck disable=SC2086
			sp-capture --stats=json --engine=$engine $option -- true >s 2>log
			holds "$(cat log)" "\"ring_bytes\": $((kib * 1024)),"
		done
	done
	holds "$(sp-capture --check)" " KiB for all CPUs, "
	holds "$(sp-capture --check --engine=perf)" " KiB per CPU, "
	# A thread has an event more on each CPU, whose samples are the stacks of its waits.
	holds "$(sp-capture --check --engine=perf --off-cpu -t $$)" "1 thread, some $((6 * $(getconf _NPROCESSORS_ONLN) + 64)) descriptors"
}

@test "bpf(2) refused by a filter, or not built into the kernel: said once; waits come by context switches" {
	need_bpf
	local os
	for os in EPERM ENOSYS; do
		status=0
		"$SP_PROG/no_call" bpf $os sp-capture --engine=bpf -- true >out 2>log || status=$?
		equal "$status" 1 "$os"
		[ ! -s out ] || fail "output after a refusal"
		grep -q "^sp-capture: cannot use the BPF engine: loading its programs: " log || fail "$os" "$(cat log)"
		"$SP_PROG/no_call" bpf $os sp-capture --off-cpu -- "$SP_PROG/off_cpu" naps 30 >s 2>log
		stream order s
		stream ext s >ext
		holds "$(head -n 1 ext)" "engine=perf"
		equal "$(grep -c "cannot use the BPF engine" log)" 1 "lines that say so"
		n=$(awk '$1 == "wait" && $4 >= 9.8e6' ext | wc -l)
		[ "$n" -ge 28 ] || fail "$n naps" "$(cat log)"
		[ $os = ENOSYS ] || holds "$(cat log)" "cure: a seccomp filter is in force here"
		# Sampling alone is not harmed.
		"$SP_PROG/no_call" bpf $os sp-capture -- "$SP_PROG/chain-pie" 100 >s 2>log
		stream order s
		[ "$(stream stacks s | wc -l)" -ge 20 ]
		[ "$(grep -c "BPF" log)" -le 1 ] || fail "$(cat log)"
	done
}
