#!/usr/bin/env bats
# Recordings of other machines and other tools, and other tools on our files.

bats_require_minimum_version 1.5.0
load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR/home
	unset PERF_BUILDID_DIR
	mkdir home
}

# A recording whose program is no longer where it was.
record_and_move() {
	mkdir there
	cp "$SP_PROG/chain-pie" there/prog
	perf record -q -F 999 --call-graph dwarf,16384 -o x.data -- ./there/prog 200 >/dev/null 2>perf.log
	mv there away
}

# The stacks and the names by these options: both stages find the file, or neither does.
found_with() { # OPTIONS…
	sp-unwind -q "$@" x.data | sp-spool -q -o p.spool
	sp-sym --format=folded "$@" p.spool >folded
	awk '/;_start;.*main;alpha;beta;gamma_fn;hot/ { whole += $NF } { all += $NF }
		END { exit !(all > 50 && whole >= all * 0.95) }' folded
}

not_found_with() {
	if found_with "$@"; then
		fail "it should not have been found with '$*'"
	fi
}

@test "a program that has gone is found in perf's cache, ~/.debug, by its build-id" {
	record_and_move
	[ -d home/.debug/.build-id ]
	found_with
	mv home/.debug elsewhere
	not_found_with
	found_with --debug-dir "$PWD/elsewhere"
}

@test "what perf archive packed is read in place: beside the recording, or where --debug-dir says" {
	record_and_move
	perf archive x.data >archive.log 2>&1
	rm -r home/.debug
	found_with
	mkdir unpacked elsewhere
	tar xf x.data.tar.bz2 -C unpacked
	mv x.data.tar.bz2 elsewhere/packed
	not_found_with
	found_with --debug-dir elsewhere/packed
	found_with --debug-dir unpacked
	head -c 1000 elsewhere/packed >x.data.tar.bz2
	not_found_with
	sp-unwind x.data 2>log >/dev/null
	holds "$(cat log)" "x.data.tar.bz2: ends too early"
}

@test "a program that has gone is found through --symfs and --path-map" {
	record_and_move
	rm -r home/.debug
	mkdir -p "sys$PWD"
	cp -r away "sys$PWD/there"
	found_with --symfs "$PWD/sys"
	found_with --path-map "$PWD/there=$PWD/away"
	not_found_with --path-map "$PWD/the=$PWD/away"
}

@test "the kernel's names of another machine come from perf's copy, moved to where its code was" {
	perf record -q -e cpu-clock -F 4999 -g -o x.data -- dd if=/dev/zero of=/dev/null bs=1M count=4000 >/dev/null 2>perf.log
	sp-spool -q -o p.spool x.data
	HOME=/nonexistent sp-sym --format=folded p.spool | grep -o '[^;]*_\[k\]' | sort -u >want
	sp-sym --format=folded p.spool | grep -o '[^;]*_\[k\]' | sort -u | diff want -
	[ "$(wc -l <want)" -gt 5 ] || skip "no kernel symbols to be had here"
	# Of this boot sp-sym keeps a copy of its own.
	for cache in empty full; do
		XDG_CACHE_HOME=$PWD/cache HOME=/nonexistent sp-sym --format=folded p.spool |
			grep -o '[^;]*_\[k\]' | sort -u | diff want - || fail "with the cache $cache"
		[ -n "$(find cache -name 'kallsyms-*')" ] || fail "no copy was kept"
	done
	release=$(uname -r)
	# A recording of another kernel, as far as its words go.
	python3 - "$release" <<'END'
import sys
data, name = open("x.data", "rb").read(), sys.argv[1].encode() + b"\0"
assert name in data
open("y.data", "wb").write(data.replace(name, b"X" + name[1:]))
END
	sp-spool -q -o q.spool y.data
	sp-sym --format=folded q.spool | grep -o '[^;]*_\[k\]' | sort -u >got
	comm -13 got want >missing
	[ "$(wc -l <missing)" -le $(($(wc -l <want) / 10)) ] || fail "missing: $(cat missing)"
	# The copy is of a boot whose code began 2 MiB lower.
	file=$(find home/.debug -name kallsyms)
	python3 - "$file" <<'END'
import sys
lines = open(sys.argv[1]).read().splitlines()
open(sys.argv[1], "w").write("".join("%016x%s\n" % (max(int(l[:16], 16) - 0x200000, 0), l[16:]) for l in lines))
END
	sp-sym --format=folded q.spool | grep -o '[^;]*_\[k\]' | sort -u | diff - got
	mv home/.debug elsewhere
	sp-sym --format=folded q.spool | grep -o '[^;]*_\[k\]' | sort -u >none
	if cmp -s none got; then fail "names without a copy"; fi
	sp-sym --format=folded --debug-dir elsewhere q.spool | grep -o '[^;]*_\[k\]' | sort -u | diff - got
}

# x.data with the mappings of a program as if these were of an archive that holds it at an offset.
into_archive() { # OFFSET
	python3 - "$1" <<'END'
import struct, sys
data = bytearray(open("x.data", "rb").read())
at, size = struct.unpack_from("<QQ", data, 40)
end, found = at + size, 0
while at < end:
    kind, misc, size = struct.unpack_from("<IHH", data, at)
    if kind == 10:  # MMAP2: pgoff at 32, device and inode at 40, the path at 72
        path = bytes(data[at + 72:data.index(0, at + 72)])
        if path.endswith(b"/there/prog"):
            found += 1
            pgoff, = struct.unpack_from("<Q", data, at + 32)
            struct.pack_into("<QIIQQ", data, at + 32, pgoff + int(sys.argv[1], 0), 0, 0, 0, 0)
            data[at + 72 + len(path) - 4:at + 72 + len(path)] = b".apk"
    at += size
assert found
open("x.data", "wb").write(data)
END
}

@test "an ELF file inside of an archive, behind another one, gives stacks and names" {
	mkdir there
	cp "$SP_PROG/chain-pie" there/prog
	perf record -q -B -F 999 --call-graph dwarf,16384 -o x.data -- ./there/prog 200 >/dev/null 2>perf.log
	into_archive 0x40000
	rm there/prog
	dd if="$SP_PROG/libplugin.so" of=there/.apk bs=4096 seek=1 2>/dev/null
	dd if="$SP_PROG/chain-pie" of=there/.apk bs=4096 seek=64 conv=notrunc 2>/dev/null
	found_with
}

# Nothing here runs with pages of 64 KiB, but files are linked for them.
@test "segments aligned to 64 KiB: stacks and names" {
	gcc -O1 -g -Wl,-z,max-page-size=65536 -Wl,-z,common-page-size=65536 -o prog "$TOP/tests/prog/chain.c"
	perf record -q -F 999 --call-graph dwarf,16384 -o x.data -- ./prog 200 >/dev/null 2>perf.log
	found_with
}

@test "an archive of a recording without build-ids: the path decides, and this is said" {
	cp "$SP_PROG/chain-pie" prog
	perf record -q -B -F 999 --call-graph dwarf,16384 -o x.data -- ./prog 200 >/dev/null 2>perf.log
	found_with
	sp-unwind -v x.data 2>log >/dev/null
	cp prog other && mv other prog # another inode
	sp-unwind -v x.data 2>log >/dev/null
	holds "$(cat log)" "not used"
}

@test "tracepoints keep their formats: perf script reads what sp-unwind makes of them" {
	need_tracefs
	perf record -q -e sched:sched_process_exit --call-graph dwarf,8192 -o x.data -- sh -c '/bin/true; /bin/true' >/dev/null 2>perf.log
	perf script --no-inline -F comm,tid,time,event,ip,sym,dso -i x.data 2>perf.log >want
	grep -q sched:sched_process_exit want
	grep -v '^$' want | grep -c '^[^	]' >n
	sp-unwind -q x.data >x.pipe
	sp-unwind -q -o y.data x.data
	sp-unwind -q x.pipe >y.pipe
	for f in x.pipe y.data y.pipe; do
		perf script --no-inline -i "$f" >got 2>perf.log
		equal "$(grep -c 'sched:sched_process_exit: comm=.*pid=' got)" "$(cat n)" "samples with their fields in $f"
	done
}

@test "a recording of call chains alone: sp-spool takes the file, and sp-unwind says so" {
	perf record -q -F 999 --call-graph fp -o x.data -- "$SP_PROG/chain-fp" 200 >/dev/null 2>perf.log
	sp-spool -q -o direct.spool x.data
	sp-unwind x.data 2>log | sp-spool -q -o through.spool
	holds "$(cat log)" "sp-spool reads such a file directly"
	for s in direct through; do sp-sym --format=raw $s.spool >$s; done
	cmp direct through
	[ "$(grep -c '^sample' direct)" -gt 100 ]
}

@test "two events keep their names, samples and weights" {
	perf record -q -e cpu-clock:u -c 1000000 -e page-faults:u -c 1 --call-graph dwarf,8192 -o x.data -- \
		"$SP_PROG/chain-pie" 200 >/dev/null 2>perf.log
	perf script --no-inline -F period,event -G -i x.data 2>perf.log | awk '{ gsub(":$", "", $2); n[$2]++; w[$2] += $1 }
		END { for (e in n) print e, n[e], w[e] }' | sort >want
	equal "$(wc -l <want)" 2 "events"
	sp-unwind -q x.data | sp-spool -q -o p.spool
	sp-sym --format=raw p.spool | awk '/^sample/ { n[$5]++; w[$5] += $6 } END { for (e in n) print e, n[e], w[e] }' | sort >got
	diff want got
	equal "$(stat_of p.spool sample_events)" "$(awk '{ n += $2 } END { print n }' want)" "sample_events"
}

@test "a group of which one event samples: each event has what was read, as in perf" {
	# On one CPU: each has a group of its own, and its first millisecond is where the faults are.
	taskset -c "$(a_cpu)" perf record -q -e '{cpu-clock:u,page-faults:u}:S' -c 1000000 -g -o x.data -- "$SP_PROG/chain-pie" 200 >/dev/null 2>perf.log
	sp-unwind -q x.data >x.pipe
	for f in x.data x.pipe; do
		perf script --no-inline -F time,period,event -G --ns -i "$f" 2>perf.log | awk '{ gsub("[.:]", "", $1); sub(":$", "", $3); print $1, $3, $2 }' | sort >want
		equal "$(cut -d' ' -f2 want | sort -u | tr '\n' ' ')" "cpu-clock:u page-faults:u " "events"
		sp-spool -q -o p.spool "$f"
		sp-sym --format=raw p.spool | awk '/^sample/ { print $2, $5, $6 }' | sort | diff want -
		equal "$(stat_of p.spool sample_events)" "$(stat_of p.spool samples)" "sample_events"
		# what is left out gains as well
		sp-spool -q --cut=0.1.. -o cut.spool "$f"
		sp-sym --format=raw cut.spool | awk '/^sample/ { print $2, $5, $6 }' | sort >got
		[ -s got ] && [ "$(comm -13 want got | wc -l)" = 0 ] || fail "$(comm -13 want got | head -n 5)"
	done
}

@test "a thread whose name nobody told is called by its number, as in perf" {
	perf record -q -e cpu-clock:u -c 1000000 -g -o - -- "$SP_PROG/threads" 100 2>perf.log >x.pipe
	python3 - <<-'END'
		import struct
		data, comm = open("x.pipe", "rb").read(), 3
		out, at = [data[:16]], 16
		while at < len(data):
		    kind, _, size = struct.unpack_from("<IHH", data, at)
		    if kind != comm:
		        out.append(data[at:at + size])
		    at += size
		open("y.pipe", "wb").write(b"".join(out))
	END
	perf script --no-inline -F comm,tid,time -G -i y.pipe 2>perf.log | awk '{ print $1, $2, $3 }' | sort >want
	[ "$(grep -c '^:[0-9]' want)" -gt 50 ] || fail "$(head -n 5 want)"
	sp-spool -q -o p.spool y.pipe
	sp-sym --format=text --no-inline p.spool | awk '/^[^[:space:]]/ { sub(".*/", "", $2); print $1, $2, $3 }' | sort | diff want -
}

@test "perf inject and perf report read what sp-unwind wrote" {
	perf record -q -F 999 --call-graph dwarf,16384 -o x.data -- "$SP_PROG/chain-pie" 200 >/dev/null 2>perf.log
	fields=comm,tid,time,ip,sym,dso
	sp-unwind -q x.data >x.pipe
	sp-unwind -q -o y.data x.data
	perf script --no-inline -F $fields -i x.pipe >want 2>perf.log
	[ -s want ]
	perf inject -b -i y.data -o z.data 2>perf.log
	perf inject <x.pipe 2>perf.log >z.pipe # of a pipe in a file its copy is no recording, nor of perf's own
	for f in y.data z.data z.pipe; do
		perf script --no-inline -F $fields -i "$f" 2>perf.log | cmp - want
	done
	for f in x.pipe y.data z.data; do
		perf report --stdio --no-inline --no-children -g none -i "$f" 2>perf.log >out
		holds "$(cat out)" "[.] hot"
	done
}

@test "this machine's vdso is known in a perf.data file on a pipe too, where its features come too late" {
	! head -n 1 /proc/kallsyms | grep -q '^0* ' || skip "/proc/kallsyms hides its addresses from us"
	cat >clock.c <<-'END'
		#include <time.h>
		int main(void)
		{
			struct timespec t, cpu;
			do {
				for (int i = 0; i < 1000; i++)
					clock_gettime(CLOCK_MONOTONIC, &t);
				clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
			} while (cpu.tv_sec == 0 && cpu.tv_nsec < 200000000);
		}
	END
	gcc -O1 -o clock clock.c
	perf record -q -F 999 --call-graph dwarf,4096 -o x.data -- ./clock 2>perf.log
	guessed() { tr , '\n' | sed -n 's/^"frame_pointer_frames"://p; s/^"scanned_frames"://p' | paste -sd' '; }
	sp-unwind --stats=json x.data 2>&1 >/dev/null | guessed >want
	cat x.data | sp-unwind --stats=json 2>&1 >/dev/null | guessed >got # as frames of unknown code they would be guesses
	diff want got
	# another kernel's code has another length
	python3 - <<-'END'
		data = bytearray(open("x.data", "rb").read())
		at = data.index(b"[kernel.kallsyms]_text\0") - 16
		data[at] ^= 0x10
		open("y.data", "wb").write(data)
	END
	cat y.data | sp-unwind --stats=json 2>&1 >/dev/null | guessed >got
	if cmp -s want got; then fail "the vdso of another kernel was taken for ours"; fi
}

@test "a file that perf was killed over: what is whole comes out, with the reason and the offset, and 3" {
	perf record -q -F 999 --call-graph dwarf,8192 -o x.data -- "$SP_PROG/chain-pie" 200 >/dev/null 2>perf.log
	all=$(perf script --no-inline -F tid -G -i x.data 2>perf.log | grep -c .)
	python3 - <<'END'
import struct
data = bytearray(open("x.data", "rb").read())
at, size = struct.unpack_from("<QQ", data, 40)
struct.pack_into("<Q", data, 48, 0)      # perf writes the size at its end
struct.pack_into("<32s", data, 72, b"")  # and the features
open("killed.data", "wb").write(data[:at + size])
open("half.data", "wb").write(data[:at + size // 2])
END
	run --separate-stderr sp-unwind -o killed.pipe killed.data
	equal "$status" 3 "status"
	# shellcheck disable=SC2154 # run sets it
	holds "$stderr" "was killed"
	sp-spool -q -o k.spool killed.pipe || equal $? 3 "sp-spool's status"
	equal "$(stat_of k.spool samples)" "$all" "samples"
	run --separate-stderr sp-unwind -o half.pipe half.data
	equal "$status" 3 "status"
	offset=$(sed -n 's/.*offset \([0-9]*\).*/\1/p' <<<"$stderr")
	end=$(stat -c %s half.data)
	[ "$offset" -le "$end" ] && [ "$offset" -gt $((end - 65536)) ] || fail "$stderr"
	sp-spool -q -o h.spool half.pipe || equal $? 3 "sp-spool's status"
	n=$(stat_of h.spool samples)
	[ "$n" -gt $((all / 3)) ] && [ "$n" -lt "$all" ]
}
