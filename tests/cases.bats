#!/usr/bin/env bats
# Situations that other profilers got wrong, each built for real, with the right value.

load lib
bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR PERF_BUILDID_DIR=$BATS_TEST_TMPDIR
}

check_says() { # SPOOL TEXT
	run sp-spool --check "$1"
	holds "$output" "$2"
}

@test "what cut a stream at its source is told by every stage behind, and by the spool" {
	sp-capture -q -F 999 -- "$SP_PROG/chain-pie" 300 >whole 2>log
	head -c "$(($(stat -c %s whole) / 2 + 1))" whole >cut
	run -3 sp-unwind -q cut -o one
	run -3 sp-unwind -q one -o two
	for s in one two; do
		run -3 sp-spool -q -o $s.spool $s
		holds "$output" "the input is incomplete: an earlier stage's input was cut: it ends inside a record, at offset"
		[ "$(grep -o 'earlier stage' <<<"$output" | wc -l)" = 1 ] || fail "$output"
		check_says $s.spool "incomplete"
		run -3 sp-sym -f stats-json $s.spool
	done
}

@test "options may stand behind the input, in every tool that has one; -- ends them" {
	sp-capture -q -F 999 -- "$SP_PROG/chain-pie" 50 >-j 2>log
	sp-unwind -q -o one -- -j
	sp-unwind ./-j -q -o two -j 1
	cmp one two
	sp-spool ./one -q -o one.spool
	sp-sym one.spool -q -f folded -o named
	grep -q ';hot ' named
	run -2 sp-unwind one two
	holds "$output" "one input at a time, not 'two' too"
}

@test "-o FILE.data holds what came before a kill -9" {
	sp-capture -q -o x.data -- "$SP_PROG/chain-pie" 5000 2>log &
	local pid=$!
	await test -s x.data
	# Without another's help a file's second second is on the disk when its third begins.
	await has_bytes 100000 x.data
	kill -9 $pid
	pkill -9 -P $pid || :
	wait $pid || :
	run -3 sp-unwind -q x.data -o x.un
	holds "$output" "the program that wrote it was killed"
	run -3 sp-spool -q x.un -o x.spool
	[ "$(sp-sym -f stats-json x.spool 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["samples"])')" -gt 50 ]
}

@test "-o FILE.spool: a place that cannot be is refused before the command runs; what fails later is our status" {
	mkdir folder folder/x.spool
	chmod 555 folder
	for o in nowhere/x.spool folder/x.spool; do
		run -1 sp-capture -o $o -- touch ran
		holds "$output" "sp-capture: cannot create $o: "
		[ ! -e ran ]
	done
	# A stage that dies: named, with its signal; the command's own status does not hide it.
	cat >command <<-'END'
		#!/bin/sh
		# Our parent launches us and runs the stages.
		until pid=$(pgrep -P $PPID -x sp-unwind); do :; done
		kill -9 "$pid"
		exit 7
	END
	chmod +x command
	run -1 sp-capture -o x.spool -- ./command
	holds "$output" "sp-unwind was ended by signal 9 (Killed)"
}

@test "-o FILE.spool: what could not be recorded is said alone, and leaves the spool that was there" {
	local status=0
	echo old >out.spool
	SUDO_UID=65534 SUDO_GID=65534 sp-capture -q -o out.spool -p 2147483646 2>log || status=$?
	equal "$status" 1
	equal "$(cat log)" "sp-capture: cannot attach to process 2147483646: no such process"
	equal "$(cat out.spool)" old
	equal "$(stat -c %u out.spool)" "$(id -u)" "whose it is"
	status=0
	sp-capture -q -o out.spool -- ./nonesuch 2>log || status=$?
	equal "$status" 127
	equal "$(cat log)" "sp-capture: cannot launch ./nonesuch: No such file or directory"
}

@test "another build at a recorded path gives no name, whatever its times and inode; the same build does" {
	cat >v.c <<-'END'
		volatile unsigned long x;
		#ifdef OTHER
		__attribute__((noinline)) void other(void) { for (int i = 0; i < 1000; i++) x ^= i; }
		#else
		#define other()
		#endif
		__attribute__((noinline)) void spin(void) { for (int i = 0; i < 1000; i++) x += i; }
		int main(void) { for (int i = 0; i < 300000; i++) { spin(); other(); } return 0; }
	END
	gcc -O2 -g -Wl,--build-id v.c -o one
	gcc -O2 -g -Wl,--build-id -DOTHER v.c -o two
	cp one prog
	touch -d 2020-01-01 prog
	profile x.spool -F 999 -- ./prog
	grep -q ';main;spin ' <(sp-sym -q -f folded x.spool)
	# In place, and older than the recording: only the build-id tells.
	cat two >prog
	touch -d 2020-01-01 prog
	sp-sym -q -f folded x.spool >named
	run ! grep -E 'spin|other|;main' named
	grep -q '\[prog+0x' named
	# It is the recorded one that is told, not that of what is there now.
	id=$(readelf -n one | sed -n 's/.*Build ID: //p')
	holds "$(sp-sym -q -f json x.spool)" "\"build_id\": \"$id\""
	cp one again && mv again prog
	grep -q ';main;spin ' <(sp-sym -q -f folded x.spool)
	# perf has no trouble with it.
	sp-capture -q -F 999 -- ./prog 2>log | perf script -i - 2>errors | grep -q spin
	equal "$(cat errors)" ""
}
