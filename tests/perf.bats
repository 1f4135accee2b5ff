#!/usr/bin/env bats
# perf reads us, and we read perf: with the real perf of this machine.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	# The format of its output must not depend on anybody's configuration.
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR PERF_BUILDID_DIR=$BATS_TEST_TMPDIR
	fields=comm,pid,tid,time,event,ip,sym,symoff,dso
}

perf_script() { # INPUT [OPTIONS…]
	local input=$1
	shift
	perf script --no-inline --max-stack 2048 "$@" -i "$input" 2>>perf.log
}

# Ours goes on where perf stops: the same samples, the same functions at the same addresses.
continues_perf() { # PROGRAM
	sp-capture -- "$SP_PROG/$1" 400 >stream
	perf_script stream -F "$fields" >theirs
	sp-unwind stream | sp-spool -o p.spool
	sp-sym --format=text --no-inline p.spool >ours
	chain continues theirs ours --min 99
}

# perf's own DWARF answer, and ours printed by perf: the same bytes where perf's is complete.
identical_to_perf() { # ROOT COMMAND…
	local root=$1
	shift
	perf record -q -k mono -F 999 --call-graph dwarf,16384 -o x.data -- "$@" >/dev/null 2>>perf.log
	perf_script x.data >theirs
	sp-unwind x.data | perf_script - >ours
	chain identical theirs ours --root "$root"
}

# bats test_tags=smoke
@test "perf script reads sp-capture: chain-pie" { continues_perf chain-pie; }
@test "perf script reads sp-capture: chain-nopie" { continues_perf chain-nopie; }
@test "perf script reads sp-capture: chain-static" { continues_perf chain-static; }
@test "perf script reads sp-capture: chain-lld" { continues_perf chain-lld; }
@test "perf script reads sp-capture: threads" { continues_perf threads; }
@test "perf script reads sp-capture: plt" { continues_perf plt; }
@test "perf script reads sp-capture: dlopen" { continues_perf dlopen; }
@test "perf script reads sp-capture: templates" { continues_perf templates; }

# bats test_tags=smoke
@test "sp-unwind gives perf's own answer, byte for byte: chain-pie" { identical_to_perf '_start' "$SP_PROG/chain-pie" 600; }
@test "sp-unwind gives perf's own answer, byte for byte: chain-nopie" { identical_to_perf '_start' "$SP_PROG/chain-nopie" 600; }
@test "sp-unwind gives perf's own answer, byte for byte: chain-lld" { identical_to_perf '_start' "$SP_PROG/chain-lld" 600; }
@test "sp-unwind gives perf's own answer, byte for byte: dlopen" { identical_to_perf '_start' "$SP_PROG/dlopen" 600; }
@test "sp-unwind gives perf's own answer, byte for byte: plt" { identical_to_perf '_start' "$SP_PROG/plt" 600; }
# A thread begins in libc, below it clone3. Of the one that calls clone3 perf gives no callers.
@test "sp-unwind gives perf's own answer, byte for byte: threads" { identical_to_perf '_start\+|libc\.so\.6\)\n.*clone3' "$SP_PROG/threads" 200; }
@test "sp-unwind gives perf's own answer, byte for byte: templates" { identical_to_perf '_start' "$SP_PROG/templates" 600; }
@test "sp-unwind gives perf's own answer for g++ on a real file, and goes on where perf stops" {
	perf record -q -k mono -F 999 --call-graph dwarf,65528 -o x.data -- \
		g++ -O2 -S -o /dev/null "$TOP/tests/prog/demo/main.cc" >/dev/null 2>perf.log
	perf_script x.data >theirs
	sp-unwind x.data | perf_script - >ours
	chain continues theirs ours --min 95 --samples 300
}

@test "perf report reads sp-unwind: the hottest function, and its callers" {
	sp-capture -- "$SP_PROG/chain-pie" 400 | sp-unwind >stream
	perf report --stdio --no-children --no-inline -g caller,0.5,callee --percent-limit 50 -i stream >out.txt 2>out.log
	holds "$(cat out.txt)" "[.] hot"
	holds "$(cat out.txt)" "gamma_fn"
	holds "$(cat out.txt)" "main"
}

@test "perf report reads sp-capture -o FILE.data and sp-unwind -o FILE.data" {
	sp-capture -o c.data -- "$SP_PROG/chain-pie" 400
	perf report --stdio --no-children --no-inline -g none -i c.data >out.txt 2>out.log
	holds "$(cat out.txt)" "[.] hot"
	sp-unwind -o u.data c.data
	perf report --stdio --no-children --no-inline -g none -i u.data >out.txt 2>out.log
	holds "$(cat out.txt)" "[.] hot"
	sp-spool -o p.spool u.data
	sp-sym --format=raw p.spool >raw
	chain raw raw --holding hot --min 99 --chain '^_start;(libc\.so\.6;)+main;alpha;beta;gamma_fn;hot;(\[kernel\];)*$'
}

# bats test_tags=smoke
@test "perf record -o - | sp-unwind | sp-spool" {
	perf record -q -F 999 --call-graph dwarf -o - -- "$SP_PROG/chain-pie" 400 2>perf.log | sp-unwind | sp-spool -o p.spool
	sp-sym --format=raw p.spool >raw
	chain raw raw --holding hot --min 99 --chain '^_start;(libc\.so\.6;)+main;alpha;beta;gamma_fn;hot;(\[kernel\];)*$'
}

@test "a perf.data file of --call-graph dwarf" {
	perf record -q -F 999 --call-graph dwarf -o x.data -- "$SP_PROG/threads" 200 >/dev/null 2>perf.log
	sp-unwind x.data | sp-spool -o p.spool
	sp-sym --format=raw p.spool >raw
	for n in 1 2 3 4; do
		chain raw raw --holding hot_$n --min 99 --chain "^(libc\.so\.6;)+worker_$n;middle_$n;hot_$n;(\[kernel\];)*\$"
	done
}

@test "a perf.data file of --call-graph fp: its own chains, call sites one byte back" {
	perf record -q -F 999 --call-graph fp -o x.data -- "$SP_PROG/chain-fp" 400 >/dev/null 2>perf.log
	sp-spool -o p.spool x.data 2>spool.log
	sp-sym --format=raw p.spool >raw
	# gcc gives a leaf no frame, so that the kernel, following frame pointers, misses the leaf's caller.
	chain raw raw --holding hot --min 95 --chain 'main;alpha;beta;(gamma_fn;)?hot;(\[kernel\];)*$' --calls chain-fp
}

@test "as many samples as perf counts in the same file" {
	perf record -q -F 999 --call-graph dwarf,8192 -o x.data -- "$SP_PROG/threads" 200 >/dev/null 2>perf.log
	sp-unwind x.data | sp-spool -o p.spool
	equal "$(stat_of p.spool samples)" "$(perf_script x.data -F tid | grep -c .)" "samples"
}

@test "the folder of perf record --threads: all its files, in time order" {
	perf record -q --threads -F 999 --call-graph dwarf,8192 -o x.data -- "$SP_PROG/threads" 200 >/dev/null 2>perf.log
	test -f x.data/data.0
	sp-unwind x.data 2>unwind.log | sp-spool -o p.spool
	equal "$(stat_of p.spool samples)" "$(perf_script x.data -F tid | grep -c .)" "samples"
	equal "$(stat_of p.spool out_of_order)" 0 "out of order"
	sp-unwind -q x.data >u 2>/dev/null
	perf_script u -F time -G | tr -d ' :' >times
	sort -c -n times
	sp-spool -q -o q.spool x.data 2>/dev/null
	equal "$(stat_of q.spool samples)" "$(stat_of p.spool samples)" "samples of its own chains"
	largest=$(find x.data -name 'data.*' -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
	truncate -s -5 "$largest"
	run sp-unwind x.data -o cut.data
	equal "$status" 3
	[[ $output == *"${largest##*/} ends inside a record"* ]] || fail "$output"
	rm "$largest"
	mkfifo "$largest"
	run sp-unwind x.data -o cut.data
	equal "$status" 1
	[[ $output == *"not a regular file"* ]] || fail "$output"
	run sp-unwind . -o cut.data
	[[ $output == *"none of perf record --threads"* ]] || fail "$output"
}

@test "sp-unwind gives the same bytes for every number of workers" {
	sp-capture -- "$SP_PROG/threads" 200 >stream
	for j in 1 2 5; do
		sp-unwind -j $j stream >u.$j
	done
	cmp u.1 u.2
	cmp u.1 u.5
}
