#!/usr/bin/env bats
# sp-spool on its command line. The streams are made by tests/prog/stream.c, which says what is in
# them.

bats_require_minimum_version 1.5.0
load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	STREAM=$SP_PROG/stream
}

teardown() {
	[ -z "${GEN-}" ] || kill "$GEN" 2>/dev/null || :
	[ -z "${SPOOL-}" ] || kill -9 "$SPOOL" 2>/dev/null || :
	[ -z "${small-}" ] || umount -l "$small"
}

samples_of() { # SPOOL
	sp-sym --format=raw "$1" | grep -c '^sample '
}

state_of() { # SPOOL
	sp-spool --check "$1" | sed -n '1s/^.*: \(whole\|incomplete\|damaged\).*/\1/p'
}

# A generator that writes at the rate of its times and then waits, on the fifo ff.
slow_stream() { # KEY=VALUE…
	mkfifo ff
	"$STREAM" pace=1 hold=1 "$@" >ff 3>&- &
	GEN=$!
}

has_samples() { # SPOOL N
	[ -s "$1" ] && [ "$(sp-spool --check "$1" | sed -n 's/^\([0-9]*\) samples.*/\1/p')" -ge "$2" ]
}

@test "a stream comes back by value: times, ids, weights, addresses, offsets" {
	"$STREAM" samples=50 stacks=7 depth=5 threads=2 | sp-spool -o x.spool
	# perf shows the file offset of what it has no symbol for
	"$STREAM" samples=50 stacks=7 depth=5 threads=2 | perf script -i - -F pid,tid,time,period,ip --ns 2>/dev/null |
		awk '$1 ~ "/" { split($1, id, "/"); gsub("[.:]", "", $2); print "sample", $2, id[1], id[2], $3; next }
		     NF { print $1 }' >want
	sp-sym --format=raw x.spool | awk '/^sample/ { print $1, $2, $3, $4, $6; next } NF { print $3 }' >got
	[ -s want ]
	diff want got
	equal "$(sp-sym --format=raw x.spool | awk '/^\t/ { print $2 }' | sort -u)" /opt/made/libmade.so
	# MMAP2 says: mapped at 0x550000000000 from offset 0x2000
	local ip path off
	while read -r ip path off; do
		[ $((0x$ip - 0x550000000000 + 0x2000)) = $((0x$off)) ] || fail "$ip $path $off"
	done < <(sp-sym --format=raw x.spool | sed -n 's/^\t//p')
}

@test "return addresses of a foreign stream become call sites, but for the first of each context" {
	"$STREAM" samples=50 stacks=7 depth=5 | sp-spool -o site.spool
	"$STREAM" samples=50 stacks=7 depth=5 chain=return | sp-spool -o return.spool
	diff <(sp-sym --format=raw site.spool) <(sp-sym --format=raw return.spool)
}

@test "the last 0 of a site chain is the truncation marker, and counted" {
	"$STREAM" samples=100 truncated=10 | sp-spool -o x.spool
	equal "$(sp-sym --format=raw x.spool | grep -c '^	\[truncated\]$')" 10
	equal "$(stat_of x.spool truncated_frame_markers)" 10
}

@test "loss records are the lost events" {
	"$STREAM" samples=10 lost=321 | sp-spool -o x.spool
	equal "$(stat_of x.spool lost_events)" 321
	equal "$(stat_of x.spool sample_events)" 10
	equal "$(stat_of x.spool samples)" 10
}

@test "a cut stream is exit 3, and its spool says that it is incomplete and why" {
	"$STREAM" samples=500 end=0 >cut.stream
	run -3 sp-spool -o x.spool <cut.stream
	holds "$output" "without its end record"
	equal "$(samples_of x.spool || :)" 500
	run -3 sp-spool --check x.spool
	holds "$output" "incomplete"
	holds "$output" "without its end record"
	head -c 100001 cut.stream >shorter.stream
	run -3 sp-spool -o y.spool <shorter.stream
	equal "$(state_of y.spool)" incomplete
}

@test "no perf stream: exit 1 with what it is, and an existing spool stays" {
	"$STREAM" samples=10 | sp-spool -o x.spool
	cp x.spool before.spool
	run -1 sp-spool -o x.spool <<<"hello"
	holds "$output" "no perf recording"
	run -1 sp-spool -o x.spool </dev/null
	cmp x.spool before.spool
	equal "$(find . -name '.x*' | wc -l)" 0 "files left behind"
}

@test "a full device is exit 1 with the reason, for a file and for standard output" {
	"$STREAM" >s.stream
	run -1 sp-spool -o /dev/full <s.stream
	holds "$output" "No space left on device"
	run -1 bash -c 'sp-spool <s.stream >/dev/full'
	holds "$output" "No space left on device"
}

@test "a reader that ends is exit 1 with the reason" {
	# shellcheck disable=SC2016
	run -1 bash -c 'set -o pipefail; "$0" samples=200000 stacks=20000 | { sp-spool; echo "status $?" >&2; exit 1; } | head -c 100 >/dev/null' "$STREAM"
	holds "$output" "Broken pipe"
	holds "$output" "status 1"
}

@test "a file that may not grow keeps what was written and is exit 1" {
	# shellcheck disable=SC2016
	run -1 bash -c 'ulimit -f 400; "$0" samples=400000 stacks=3000 | sp-spool -o x.spool' "$STREAM"
	holds "$output" "File too large"
	holds "$output" "is kept"
	equal "$(state_of x.spool || :)" incomplete
	sp-spool --check x.spool >check || :
	[ "$(sed -n 's/^\([0-9]*\) samples.*/\1/p' check)" -ge 32768 ]
}

@test "a disk that fails in the middle (EIO) keeps what was written and is exit 1" {
	gcc -shared -fPIC -O1 -o fails.so -x c - -ldl <<-'C'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <errno.h>
		#include <sys/stat.h>
		#include <unistd.h>
		ssize_t write(int fd, const void *data, size_t n)
		{
			static size_t left = 300000;
			static ssize_t (*real)(int, const void *, size_t);
			struct stat st;
			if (!real)
				*(void **)&real = dlsym(RTLD_NEXT, "write");
			if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
				return real(fd, data, n);
			if (!left) {
				errno = EIO;
				return -1;
			}
			n = n < left ? n : left;
			left -= n;
			return real(fd, data, n);
		}
	C
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
	# shellcheck disable=SC2016
	run -1 bash -c '"$0" samples=400000 stacks=3000 | LD_PRELOAD=$PWD/fails.so sp-spool -o x.spool' "$STREAM"
	holds "$output" "Input/output error"
	holds "$output" "is kept"
	equal "$(state_of x.spool || :)" incomplete
	sp-spool --check x.spool >check || :
	[ "$(sed -n 's/^\([0-9]*\) samples.*/\1/p' check)" -ge 32768 ]
}

@test "kill -9 loses at most the last second" {
	slow_stream samples=100000 hz=500 threads=4
	sp-spool -o x.spool <ff 3>&- &
	SPOOL=$!
	await has_samples x.spool 1000
	local before
	before=$(sp-spool --check x.spool | sed -n 's/^\([0-9]*\) samples.*/\1/p')
	kill -9 "$SPOOL"
	wait "$SPOOL" || :
	run -3 sp-spool --check x.spool
	holds "$output" "incomplete"
	[ "$(sed -n 's/^\([0-9]*\) samples.*/\1/p' <<<"$output")" -ge "$before" ]
	run -3 sp-sym --format=folded x.spool
}

@test "kill -9 before the first data leaves nothing behind, and an existing spool as it was" {
	"$STREAM" samples=10 | sp-spool -o x.spool
	cp x.spool before.spool
	mkfifo ff
	sp-spool -o x.spool <ff 2>/dev/null 3>&- &
	SPOOL=$!
	exec 5>ff
	# It is open, and has no name that can be found.
	# shellcheck disable=SC2016
	await bash -c 'readlink /proc/'"$SPOOL"'/fd/* | grep -q "deleted"'
	equal "$(find . -name '.x*' | wc -l)" 0 "names before the first data"
	kill -9 "$SPOOL"
	wait "$SPOOL" || :
	exec 5>&-
	equal "$(find . -name '.x*' | wc -l)" 0 "names afterwards"
	cmp x.spool before.spool
}

@test "what waits is flushed although no input comes, and a full device is noticed then" {
	slow_stream samples=10 hz=1000
	sp-spool -o x.spool <ff 3>&- &
	SPOOL=$!
	await has_samples x.spool 10
	kill "$GEN"
	local status=0
	wait "$SPOOL" || status=$?
	equal "$status" 3 "exit status"
	rm ff
	slow_stream samples=10 hz=1000
	status=0
	sp-spool -o /dev/full <ff 3>&- || status=$?
	equal "$status" 1 "exit status"
}

@test "SIGTERM ends the reading: what was read is kept, exit 3" {
	slow_stream samples=100 hz=1000
	sp-spool -o x.spool <ff 2>log 3>&- &
	SPOOL=$!
	await has_samples x.spool 100
	kill -TERM "$SPOOL"
	local status=0
	wait "$SPOOL" || status=$?
	equal "$status" 3 "exit status"
	holds "$(cat log)" "stopped by a signal"
	equal "$(sp-spool --check x.spool | sed -n 's/^\([0-9]*\) samples.*/\1/p')" 100
}

@test "--append goes on behind what is there, in time order" {
	"$STREAM" samples=100 start=2000000000000 | sp-spool --append -o x.spool
	"$STREAM" samples=50 start=1000000000000 | sp-spool -a -o x.spool
	equal "$(state_of x.spool)" whole
	equal "$(samples_of x.spool)" 150
	sp-sym --format=raw x.spool | awk '/^sample/ { print $2 }' | sort -nc
	"$STREAM" samples=50 | sp-spool -o y.spool
	diff <(sp-sym --format=raw y.spool) <(sp-sym --format=raw x.spool | awk -v RS= -v ORS='\n\n' 'NR <= 50')
}

@test "--append cuts off a half block first, and refuses what is no spool" {
	"$STREAM" samples=100 | sp-spool -o x.spool
	"$STREAM" samples=100 stacks=90 start=3000000000000 | sp-spool -a -o x.spool
	truncate -s -5 x.spool
	"$STREAM" samples=7 start=4000000000000 | sp-spool -a -o x.spool
	equal "$(state_of x.spool || :)" incomplete
	equal "$( (sp-sym --format=raw x.spool || :) | grep -c '^sample ')" 207
	echo "not a spool, but longer than a header would be" >text
	# shellcheck disable=SC2016
	run -1 bash -c '"$0" samples=7 | sp-spool -a -o text' "$STREAM"
	holds "$output" "not a spool"
	equal "$(cat text)" "not a spool, but longer than a header would be"
}

@test "--append waits for a lock that is about to go, and refuses one that stays" {
	"$STREAM" samples=100 | sp-spool -o x.spool
	mkfifo held
	bash -c 'exec 8<x.spool && flock 8 && echo >ready; read -r <held; truncate -s -5 x.spool' 3>&- &
	GEN=$!
	await test -e ready
	"$STREAM" samples=7 >more
	run -1 sp-spool -a -o x.spool more
	holds "$output" "another writer has it"
	sp-spool -a -o x.spool <more 3>&- &
	SPOOL=$!
	# Without a process that would have to begin first: it waits for 3 s only.
	has_opened() {
		local fd
		for fd in /proc/"$SPOOL"/fd/*; do [ ! "$fd" -ef x.spool ] || return 0; done
		return 1
	}
	await has_opened
	echo >held
	wait "$SPOOL"
	# where it goes on is what the other writer left
	equal "$(state_of x.spool || :)" incomplete
	equal "$( (sp-sym --format=raw x.spool || :) | grep -c '^sample ')" 107
}

@test "spools are merged in time order; equal pids of two hosts stay two processes" {
	"$STREAM" samples=100 lost=3 | sp-spool -o a.spool
	"$STREAM" samples=70 boot=other host=h2 start=1000000500000 lost=4 | sp-spool -o b.spool
	sp-spool a.spool b.spool -o all.spool
	equal "$(state_of all.spool)" whole
	equal "$(samples_of all.spool)" 170
	equal "$(stat_of all.spool lost_events)" 7
	sp-sym --format=raw all.spool | awk '/^sample/ { print $2 }' | sort -nc
	diff <(cat <(sp-sym --format=raw a.spool) <(sp-sym --format=raw b.spool) | sort) \
		<(sp-sym --format=raw all.spool | sort)
	holds "$(sp-spool --check all.spool)" "8 threads"
	sp-spool a.spool a.spool -o twice.spool
	holds "$(sp-spool --check twice.spool)" "4 threads"
	equal "$(samples_of twice.spool)" 200
}

@test "one spool alone is written anew; a damaged one gives what is intact, exit 3" {
	"$STREAM" samples=100000 stacks=50 | sp-spool -o a.spool
	sp-spool a.spool -o again.spool
	diff <(sp-sym --format=raw a.spool) <(sp-sym --format=raw again.spool)
	sp-spool -o again.spool <a.spool
	diff <(sp-sym --format=raw a.spool) <(sp-sym --format=raw again.spool)
	local size
	size=$(stat -c %s a.spool)
	printf X | dd of=a.spool bs=1 seek=$((size * 2 / 3)) conv=notrunc status=none
	run -3 sp-spool --check a.spool
	holds "$output" "damaged at offset"
	run -3 sp-spool -o saved.spool a.spool
	run -3 sp-spool --check saved.spool
	equal "$( (sp-sym --format=raw a.spool || :) | grep -c '^sample ')" \
		"$( (sp-sym --format=raw saved.spool || :) | grep -c '^sample ')"
}

@test "-o - streams into sp-sym -" {
	"$STREAM" samples=100 | sp-spool -o - | sp-sym --format=raw - >got
	"$STREAM" samples=100 | sp-spool -o x.spool
	diff <(sp-sym --format=raw x.spool) got
}

@test "--time-resolution makes smaller files and rounds down" {
	"$STREAM" samples=20000 | sp-spool -o ns.spool
	"$STREAM" samples=20000 | sp-spool --time-resolution 1us -o us.spool
	[ "$(stat -c %s us.spool)" -lt "$(stat -c %s ns.spool)" ]
	diff <(sp-sym --format=raw ns.spool | awk '/^sample/ { print int($2 / 1000) }') \
		<(sp-sym --format=raw us.spool | awk '/^sample/ { print int($2 / 1000) }')
	run -2 sp-spool --time-resolution 0us -o x.spool
	run -2 sp-spool --time-resolution 5 -o x.spool
}

@test "--rotate begins other files, each of which can be read alone; together they are the whole" {
	"$STREAM" samples=100000 stacks=3000 procs=2 lost=5 >s.stream
	sp-spool -o all.spool s.stream
	local how n file
	for how in 20s 200K; do
		rm -f r.*
		sp-spool --rotate "$how" -o r.spool s.stream 2>log
		n=$(find . -name 'r.*.spool' | wc -l)
		[ "$n" -ge 2 ] || fail "$n files by $how"
		holds "$(cat log)" "$n files, from r.0001.spool"
		for file in r.*.spool; do
			equal "$(state_of "$file")" whole
			sp-sym --format=raw "$file"
		done >raw
		cmp raw <(sp-sym --format=raw all.spool)
		sp-spool r.*.spool -o again.spool
		cmp raw <(sp-sym --format=raw again.spool)
		equal "$(stat_of again.spool lost_events)" 5
	done
	run -2 sp-spool --rotate 5 -o x.spool s.stream
	run -2 sp-spool --rotate 5m s.stream
	run -2 sp-spool --rotate 5m -o x.spool all.spool
}

@test "rotated files keep the timeline: start and first sample belong together" {
	"$STREAM" samples=100000 >s.stream
	sp-spool --rotate 10s -o r.spool s.stream
	local n first start
	for n in 1 2 3; do
		first=$(sp-sym --format=raw r.000$n.spool | awk '/^sample/ && !n++ { print $2 }')
		start=$(sp-sym --format=stats-json r.000$n.spool | grep -o '"start_timestamp_us": [0-9]*' | tr -dc 0-9)
		# the stream says that its first sample was at this time
		equal "$start" $((1700001000000000 + (first - ${zero:=$first}) / 1000))
	done
}

@test "--cut takes the samples of a time, of streams and of spools; pieces add up" {
	"$STREAM" samples=10000 procs=2 lost=9 >s.stream
	sp-spool -o all.spool s.stream
	sp-spool --cut ..1 -o a.spool all.spool
	sp-spool --cut 1..2 -o b.spool all.spool
	sp-spool --cut 2.. -o c.spool all.spool
	cmp <(for f in a b c; do sp-sym --format=raw $f.spool; done) <(sp-sym --format=raw all.spool)
	# The stream's pair of clocks: 10^12 ns is 1700001000 s.
	sp-spool --cut @1700001001..@1700001002 -o d.spool all.spool
	cmp <(sp-sym --format=raw d.spool | grep ^sample) \
		<(sp-sym --format=raw all.spool | awk '/^sample/ && $2 >= 1001000000000 && $2 < 1002000000000')
	for f in a b c; do equal "$(state_of $f.spool)" whole; done
	sp-spool --cut 1..2 -o from-stream.spool s.stream
	cmp <(sp-sym --format=raw b.spool) <(sp-sym --format=raw from-stream.spool)
	# The loss is at the start.
	equal "$(stat_of a.spool lost_events)" 9
	equal "$(stat_of from-stream.spool lost_events)" 0
	equal "$(stat_of b.spool samples)" "$(samples_of b.spool)"
	run -2 sp-spool --cut 5 -o x.spool all.spool
	run -2 sp-spool --cut 5..5 -o x.spool all.spool
}

@test "--only takes the samples of processes, threads and names" {
	"$STREAM" samples=1000 procs=2 >s.stream
	sp-spool -o all.spool s.stream
	sp-spool --only pid=100 -o x.spool all.spool
	cmp <(sp-sym --format=raw x.spool) <(sp-sym --format=raw --pid 100 all.spool)
	equal "$(samples_of x.spool)" 500
	sp-spool --only tid=1102,101 -o x.spool s.stream
	equal "$(sp-sym --format=raw x.spool | awk '/^sample/ { print $3 "/" $4 }' | sort -u | tr '\n' ' ')" "100/1102 101/101 "
	sp-spool --only 'comm=no*,mak?r' --only pid=101 -o x.spool all.spool
	equal "$(samples_of x.spool)" 500
	for input in all.spool s.stream; do
		sp-spool --only comm=ma -o x.spool $input 2>log
		equal "$(samples_of x.spool || :)" 0
		holds "$(cat log)" "1000 samples left out"
		holds "$(cat log)" "0 lost; no sample is what --cut and --only ask for"
	done
	equal "$(state_of x.spool)" whole
	run -2 sp-spool --only uid=3 -o x.spool all.spool
	run -2 sp-spool --only pid= -o x.spool all.spool
}

@test "an existing spool keeps its link and its mode" {
	"$STREAM" samples=10 | sp-spool -o real.spool
	chmod 640 real.spool
	ln -s real.spool link.spool
	"$STREAM" samples=20 | sp-spool -o link.spool
	[ -L link.spool ]
	equal "$(samples_of real.spool)" 20
	equal "$(stat -c %a real.spool)" 640
}

@test "an empty recording is a whole spool" {
	"$STREAM" samples=0 | sp-spool -o x.spool
	equal "$(state_of x.spool)" whole
	sp-sym --format=raw x.spool >raw
	equal "$(stat -c %s raw)" 0
}

@test "samples whose stacks nobody unwound are counted, with the hint" {
	perf record -q -F 999 --call-graph dwarf,1024 -o x.data -- "$SP_PROG/chain-pie" 100 >/dev/null 2>&1
	sp-spool -o x.spool x.data 2>log
	holds "$(cat log)" "put sp-unwind in front"
	equal "$(stat_of x.spool not_unwound_samples)" "$(stat_of x.spool samples)"
	[ "$(stat_of x.spool samples)" -ge 50 ]
}

@test "wrong usage is exit 2" {
	run -2 sp-spool --nonsense
	run -2 sp-spool --append
	run -2 sp-spool --check
	"$STREAM" >a.stream
	run -2 sp-spool a.stream a.stream -o x.spool
	holds "$output" "several spools"
	run -0 sp-spool --help
	holds "$output" "--time-resolution"
	run -0 sp-spool --version
	holds "$output" "sp-spool "
}

@test "--min-free ends a stream before the disk is full, with status 3 and all that came; a full one is refused" {
	[ "$(id -u)" = 0 ] || skip "needs root for a small file system"
	mkdir small
	mount -t tmpfs -o size=64m stackpulse small || skip "no tmpfs can be mounted"
	small=$PWD/small
	local status=0
	"$STREAM" samples=100000000 stacks=100000 2>gen | {
		sp-spool --min-free=60M -o small/x.spool 2>log || echo $? >status
	}
	equal "$(cat status)" 3 "$(cat log)"
	holds "$(cat log)" "ended: small/x.spool: its file system has 5"
	holds "$(cat log)" "and 60 are to stay free (--min-free)"
	equal "$(state_of small/x.spool)" incomplete
	holds "$(sp-sym --format=stats small/x.spool 2>/dev/null)" "are to stay free"
	[ "$(samples_of small/x.spool)" -gt 1000 ] || fail "$(cat log)"
	"$STREAM" samples=5 | sp-spool --min-free=70M -o small/y.spool 2>log && fail "it was written"
	holds "$(cat log)" "cannot write small/y.spool: its file system has 5"
	[ ! -e small/y.spool ]
	run -2 sp-spool --min-free=1M small/x.spool -o merged.spool
	# Where there is room it ends nothing.
	"$STREAM" samples=50 | sp-spool --min-free=1M -o small/z.spool
	equal "$(state_of small/z.spool)" whole
}
