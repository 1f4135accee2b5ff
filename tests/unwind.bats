#!/usr/bin/env bats
# sp-unwind as a filter: processes and files over time, other inputs, damaged inputs, signals.
# perf records and perf prints, so that nothing but sp-unwind is under test.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR PERF_BUILDID_DIR=$BATS_TEST_TMPDIR
}

record() { # OUTPUT COMMAND…
	local out=$1
	shift
	# -N: no copy in the build-id cache, where a replaced file would be found again.
	perf record -q -N -e cpu-clock -k mono -F 999 --call-graph dwarf,8192 -o "$out" -- "$@" >/dev/null 2>>perf.log
}

# One line a sample: PID/TID and the functions from leaf to root, each ended by ';'. An address
# without a function is "?", the mark of a stack that was cut is "cut".
stacks() { # < a stream of sp-unwind
	perf script --no-inline --max-stack 2048 -F pid,tid,ip,sym -i - 2>>perf.log | awk '
	/^ *[0-9]+\/[0-9]+ *$/ { head = $1; stack = ""; next }
	NF == 0 { if (head != "") print head, stack; head = ""; next }
	{ sym = $2; if (sym == "[unknown]") sym = "?"; if ($1 == "0") sym = "cut"; stack = stack sym ";" }
	END { if (head != "") print head, stack }'
}

# Of the samples whose leaf is FUNCTION, at least 30, 95 of 100 are CHAIN from there to the root.
chain_of() { # FUNCTION CHAIN < stacks
	awk -v leaf="$1" -v chain="$2" '
	$2 ~ "^" leaf ";" { n++; if ($2 ~ "^" chain "$") good++; else bad = bad "\n" $0 }
	END {
		if (n < 30 || good < 0.95 * n) { printf "%s: %d of %d fit %s%s\n", leaf, good, n, chain, substr(bad, 1, 3000); exit 1 }
	}'
}

# Of the samples whose leaf is in FILE, at least 30, every one reaches its root (whole), or all but
# one in twenty (its own _start) end in the mark of a stop (cut). What ran elsewhere, as ld.so does at
# the start, has other rules and counts for nothing here.
leaves_of() { # FILE whole|cut STREAM
	perf script --no-inline --max-stack 2048 -F ip,sym,dso -i "$3" 2>>perf.log | awk -v file="$1" -v want="$2" '
	function judge() { if (leaf == file) { n++; if (last == "0") cut++ } leaf = "" }
	NF == 0 { judge(); next }
	{ if (leaf == "") { leaf = $0; sub(/^[^(]*\(/, "", leaf); sub(/\)$/, "", leaf) } last = $1 }
	END {
		judge()
		if (n < 30 || (want == "whole" ? cut > 0 : cut < 0.95 * n)) {
			printf "%s: %d samples, %d cut, all should be %s\n", file, n, cut, want; exit 1
		}
	}'
}

root='[^;]*;__libc_start_main[^;]*;_start;'

# Number of SAMPLE records of a stream, by our own end line.
n_samples() { # INPUT
	sp-unwind -q --stats=json "$1" 2>&1 >/dev/null | grep -o '"sample_events":[0-9]*' | cut -d: -f2
}

# bats test_tags=smoke
@test "records of ours before a lost start record: the same bytes for every -j" {
	# 200 records of a kind to come, then a mapping: the first that makes sp-unwind write its own
	# start record.
	python3 - >s <<-'END'
		import struct, sys
		def rec(t, body): return struct.pack('<IHH', t, 0, 8 + len(body)) + body
		attr = struct.pack('<IIQQQ', 1, 128, 0, 1000000, 7) + b'\0' * 96
		out = b'PERFILE2' + struct.pack('<Q', 16) + rec(64, attr + struct.pack('<Q', 1))
		for i in range(200): out += rec(65, b'STKPULSE' + struct.pack('<HHIQQQ', 1, 99, 4096, i + 1, 0, 4096) + b'%4096d' % i)
		out += rec(1, struct.pack('<iiQQQ', 7, 7, 0x1000, 0x1000, 0) + b'/bin/x\0\0')
		sys.stdout.buffer.write(out)
	END
	sp-unwind -q -j1 s >one
	for _ in 1 2 3 4 5; do
		sp-unwind -q -j2 s >two
		cmp one two
	done
	python3 - >kinds <<-'END'
		import struct
		b, p = open('one', 'rb').read(), 16
		while p < len(b):
		  t, _, n = struct.unpack_from('<IHH', b, p)
		  print(t, struct.unpack_from('<H', b, p + 18)[0] if t == 65 else '-')
		  p += n
	END
	equal "$(uniq -c kinds | head -n 4 | xargs)" "1 64 - 200 65 99 1 65 1 1 1 -"
}

# bats test_tags=smoke
@test "a large file, whose pages come and go while threads read it: the same bytes for every -j" {
	# 64 rounds of 60 samples of 16 KiB, of 6 threads on 2 CPUs; a call chain in the kernel each.
	python3 - >s <<-'END'
		import struct, sys
		w = sys.stdout.buffer.write
		def rec(t, misc, body): return struct.pack('<IHH', t, misc, 8 + len(body)) + body
		kinds = 1 | 2 | 4 | 1 << 5 | 1 << 12 | 1 << 13
		attr = struct.pack('<IIQQQQQ', 1, 128, 0, 1000000, kinds, 0, 1 << 18) + b'\0' * 32 + struct.pack('<QI', 0xff0fff, 16384) + b'\0' * 36
		w(b'PERFILE2' + struct.pack('<Q', 16) + rec(64, 0, attr.ljust(128, b'\0') + struct.pack('<Q', 1)))
		now = 1000
		for turn in range(64):
		  for cpu in range(2):
		    for i in range(30):
		      time = 1000 + (turn * 30 + i) * 1000 + cpu * 500
		      ip = 0x401000 + i
		      regs = struct.pack('<20Q', *[ip if k == 8 else 0x7ffc00000000 + i * 16 for k in range(20)])
		      stack = struct.pack('<QQ', turn, i) * 1024
		      w(rec(9, 2, struct.pack('<QIIQ', ip, 7, 7 + i % 3 + cpu * 3, time) + struct.pack('<3Q', 2, 2**64 - 128, 0xffffffff81000000 + turn)
		            + struct.pack('<Q', 2) + regs + struct.pack('<Q', 16384) + stack + struct.pack('<Q', 16384 - i * 8)))
		  w(rec(68, 0, b''))
	END
	[ "$(stat -c %s s)" -gt 60000000 ]
	sp-unwind -q -j1 s >one
	equal "$(perf script -i one -F tid,ip | grep -c 'ffffffff810000')" 3840
	perf record -q -N -e cpu-clock -k mono -F 4999 --call-graph dwarf,16384 -o x.data -- "$SP_PROG/threads" 300 >/dev/null 2>>perf.log
	sp-unwind -q -j1 x.data >x.one
	for n in 2 3 8; do
		sp-unwind -q -j$n s >many
		cmp one many
		sp-unwind -q -j$n x.data >x.many
		cmp x.one x.many
	done
	# Through a pipe nothing is mapped.
	cat s | sp-unwind -q -j2 >piped
	cmp one piped
}

@test "a child that forks without exec has its parent's files" {
	record x.data "$SP_PROG/uw_life" fork
	sp-unwind x.data | stacks >out
	chain_of child_spin "child_spin;below;fork_and_wait;main;$root" <out
	chain_of parent_spin "parent_spin;below;main;$root" <out
	[ "$(awk '/child_spin/ { print $1 }' out | sort -u)" != "$(awk '/parent_spin/ { print $1 }' out | sort -u)" ]
}

@test "a child forked by a thread has the process's files" {
	record x.data "$SP_PROG/uw_life" threadfork
	sp-unwind x.data | stacks >out
	chain_of child_spin "child_spin;below;fork_and_wait;thread_that_forks;[^;]*;[^;]*;" <out
}

@test "exec in place: the same program at other addresses, before and after" {
	record x.data "$SP_PROG/uw_life" exec
	sp-unwind x.data | stacks >out
	chain_of before_exec "before_exec;below;main;$root" <out
	chain_of after_exec "after_exec;below;main;$root" <out
	equal "$(awk '{ print $1 }' out | sort -u | wc -l)" 1 "processes"
}

@test "a leader that ends before its threads: they go on in its space" {
	record x.data "$SP_PROG/uw_life" leader
	sp-unwind x.data | stacks >out
	chain_of worker_spin "worker_spin;below;thread_that_stays;[^;]*;[^;]*;" <out
}

@test "calls into the vdso: the caller is seen" {
	record x.data "$SP_PROG/uw_life" vdso
	sp-unwind x.data | stacks >out
	awk '$2 ~ /^(__vdso|\?;)/ { n++; if ($2 ~ /;ask_clock;main;/) good++ }
	     END { if (n < 30 || good < 0.95 * n) { print good " of " n; exit 1 } }' out
}

# bats test_tags=smoke
@test "a stack that is deeper than its copy ends in the mark, a whole one does not" {
	record x.data "$SP_PROG/uw_life" recurse
	sp-unwind x.data 2>log | stacks >out
	chain_of bottom_spin "bottom_spin;below;(recurse;)+cut;" <out
	perf record -q -e cpu-clock -F 999 --call-graph dwarf,65528 -o y.data -- "$SP_PROG/uw_life" recurse >/dev/null 2>>perf.log
	sp-unwind -q y.data | stacks >out
	chain_of bottom_spin "bottom_spin;below;$(printf 'recurse;%.0s' {1..201})main;$root" <out
	holds "$(cat log)" "truncated (stack bytes)"
	holds "$(cat log)" "record more bytes"
}

@test "a replaced binary is not used, and is named; a path map to a copy is" {
	cp "$SP_PROG/chain-pie" prog
	record x.data "$PWD/prog" 150
	mkdir copy
	cp prog copy/prog
	cp "$SP_PROG/threads" other
	mv other prog
	sp-unwind x.data 2>log >refused
	holds "$(cat log)" "not used: $PWD/prog has another build-id"
	sp-unwind --path-map "$PWD=$PWD/copy" x.data 2>log >mapped
	run grep -c "not used" log
	equal "$output" 0
	sp-unwind --stats=json x.data 2>&1 >/dev/null | grep -q '"file":"[^"]*/prog"'
	# With the copy every stack is whole, without it none that begins in the program is.
	leaves_of "$PWD/prog" whole mapped
	leaves_of "$PWD/prog" cut refused
}

@test "a replaced binary without build-ids is told by its inode" {
	cp "$SP_PROG/chain-pie" prog
	perf record -q -e cpu-clock -F 999 --call-graph dwarf,8192 -o - -- "$PWD/prog" 100 2>>perf.log >x.pipe
	cp prog copy
	sp-unwind -q x.pipe >out
	leaves_of "$PWD/prog" whole out
	mv copy prog
	sp-unwind x.pipe 2>log >out
	holds "$(cat log)" "not used: $PWD/prog has device"
	leaves_of "$PWD/prog" cut out
}

@test "a path map to another build is refused by its build-id" {
	cp "$SP_PROG/chain-pie" prog
	perf record -q -e cpu-clock -F 999 --buildid-mmap --call-graph dwarf,8192 -o x.data -- "$PWD/prog" 100 >/dev/null 2>>perf.log
	mkdir copy
	cp "$SP_PROG/threads" copy/prog
	sp-unwind -q --path-map "$PWD=$PWD/copy" x.data >out
	leaves_of "$PWD/prog" whole out # the recorded path still has it
	rm prog
	sp-unwind --path-map "$PWD=$PWD/copy" x.data 2>log >out
	holds "$(cat log)" "not used: $PWD/prog: $PWD/copy/prog has another build-id"
	leaves_of "$PWD/prog" cut out
	cp "$SP_PROG/chain-pie" copy/prog
	sp-unwind -q --symfs "$PWD/none" --path-map "$PWD=$PWD/copy" x.data >out
	leaves_of "$PWD/prog" whole out
}

@test "frame-pointer recordings pass through as they are" {
	# shellcheck disable=SC2129 # more to read that way
	perf record -q -e cpu-clock -F 999 --call-graph fp -o x.data -- "$SP_PROG/chain-fp" 150 >/dev/null 2>>perf.log
	perf script --no-inline -F comm,pid,tid,time,event,ip,sym,dso -i x.data >theirs 2>>perf.log
	sp-unwind x.data 2>log | perf script --no-inline -F comm,pid,tid,time,event,ip,sym,dso -i - >ours 2>>perf.log
	cmp theirs ours
	holds "$(cat log)" "no user stacks"
}

@test "a file, the same file through a pipe, and perf's own stream: the same stacks" {
	record x.data "$SP_PROG/chain-pie" 150
	sp-unwind x.data | stacks >file
	# shellcheck disable=SC2002 # a pipe is meant
	cat x.data | sp-unwind | stacks >pipe
	# What a file says of its machine comes last in a pipe, too late to take the vdso for ours.
	paste -d '|' file pipe | awk -F '|' '
		/cut;|vdso/ { through_vdso++; next }
		$1 != $2 { print "differ:", $0; bad = 1 }
		END { exit bad || NR < 100 || through_vdso > NR / 20 }'
	record - "$SP_PROG/chain-pie" 150 >/dev/null
	perf record -q -e cpu-clock -F 999 --call-graph dwarf,8192 -o - -- "$SP_PROG/chain-pie" 150 2>>perf.log | sp-unwind | stacks >stream
	chain_of hot "hot;gamma_fn;beta;alpha;main;$root" <stream
}

@test "sp-unwind of its own output changes no chain" {
	record x.data "$SP_PROG/threads" 50
	sp-unwind x.data >once
	sp-unwind once 2>log >twice
	perf script --no-inline -i once >a 2>>perf.log
	perf script --no-inline -i twice >b 2>>perf.log
	cmp a b
	[ "$(grep -c . a)" -ge 100 ]
}

@test "every cut of a stream ends with 3 and keeps the samples before the cut" {
	# Sorted: perf's streams are not in time order, so that a cut does not lose the last samples
	# only (and may lose the mapping that an earlier sample needs: addresses are not compared).
	times() { perf script -G -F tid,time -i "$1" 2>>perf.log | sort; }
	perf record -q -e cpu-clock -F 999 --call-graph dwarf,2048 -o - -- "$SP_PROG/threads" 40 2>>perf.log >whole
	sp-unwind -q whole >out
	times out >all
	size=$(stat -c %s whole) before=0
	for k in $(seq 1 20); do
		cut=$((size * k / 21 / 8 * 8 + 4))
		head -c $cut whole >part
		status=0
		sp-unwind -q part >out 2>log || status=$?
		if [ $status = 0 ]; then # the cut fell between two records; there is none 4 bytes on
			cut=$((cut + 4))
			head -c $cut whole >part
			sp-unwind -q part >out 2>log || status=$?
		fi
		equal "$status" 3 "exit status, cut at $cut of $size"
		holds "$(cat log)" "not whole"
		head -c $cut whole | sp-unwind -q 2>log | cmp - out || fail "cut at $cut: a pipe gives other bytes"
		times out >some
		n=$(wc -l <some)
		equal "$(comm -23 some all)" "" "samples that the whole stream does not have, cut at $cut"
		[ "$n" -ge "$before" ] || fail "cut at $cut: $n samples after $before"
		before=$n
	done
	[ "$before" -ge 60 ]
}

@test "inputs that are no recordings are refused with what they are" {
	run sp-unwind /etc/passwd
	equal "$status" 1
	holds "$output" "no perf recording"
	run sp-unwind "$SP_PROG/chain-pie"
	equal "$status" 1
	: >empty
	run sp-unwind empty
	equal "$status" 1
	holds "$output" "empty"
	run sp-unwind /nonexistent
	equal "$status" 1
	holds "$output" "/nonexistent"
}

@test "a dead next stage, and a full disk, are named: exit 1" {
	record x.data "$SP_PROG/threads" 100
	# The next stage has gone before the first byte is written.
	mkfifo gone
	{ read -r _ <gone; sp-unwind -q x.data 2>log || echo $? >status; } | { exec <&-; echo >gone; }
	equal "$(cat status)" 1
	holds "$(cat log)" "Broken pipe"
	holds "$(cat log)" "next stage"
	run sp-unwind -q -o /dev/full x.data
	equal "$status" 1
	holds "$output" "No space left"
}

@test "the input is never overwritten by the output" {
	record x.data "$SP_PROG/threads" 20
	cp x.data y.data
	run sp-unwind -o x.data x.data
	equal "$status" 2
	cmp x.data y.data
	# shellcheck disable=SC2094 # that is the point
	run sp-unwind -o x.data <x.data
	equal "$status" 2
	cmp x.data y.data
}

@test "a terminal as output is refused with the pipeline to type" {
	record x.data "$SP_PROG/threads" 20
	run script -qec "sp-unwind x.data" /dev/null
	equal "$status" 2
	holds "$output" "sp-unwind x.data | sp-spool"
}

@test "--stats=json: counts are conserved" {
	record x.data "$SP_PROG/threads" 100
	sp-unwind --stats=json x.data >out 2>json
	python3 - <<-'END'
		import json
		s = json.load(open("json"))
		stops = sum(v for k, v in s.items() if k.startswith("stop_"))
		assert s["state"] == "whole", s
		assert stops == s["unwound"] == s["sample_events"] >= 300, s
		assert s["frames"] >= 4 * s["unwound"], s
		assert s["rule_hits"] + s["rule_misses"] + s["reused_frames"] >= s["frames"] - s["unwound"], s
	END
	equal "$(stacks <out | wc -l)" "$(n_samples x.data)"
}

# Start sp-unwind on a fifo that the caller writes, and wait until it catches signals.
start_on_fifo() {
	mkfifo fifo
	sp-unwind -q <fifo >out 2>log 3>&- &
	pid=$!
	exec 9>fifo
	await catches $pid
}

@test "the first SIGINT is left to the source of the pipe; the end of input ends it" {
	perf record -q -e cpu-clock -F 999 --call-graph dwarf,2048 -o - -- "$SP_PROG/threads" 40 2>>perf.log >whole
	start_on_fifo
	kill -INT $pid
	cat whole >&9
	exec 9>&-
	status=0
	wait $pid || status=$?
	equal "$status" 0 "exit status: $(cat log)"
	equal "$(stacks <out | wc -l)" "$(n_samples whole)"
}

@test "SIGTERM ends the reading, what was read is whole: exit 3" {
	perf record -q -e cpu-clock -F 999 --call-graph dwarf,2048 -o - -- "$SP_PROG/threads" 40 2>>perf.log >whole
	start_on_fifo
	cat whole >&9
	await grep -q . out || :
	kill -TERM $pid
	status=0
	wait $pid || status=$?
	exec 9>&-
	equal "$status" 3 "exit status: $(cat log)"
	sp-unwind -q out >again 2>log || status=$?
	equal "$status" 3
	perf script -i out >text 2>>perf.log
}

@test "an overlay of file systems: device and inode as the kernel shows them for mappings" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	mkdir low up work merged
	cp "$SP_PROG/chain-pie" low/prog
	unshare -m bash -e -c '
		mount -t tmpfs none up
		mkdir up/u up/w
		mount -t overlay none -o lowerdir=low,upperdir=up/u,workdir=up/w merged
		perf record -q -e cpu-clock -F 999 --call-graph dwarf,8192 -o x.data -- merged/prog 150 >/dev/null 2>>perf.log
		sp-unwind x.data >out' 2>log
	run grep "not used" log
	equal "$output" ""
	leaves_of "$PWD/merged/prog" whole out
}

@test "--debug-dir: a stripped program whose rules are in a .debug_frame of its debug file" {
	gcc -O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables -fomit-frame-pointer -o prog "$TOP/tests/prog/chain.c"
	id=$(readelf -n prog | awk '/Build ID/ { print $3 }')
	mkdir -p debug/.build-id/"${id:0:2}"
	objcopy --only-keep-debug prog debug/.build-id/"${id:0:2}/${id:2}.debug"
	strip -s prog
	record x.data "$PWD/prog" 150
	by_code() { grep -o '"scanned_frames":[0-9]*' | cut -d: -f2; }
	# Without its rules the code itself shows the way; with them it is not asked.
	sp-unwind --stats=json x.data 2>log >out
	leaves_of "$PWD/prog" whole out
	[ "$(by_code <log)" -ge 100 ]
	sp-unwind --stats=json --debug-dir debug x.data 2>log >out
	leaves_of "$PWD/prog" whole out
	[ "$(by_code <log)" -lt 30 ]
}

@test "a deleted program's file travels in the stream and is used after its end" {
	cp "$SP_PROG/chain-pie" prog
	"$PWD/prog" 60000 &
	pid=$!
	await grep -q prog /proc/$pid/maps
	rm prog
	sp-capture -q -p $pid -d 1.5 >stream
	kill $pid
	wait $pid || :
	cp "$SP_PROG/threads" prog # another one in its place
	sp-unwind stream 2>log >out
	leaves_of "$PWD/prog (deleted)" whole out
	run grep "not used" log
	equal "$output" ""
}

@test "a process that maps and unmaps all the time does not grow sp-unwind" {
	record x.data "$SP_PROG/uw_life" churn 400
	[ "$(perf script --show-mmap-events -i x.data 2>>perf.log | grep -c libplugin)" -gt 1000 ]
	# Through a pipe, so that no mapped input counts.
	# shellcheck disable=SC2002
	cat x.data | python3 -c '
import resource, subprocess
subprocess.run(["sp-unwind", "-q", "-j2"], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=open("rss", "w"))' >out
	[ "$(cat rss)" -lt 65536 ] || fail "$(cat rss) KB"
}
