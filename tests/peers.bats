#!/usr/bin/env bats
# Our perf.data files in programs that take long to install: make check-peers.

bats_require_minimum_version 1.5.0
load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
}

@test "hotspot reads the perf.data files of sp-capture and sp-unwind" {
	parser=$(find /usr/lib /usr/libexec -name hotspot-perfparser 2>/dev/null | head -n 1)
	[ -n "$parser" ] || fail "hotspot is not installed: make check-peers installs it"
	sp-capture -q -o c.data -- "$SP_PROG/chain-pie" 200
	sp-unwind -q -o u.data c.data
	for f in c u; do
		"$parser" --input $f.data --output $f.out 2>log
		for name in _start main alpha beta gamma_fn hot cpu-clock; do
			grep -qa "$name" $f.out || fail "no $name in what hotspot reads of $f.data"
		done
	done
}

@test "samply imports the perf.data files of sp-capture and sp-unwind" {
	samply=$(command -v samply || echo "$SP_BUILD/bench/samply/bin/samply")
	[ -x "$samply" ] || fail "samply is not built: make check-peers builds it"
	sp-capture -q -o c.data -- "$SP_PROG/chain-pie" 200
	sp-unwind -q -o u.data c.data
	n=$(perf script --no-inline -F tid -G -i u.data 2>perf.log | grep -c .)
	for f in c u; do
		"$samply" import -s -n -o $f.json.gz $f.data >log 2>&1
		zcat $f.json.gz >$f.json
		equal "$(python3 -c 'import json, sys
print(sum(t["samples"]["length"] for t in json.load(open(sys.argv[1]))["threads"]))' $f.json)" "$n" "samples of $f.data"
	done
}
