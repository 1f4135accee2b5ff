#!/usr/bin/env bats
# The BPF engine of sp-capture: the same records as the perf engine's, whole stacks, every fallback
# for what older kernels lack, and what is said where it cannot run.
#
# shellcheck disable=SC2030,SC2031 # each test is a shell of its own

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR
	pids=()
}

teardown() {
	[ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || :
	[ -z "${pub-}" ] || rm -rf "$pub"
}

stream() { python3 "$TOP/tests/stream.py" "$@"; }

# What needs the privilege and the kernel for BPF is skipped without.
need_bpf() {
	[ "$(id -u)" = 0 ] || skip "BPF programs need root"
	[ -r /sys/kernel/btf/vmlinux ] || skip "this kernel tells no BTF"
}

# The chain of a recursion of $1 frames of some 200 bytes, from main to leaf, in all samples of a
# spool but the few at its ends.
all_deep() { # SPOOL DEPTH
	sp-sym --format=folded "$1" | awk -v depth="$2" '
		{ n = gsub(/;deep/, ""); all += $NF; if (n == depth + 1 && /;leaf/) good += $NF }
		END { if (all < 50 || good < all * 0.95) { print good + 0 " of " all; exit 1 } }'
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

@test "what older kernels lack is done without: registers, stack ends, copies" {
	need_bpf
	for without in dynptr user_dynptr find_vma task_regs dynptr,find_vma,task_regs,cookie; do
		STACKPULSE_BPF_WITHOUT=$without profile x.spool --engine=bpf -k -- "$SP_PROG/deep" 200 300
		all_deep x.spool 200 || fail "without $without"
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
