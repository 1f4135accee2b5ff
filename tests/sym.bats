#!/usr/bin/env bats
# sp-sym: each view by value, on a spool of the worst names (make-hostile) and on real ones.

bats_require_minimum_version 1.5.0
load lib

FORMATS="top tree text raw folded flamegraph json pprof firefox speedscope callgrind lines jsonl otlp stats stats-json"

setup_file() {
	export HOSTILE=$BATS_FILE_TMPDIR/h.spool
	"$BATS_TEST_DIRNAME/make-hostile" --maps "$BATS_FILE_TMPDIR" | sp-spool -q -o "$HOSTILE"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
}

views() {
	python3 "$TOP/tests/views.py" "$@"
}

# The number of samples in folded text.
total() {
	awk '{ n += $NF } END { print n + 0 }'
}

# sp-sym must end with STATUS; its output is in out, its messages in err.
sym() { # STATUS OPTION…
	local wanted=$1 status=0
	shift
	sp-sym "$@" >out 2>err || status=$?
	[ "$status" = "$wanted" ] || fail "exit status $status, wanted $wanted" "$(head -c 2000 err)"
}

# bats test_tags=smoke
@test "all formats show the same samples per process, thread and leaf, whatever the names" {
	views same "$HOSTILE" --perf-maps=any
}

@test "events stand apart in every format, with their own weight" {
	views apart "$HOSTILE" --perf-maps=any
	"$TOP/tests/make-hostile" --off-cpu | sp-spool -q -o off.spool
	views same off.spool
	views apart off.spool
	views apart off.spool --tid=100,101
	# Those for people count time where both are, and off CPU alone.
	sym 0 off.spool
	holds "$(cat out)" "541 samples of cpu-clock (541.0 ms)"
	holds "$(cat out)" "60 samples of offcpu-time (150.0 ms)"
	sym 0 -n 1 -e offcpu-time off.spool
	equal "$(sed -n 4p out | awk '{ print $1, $2, $3, $4 }')" "11.67 11.67 17.5 ms" "time off CPU"
	sym 0 -n 1 -e cpu-clock off.spool
	equal "$(sed -n 4p out | awk '{ print $3 < 541 }')" 1 "samples on CPU"
	sym 0 -f folded -w time off.spool
	equal "$(total <out)" "$((541000000 + 150018120))" time
	equal "$(cut -d';' -f1 out | sort -u | tr '\n' ' ')" "cpu-clock offcpu-time " roots
	sym 1 -w time "$HOSTILE"
	holds "$(cat err)" "not all of these events are times"
	sym 0 -w time -e cpu-clock "$HOSTILE"
	# pprof's columns: samples, then each event.
	sym 0 -f flamegraph off.spool
	holds "$(cat out)" '<select id="event">'
	sym 0 -f flamegraph -e offcpu-time off.spool
	equal "$(grep -c '<select id="event">' out)" 0 "a choice of one"
	holds "$(cat out)" "all: 150018120 ns, 100.00 %"
}

@test "states and wakers of times off the CPU: the same in every format, groups, sums" {
	"$TOP/tests/make-hostile" --off-cpu | sp-spool -q -o off.spool
	views waits off.spool --debuginfod=never
	sym 0 -f stats off.spool
	python3 - out <<-'X'
		import re, sys
		text = open(sys.argv[1], errors="replace").read().split("\nOff the CPU\n")[1].split("\n\n")[0]
		state, waker = text.split("By waker:\n")
		rows = lambda t: {m[2]: (m[1], int(m[3])) for m in re.finditer(r"^ +\S+ ms +(\S+) %  (.*) \((\d+)\)$", t, re.M)}
		assert rows(state) == {"sleeping": ("33.3", 17), "disk sleep": ("33.3", 17), "runnable": ("17.6", 9),
			"unknown": ("15.7", 8)}, text
		assert len(rows(waker)) == 6 and rows(waker)["[nobody]"] == ("17.6", 9), text
	X
	# Nothing is told of 9 of the 60, and of 8 not the state.
	sym 0 -f folded -g state -e offcpu-time off.spool
	equal "$(sed 's/;.* / /' out | awk '{ n[$1] += $2 } END { for (k in n) print k, n[k] }' | sort | tr '\n' ,)" \
		"disk_sleep 17,runnable 9,sleeping 17,unknown 17,"
	sym 0 -f folded -g waker off.spool
	equal "$(grep -c '^cpu-clock;\[on_CPU\];' out)" "$(grep -c '^cpu-clock;' out)" "roots on the CPU"
	equal "$(sed -n 's/^offcpu-time;\(\[interrupt\]\|a_b:c_12.13\);.* / /p' out | total)" 18 "woken so"
	# A merged spool tells them again, one without has none of it.
	sp-spool -q -o again.spool off.spool
	sp-sym -q -f jsonl off.spool >one
	sp-sym -q -f jsonl again.spool >two
	cmp <(sed 's/"spool_id":[0-9]*,//; s/"stack_id":[0-9]*,//' one) <(sed 's/"spool_id":[0-9]*,//; s/"stack_id":[0-9]*,//' two)
	for f in text json jsonl stats stats-json; do
		sym 0 -f $f "$HOSTILE"
		equal "$(grep -ac '^# \|wait\|"state":"\|Off the' out || :)" 0 "waits in $f"
	done
}

@test "diff compares each event with itself, also one that only one spool has" {
	"$TOP/tests/make-hostile" --off-cpu | sp-spool -q -o off.spool
	sym 0 --diff off.spool "$HOSTILE"
	python3 - out <<-'X'
		import re, sys
		text = open(sys.argv[1]).read()
		heads = re.findall(r"^(before|now): +(\d+) samples of (\S+ ?\S*)(?: \(| in)", text, re.M)
		assert [(a, int(n), e) for a, n, e in heads] == [
			("before", 541, "cpu-clock"), ("now", 541, "cpu-clock"), ("before", 0, "no event"),
			("now", 60, "page-faults"), ("before", 60, "offcpu-time"), ("now", 0, "no event")], heads
	X
}

@test "firefox: markers for execs, losses, and the names that a thread had" {
	"$TOP/tests/make-hostile" --lives --off-cpu | sp-spool -q -o lives.spool
	sym 0 -f firefox lives.spool
	gzip -dc out | python3 -c '
import collections, json, sys
p = json.load(sys.stdin)
got = collections.defaultdict(list)
for t in p["threads"]:
    m = t["markers"]
    for i in range(m["length"]):
        assert (m["endTime"][i] is None) == (m["phase"][i] == 0), m
        got[t["stringArray"][m["name"][i]]].append(
            (t["pid"], str(t["tid"]), m["data"][i]["name"], round(m["startTime"][i], 3), m["endTime"][i]))
assert [(x[0], x[2], x[3]) for x in got["exec"]] == [("200", "/bin/new prog --flag ", 300.0)], got["exec"]
assert [(x[2], x[3], x[4]) for x in got["lost records"]] == [("77", 297, 299.999999)], got["lost records"]
names = [x for x in got["thread name"] if x[1] == "102"]
assert [x[2] for x in names] == ["tab\tnl\nx", "re;named"] and names[0][4] < names[1][3], got["thread name"]
assert {x[1].split()[0] for x in got["thread name"]} == {"102"}
off = [t for t in p["threads"] if t["name"].endswith("(offcpu-time)")]
assert off and all(t["samples"]["weightType"] == "tracing-ms" for t in off)
assert sum(sum(t["samples"]["weight"]) for t in off) - 150.01812 < 1e-6'
}

@test "--lines: the lines of a function apart, their sums are the functions" {
	# Two programs, so that there are two stacks at least.
	# shellcheck disable=SC2016 # the inner shell's
	profile p.spool -- sh -c '"$0" 300; "$1" 100' "$SP_PROG/templates" "$SP_PROG/chain-pie"
	sym 0 -f folded -g none p.spool
	sed 's/\(:[a-z_]*\.[a-z]*\)\?:[0-9]*\(;\|_\[i\]\| \)/\2/g' <(sp-sym -f folded -g none --lines p.spool) >lines
	python3 - out lines <<-'X'
		import collections, sys
		def read(name):
		    counts = collections.Counter()
		    for line in open(name):
		        stack, _, n = line.rpartition(" ")
		        counts[stack] += int(n)
		    return counts
		a, b = map(read, sys.argv[1:])
		assert a == b and len(a) > 1, (a - b, b - a)
	X
	# The hottest function's lines in top are those of lines.
	sym 0 --lines -n 1 p.spool
	line=$(sed -n '4s/.*(.*):\([0-9]*\) .*templates.cc:\1$/\1/p' out)
	[ -n "$line" ] || fail "no line in" "$(cat out)"
	share=$(sed -n '4s/ *\([0-9.]*\).*/\1/p' out)
	sym 0 --file templates.cc p.spool
	equal "$(awk -v n="$line" '$3 == n { print $1 }' out)" "$share" "share of line $line"
	for format in tree text flamegraph speedscope; do
		sym 0 -f $format --lines p.spool
		holds "$(cat out)" "mix(unsigned int):$line"
	done
	sym 2 --lines -f pprof p.spool
	holds "$(cat err)" "--lines has no meaning for --format=pprof, which has the lines anyway"
	sym 2 --lines -f raw p.spool
}

@test "every group conserves the samples, in every format that has groups" {
	for group in none process thread comm pool container state waker; do
		sym 0 -f folded -g $group --perf-maps=any "$HOSTILE"
		equal "$(total <out)" 601 "folded by $group"
		sym 0 -f callgrind -g $group --perf-maps=any "$HOSTILE"
		equal "$(views valid callgrind out)" 601 "callgrind by $group"
		sym 0 -f flamegraph -g $group --perf-maps=any -w samples "$HOSTILE"
		equal "$(views valid flamegraph out)" 601 "flamegraph by $group"
		sym 0 -f tree -m 0 -g $group --perf-maps=any -w samples "$HOSTILE"
		equal "$(grep -c 'samples of' out)" 2 "tree by $group"
	done
}

@test "all formats agree under filters" {
	views same "$HOSTILE" --perf-maps=none
	views same "$HOSTILE" --perf-maps=any --user
	views same "$HOSTILE" --perf-maps=any --kernel
	views same "$HOSTILE" --perf-maps=any --event=cpu-clock --tid=100,201
	views same "$HOSTILE" --perf-maps=any -m 3
	views same "$HOSTILE" --perf-maps=any --function='*helper*' --time=0.1..0.4
	views same "$HOSTILE" --perf-maps=any --pid=200 --comm='?*'
	views same "$HOSTILE" --perf-maps=any --module='lib"c'
	views same "$HOSTILE" --perf-maps=any --hide-runtime --no-inline --event=page-faults
	views same "$HOSTILE" --perf-maps=any --depth=2 --time=..0.3
}

@test "all formats agree on a real program, with inlined functions" {
	profile p.spool -- "$SP_PROG/templates" 300
	views same p.spool
	views same p.spool --no-inline
	views same p.spool --min-percent=5
	views same p.spool --depth=3
}

@test "raw: exact lines, octal escapes, the marker, samples without pid" {
	sym 0 -f raw "$HOSTILE"
	equal "$(grep -c '^sample' out)" 601 samples
	equal "$(head -n 7 out)" "$(printf 'sample 1001000000 100 100 cpu-clock 1000000\n\t7e0000000000 //anon 0\n\nsample 1002000000 100 101 cpu-clock 1000000\n\t7e0000000704 //anon 704\n\t7f0000001010 /lib/dir (deleted) x/lib"c\\134<&>\\012.so.6 2010\n\t7e0000000a04 //anon a04')"
	# Every kind of frame: i = 2 has kernel frames, i = 3 none of a module, i = 5 stops.
	equal "$(awk '/^sample 1003000000/ { on = 1 } on && !NF { exit } on' out | sed -n 2,3p)" \
		"$(printf '\tffffffff81000020 [kernel] ffffffff81000020\n\tffffffff810004ff [kernel] ffffffff810004ff')"
	holds "$(cat out)" "$(printf '\n\t10 - 10\n')"
	equal "$(grep -c "^$(printf '\t')\[truncated\]$" out)" 99 "cut stacks"
	equal "$(tail -n 3 out)" "$(printf 'sample 1600000001 -1 -1 cpu-clock 1000000\n\t7e0000000000 - 7e0000000000')"
	# In time order.
	awk '/^sample/ { if ($2 < last) exit 1; last = $2 }' out
}

@test "folded: thread names, marks, weights and groups" {
	sym 0 -f folded --perf-maps=any "$HOSTILE"
	equal "$(total <out)" 601 samples
	equal "$(cut -d' ' -f1 out | cut -d';' -f2 | LC_ALL=C sort -u | tr '\n' ' ')" \
		"? [ET_NET_0] a_b:c_12/13 demo tab?nl?x w$(printf '\357\277\275\357\277\275')<&>\"' " comms
	holds "$(cat out)" "demo;[truncated];"
	holds "$(cat out)" "_[k] "
	sym 0 -f folded -w weight -e cpu-clock "$HOSTILE"
	equal "$(total <out)" 541000000 weight
	sym 0 -f folded -g process "$HOSTILE"
	equal "$(cut -d';' -f2 out | LC_ALL=C sort -u | tr '\n' ' ')" "?--1 [ET_NET_0]-200 demo-100 " processes
	sym 0 -f folded -g none "$HOSTILE"
	equal "$(total <out)" 601 samples
	sym 0 -f folded -g pool "$HOSTILE"
	holds "$(cat out)" "a_b:c_N/N;"
	# The other way round, each line begins with its leaf.
	sym 0 -f folded -g none --perf-maps=any "$HOSTILE"
	sed 's/^[^;]*;//; s/;.*//; s/ [0-9]*$//' <(sp-sym -f folded -g none --perf-maps=any -r "$HOSTILE") | LC_ALL=C sort -u >leaves.reverse
	sed 's/ [0-9]*$//; s/.*;//' out | LC_ALL=C sort -u >leaves
	cmp leaves leaves.reverse
}

@test "filters take what they say" {
	count() {
		sp-sym -f folded --perf-maps=any "$@" "$HOSTILE" 2>/dev/null | total
	}
	equal "$(count --pid 200)" 200 pid
	equal "$(count --pid=100,200)" 600 pids
	equal "$(count --tid 101 --tid 103)" 200 tids
	equal "$(count --comm ET_NET)" 100 "part of a name"
	equal "$(count --comm 'a b;c*')" 100 name
	equal "$(count --comm '*')" 601 "any name"
	equal "$(count --event page-faults)" 60 event
	equal "$(count --time 0..0.0995)" 100 "the first 99.5 ms"
	equal "$(count --time 500ms..)" 101 "from half a second"
	equal "$(count --time ..@1700000000.1)" 100 "by the wall clock"
	equal "$(count --module 'lib"c')" "$(sp-sym -f raw "$HOSTILE" | grep -c 'lib"c')" module
	equal "$(count --function 'main')" "$(sp-sym -f json --perf-maps=any "$HOSTILE" | python3 -c '
import json, sys
p = json.load(sys.stdin)
main = {i for i, f in enumerate(p["functions"]) if "main" in f["name"]}
has = [any(l["function"] in main for f in s for l in p["frames"][f]["levels"]) for s in p["stacks"]]
print(sum(has[s[3]] for s in p["samples"]))')" function
	equal "$(count --kernel)" 126 kernel
	equal "$(count -m 100)" 601 "pruned text keeps all samples"
	equal "$(count -d 2)" 601 "text of two levels keeps all samples"
}

@test "nothing left by a filter: valid output, and a hint" {
	for format in $FORMATS; do
		case $format in stats*) continue ;; esac
		sym 0 -f "$format" --pid 4711 "$HOSTILE"
		holds "$(cat err)" "0 samples: the filters leave none of 601"
	done
}

@test "no samples at all: every format is valid and says so" {
	"$TOP/tests/make-hostile" --samples 0 | sp-spool -q -o empty.spool
	for format in $FORMATS; do
		sym 0 -f "$format" empty.spool
		holds "$(cat err)" "0 samples: was the target idle?"
		case $format in
		json | pprof | firefox | speedscope | flamegraph | callgrind | text)
			cp out "out.$format"
			[ "$format" = pprof ] || equal "$(views valid "$format" "out.$format")" 0 "$format"
			;;
		esac
	done
	gzip -t out.pprof
}

@test "standard input that can't be read is named with the reason" {
	run -1 sp-sym </
	holds "$output" "cannot read standard input: Is a directory"
	run -1 bash -c 'sp-sym <&-'
	holds "$output" "cannot read standard input: Bad file descriptor"
}

@test "a full disk is an error in every format" {
	for format in $FORMATS; do
		status=0
		sp-sym -f "$format" "$HOSTILE" >/dev/full 2>err || status=$?
		equal $status 1 "$format on standard output"
		holds "$(cat err)" "cannot write standard output: No space left on device"
		status=0
		sp-sym -f "$format" -o /dev/full "$HOSTILE" 2>err || status=$?
		equal $status 1 "$format -o"
		holds "$(cat err)" "cannot write /dev/full: No space left on device"
	done
}

@test "-o: the whole file under its name, or the old one untouched" {
	echo old >x
	sym 1 -f folded -o x no-such.spool
	equal "$(cat x)" old
	sym 0 -f folded -o x "$HOSTILE"
	sp-sym -f folded "$HOSTILE" | cmp - x
	ln -s x link
	sym 0 -f raw -o link "$HOSTILE"
	[ -L link ]
	equal "$(grep -c '^sample' x)" 601
	sym 1 -f raw -o nowhere/x "$HOSTILE"
	holds "$(cat err)" "cannot write nowhere/x: No such file or directory"
	equal "$(find . -type f -o -type l | LC_ALL=C sort | tr '\n' ' ')" "./err ./link ./out ./x "
	(umask 027 && sp-sym -f raw -o y "$HOSTILE")
	equal "$(stat -c %a y)" 640
}

@test "twice the same, and the same through a pipe" {
	for format in $FORMATS; do
		sp-sym -f "$format" --perf-maps=any "$HOSTILE" >a
		sp-sym -f "$format" --perf-maps=any -j 1 "$HOSTILE" >b
		cmp a b
		[ "$format" = text ] || [ "$format" = raw ] || [ -s a ]
	done
	sp-sym -f json --perf-maps=none "$HOSTILE" >a
	# shellcheck disable=SC2002 # a pipe is what is tested
	cat "$HOSTILE" | sp-sym -f json --perf-maps=none - >b
	sp-sym -f json --perf-maps=none <"$HOSTILE" >c
	cmp a b
	cmp a c
}

@test "a file that is no spool: what to run first, exit 1" {
	"$TOP/tests/make-hostile" >x.perf
	sym 1 x.perf
	holds "$(cat err)" "sp-unwind x.perf | sp-spool -o x.spool"
	sym 1 "$(command -v sp-sym)"
	holds "$(cat err)" "sp-sym --exe "
	: >nothing
	sym 1 nothing
	holds "$(cat err)" "the file is empty"
	sym 1 /no/such/file
	sym 1 /
}

@test "a cut spool: what there is, the complaint, exit 3" {
	head -c "$(($(stat -c %s "$HOSTILE") - 10))" "$HOSTILE" >cut.spool
	for format in $FORMATS; do
		sym 3 -f "$format" cut.spool
		holds "$(cat err)" "sp-sym: cut.spool: "
	done
	sym 3 -f stats-json cut.spool
	python3 -c '
import json
stats = json.load(open("out"))
assert stats["state"] != "whole" and stats["complaint"], stats
assert all(type(stats[name]) is int for name in ("sample_events", "samples", "lost_events")), stats'
}

@test "--follow: waits for a spool to begin, shows it while it grows, ends with the recording" {
	sp-sym --follow -f stats-json -o now.json live.spool 2>log &
	local watcher=$!
	mkfifo in
	{ sp-spool -q -o live.spool <in; } &
	local spooler=$!
	exec 7>in
	"$SP_PROG/stream" samples=1000 stacks=10 depth=5 >s
	head -c "$(($(stat -c %s s) / 2))" s >&7
	await test -s now.json
	n=$(python3 -c 'import json; print(json.load(open("now.json"))["samples"])')
	[ "$n" -gt 0 ] && [ "$n" -lt 1000 ] || fail "$n samples while it grows"
	tail -c "+$(($(stat -c %s s) / 2 + 1))" s >&7
	exec 7>&-
	wait $spooler
	wait $watcher || fail "exit $? at the end: $(cat log)"
	equal "$(python3 -c 'import json; print(json.load(open("now.json"))["samples"])')" 1000 "samples at the end"
	run sp-sym --follow - </dev/null
	equal "$status" 2 "without a name"
}

@test "options: what does not exist is refused by name" {
	sym 2 -f nonsense "$HOSTILE"
	holds "$(cat err)" "there is no 'nonsense'; there are top, tree, text, raw, folded, flamegraph"
	sym 2 --reverse -f pprof "$HOSTILE"
	holds "$(cat err)" "--reverse has no meaning for --format=pprof"
	sym 2 --function main -f raw "$HOSTILE"
	sym 2 --pid 1 -f stats "$HOSTILE"
	sym 2 --kernel --user "$HOSTILE"
	sym 2 --time 5 "$HOSTILE"
	sym 2 --pid x "$HOSTILE"
	sym 2 "$HOSTILE" more.spool
	# Options may stand behind the file.
	sym 0 "$HOSTILE" -f folded -g none
	equal "$(total <out)" 601 samples
}

@test "--require: exit 1 when too few frames have names" {
	sym 0 --require=10% "$HOSTILE" --perf-maps=any
	sym 1 --require 99 "$HOSTILE" --perf-maps=any
	holds "$(cat err)" "of the frames have names, less than the 99 % required"
	[ -s out ]
}

@test "top: fits the width, colours only on a terminal, NO_COLOR" {
	for width in 40 70 100 200; do
		sym 0 --width $width -n 0 --perf-maps=any "$HOSTILE"
		# The first line of each event is prose.
		grep -v ' samples of ' out | python3 -c '
import sys, unicodedata
wide = max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in l.rstrip("\n")) for l in sys.stdin)
assert wide <= int(sys.argv[1]), wide' $width
	done
	grep -q $'\033' out && fail "colours in a pipe"
	on_tty() {
		TERM=xterm python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' sp-sym -n 5 "$HOSTILE"
	}
	holds "$(on_tty)" $'\033['
	NO_COLOR=1 on_tty >plain
	grep -q $'\033' plain && fail "colours in spite of NO_COLOR"
	equal "$(sed -n 's/ of cpu-clock.*//p' plain | head -n 1)" "541 samples"
}

@test "top: self and total by value; the tree's root is everything" {
	profile p.spool -- "$SP_PROG/chain-pie" 300
	n=$(stat_of p.spool samples)
	sym 0 p.spool
	equal "$(head -n 1 out | cut -d' ' -f1)" "$n" samples
	awk '$4 == "main" { found = ($2 > 95) } END { exit !found }' out
	# The sum of self is all.
	equal "$(sp-sym -n 0 p.spool | awk 'NR > 3 { n += $3 } END { print n }')" "$n" self
	sym 0 -f tree p.spool
	awk 'NR == 4 { exit !($1 == 100) }' out
}

@test "binary formats are not written to a terminal" {
	for format in pprof firefox otlp; do
		python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' sp-sym -f $format "$HOSTILE" >out && fail "it was"
		holds "$(cat out)" "cannot write binary data to a terminal: use -o FILE, or a pipe"
	done
}

@test "diff: what got slower, in shares of each one's own total" {
	"$SP_PROG/stream" samples=1000 stacks=1 depth=3 threads=1 | sp-spool -q -o a.spool
	"$SP_PROG/stream" samples=4000 stacks=4 depth=3 threads=1 | sp-spool -q -o b.spool
	sym 0 --diff a.spool b.spool
	# The one leaf had everything, and has a quarter; the three new ones have the rest.
	equal "$(grep -c '^before: 1000 samples\|^now:    4000 samples' out)" 2 heads
	python3 -c '
import collections, subprocess
def leaves(spool):
    lines = subprocess.run(["sp-sym", "-f", "folded", "-g", "none", spool], capture_output=True, text=True, check=True)
    c = collections.Counter()
    for line in lines.stdout.splitlines():
        stack, _, n = line.rpartition(" ")
        c[stack.split(";")[-1]] += int(n)
    return {k: 100 * v / sum(c.values()) for k, v in c.items()}
old, new = leaves("a.spool"), leaves("b.spool")
wanted = {k: "%.2f" % (new.get(k, 0) - old.get(k, 0)) for k in old.keys() | new.keys()}
rows = [line.split() for line in open("out") if line[:9].strip(" ~")[:1] in "+-" and len(line.split()) > 4]
got = {r[4]: r[0].strip("~+") for r in rows if float(r[0].strip("~+"))}
assert got == wanted, (got, wanted)
halves = open("out").read()
assert halves.index("Slower") < halves.index("Faster"), halves'
	# Equal recordings have no difference.
	sym 0 -f diff a.spool a.spool
	holds "$(cat out)" "Nothing got slower."
	sym 2 -f diff a.spool
	holds "$(cat err)" "needs two spools"
	sym 2 --diff a.spool -f folded b.spool
	sym 1 --diff no-such.spool b.spool
	head -c "$(($(stat -c %s a.spool) - 10))" a.spool >cut.spool
	sym 3 --diff cut.spool b.spool
	holds "$(cat err)" "sp-sym: cut.spool: "
}

@test "lines: each line of a source file with its share" {
	profile p.spool -- "$SP_PROG/chain-pie" 300
	sym 0 --file chain.c p.spool
	# The whole file is there, each line once, as it is (tabs are blanks).
	source=$TOP/tests/prog/chain.c
	equal "$(sed -n 's/^.\{16\} *\([0-9]\{1,6\}\)\(  .*\)\?$/\1/p' out | tail -n +1 | wc -l)" "$(wc -l <"$source")" lines
	# The sum of self is what json has for that file.
	sp-sym -f json p.spool | python3 -c '
import json, sys
p = json.load(sys.stdin)
n = 0
for s in p["samples"]:
    level = p["frames"][p["stacks"][s[3]][0]]["levels"][0]
    file = level.get("file") or p["functions"][level["function"]]["file"] or ""
    n += bool(file.endswith("chain.c") and level["line"])
share = sum(float(l[:8]) for l in open("out") if l[:8].strip().replace(".", "").isdigit())
assert abs(share - 100 * n / len(p["samples"])) < 1, (share, n)'
	sym 0 -f lines --path-map="$TOP=/nowhere" p.spool
	holds "$(cat out)" "(not found: --path-map=OLD=NEW says where it is)"
	sym 0 --file nosuch.c p.spool
	holds "$(cat out)" "No sample has a line of that file."
	sym 2 --file chain.c -f top2 p.spool
}

@test "jsonl: equal stacks have equal ids everywhere, samples keep their numbers" {
	"$SP_PROG/stream" samples=300 stacks=7 depth=5 threads=2 boot=a host=one | sp-spool -q -o a.spool
	"$SP_PROG/stream" samples=300 stacks=7 depth=5 threads=2 boot=a host=one | sp-spool -q -o again.spool
	"$SP_PROG/stream" samples=900 stacks=9 depth=5 threads=3 boot=b host=two start=5000000000000 | sp-spool -q -o b.spool
	for s in a again b; do
		sp-sym -f jsonl $s.spool >$s.samples
		sp-sym -f jsonl --table=stacks $s.spool >$s.stacks
	done
	cmp a.samples again.samples
	cmp a.stacks again.stacks
	sp-sym -f jsonl --time 0.1.. a.spool >part.samples
	python3 -c '
import json
def rows(name): return [json.loads(line) for line in open(name)]
a, b, part = rows("a.samples"), rows("b.samples"), rows("part.samples")
assert [r["seq"] for r in a] == list(range(300))
assert all(r in a for r in part) and 0 < len(part) < 299, len(part)
assert len({r["spool_id"] for r in a}) == 1 and a[0]["spool_id"] != b[0]["spool_id"]
assert {r["host"] for r in a} == {"one"} and {r["host"] for r in b} == {"two"}
sa, sb = ({s["stack_id"]: s for s in rows(x)} for x in ("a.stacks", "b.stacks"))
assert len(sa) == 7 and len(sb) == 9 and all(sb[k] == sa[k] for k in sa), (len(sa), len(sb))'
	sym 2 --table=stacks -f folded a.spool
}

@test "firefox, speedscope: many samples of many threads keep their times, stacks and order" {
	"$SP_PROG/stream" samples=150000 stacks=900 depth=5 threads=7 own=300 | sp-spool -q -o a.spool
	sp-sym -q -f raw a.spool >raw
	sp-sym -q -f firefox -o p.json.gz a.spool
	sp-sym -q -f speedscope -o p.speedscope a.spool
	# Without a folder for what is put aside: the same.
	TMPDIR=/no/such/folder sp-sym -q -f firefox a.spool | cmp - p.json.gz
	python3 - <<-'EOF'
		import gzip, itertools, json
		want, first = {}, None
		for block in open("raw").read().split("\n\n")[:-1]:
		    head, *frames = block.split("\n")
		    _, time, pid, tid, _, weight = head.split(" ")
		    first = first if first is not None else int(time)
		    offsets = tuple(int(f.split(" ")[2], 16) for f in frames)
		    want.setdefault(int(tid), []).append(((int(time) - first) / 1e6, offsets, int(weight)))
		p = json.load(gzip.open("p.json.gz"))
		assert len(p["threads"]) == len(want) == 7
		for t in p["threads"]:
		    prefix, frame, address = t["stackTable"]["prefix"], t["stackTable"]["frame"], t["frameTable"]["address"]
		    def frames_of(at):
		        while at is not None:
		            yield address[frame[at]]
		            at = prefix[at]
		    known = [tuple(frames_of(i)) for i in range(t["stackTable"]["length"])]
		    got = [(time, known[s]) for time, s in zip(t["samples"]["time"], t["samples"]["stack"])]
		    assert got == [x[:2] for x in want[t["tid"]]], t["tid"]
		s = json.load(open("p.speedscope"))
		for q in s["profiles"]:
		    runs = [list(g) for _, g in itertools.groupby(want[int(q["name"].split("/")[1])], key=lambda x: x[1])]
		    assert q["weights"] == [sum(x[2] for x in g) for g in runs], q["name"]
		    assert len(set(zip(map(tuple, q["samples"]), (g[0][1] for g in runs)))) == len({g[0][1] for g in runs})
	EOF
}

@test "stats: modules without names, with cause and cure" {
	sym 0 -f stats --perf-maps=none "$HOSTILE"
	holds "$(cat out)" "601 samples of cpu-clock, page-faults"
	holds "$(cat out)" "//anon"
	holds "$(cat out)" "cause: "
	holds "$(cat out)" "python -X perf"
	holds "$(cat out)" "truncated_frame_markers"
}

@test "pprof: the main binary is the first mapping, with its build-id" {
	profile p.spool -- "$SP_PROG/chain-pie" 200
	sym 0 -f pprof -o p.pb.gz p.spool
	id=$(readelf -nW "$SP_PROG/chain-pie" | sed -n 's/.*Build ID: //p')
	PYTHONPATH=$TOP/tests PYTHONDONTWRITEBYTECODE=1 python3 - "$id" <<-'X'
		import sys, views
		p = views.Pprof(open("p.pb.gz", "rb").read())
		first = p.mappings[1]
		assert p.strings[first[5]].endswith("/chain-pie"), p.strings[first[5]]
		assert p.strings[first[6]] == sys.argv[1], p.strings[first[6]]
		assert first[7] == first[8] == first[9] == 1, first
		assert p.period_type == ("cpu", "nanoseconds") and p.types[1] == p.period_type
		assert all(l["thread"] == "chain-pie" and l["pid"] == l["tid"] for _, _, l in p.samples)
	X
}

@test "--help, the man page and the completion know the same options" {
	sp-sym --help | grep -o -e '--[a-z][a-z-]*' | LC_ALL=C sort -u >options
	sed 's/\\-/-/g' "$TOP/sp-sym/sp-sym.1" >page
	while read -r option; do
		case $option in --stats) continue ;; esac
		grep -q -e "$option" page || fail "the man page lacks $option"
		grep -q -e "$option" "$TOP/sp-sym/sp-sym.bash" || fail "the completion lacks $option"
	done <options
	for format in diff $FORMATS; do
		holds "$(sp-sym --help)" "$format"
		grep -qx ".B $format" page || fail "the man page lacks $format"
		grep -q "[ \"]${format}[ \"]" "$TOP/sp-sym/sp-sym.bash" || fail "the completion lacks $format"
	done
}

@test "a binary rewritten in place, its time kept: refused by build-id; named again from its copy" {
	export HOME=$PWD # perf may have kept a copy of the program in ~/.debug
	cp "$SP_PROG/chain-pie" prog
	id=$(readelf -nW prog | sed -n 's/.*Build ID: //p')
	sp-capture -q -- ./prog 100 >s.perf
	perf buildid-list -f -i s.perf >list
	holds "$(cat list)" "$id $PWD/prog"
	sp-unwind -q <s.perf | sp-spool -q -o p.spool
	sym 0 -f folded p.spool
	cp out right
	holds "$(cat right)" ";hot "
	# Another program in the same inode, and no trace of that in its times.
	mkdir -p "dbg/.build-id/${id:0:2}"
	cp prog "dbg/.build-id/${id:0:2}/${id:2}.debug"
	time=$(stat -c %y prog)
	cat "$SP_PROG/templates" >prog
	touch -d "$time" prog
	sym 0 -f folded p.spool
	grep -q ";hot " out && fail "named by another program"
	holds "$(cat out)" "[prog+0x"
	sp-sym p.spool 2>log >/dev/null
	holds "$(cat log)" "of the frames have no names, most of them in $PWD/prog: $PWD/prog has another build-id"
	sym 0 -f stats p.spool
	holds "$(cat out)" "cause: $PWD/prog has another build-id: "
	sp-unwind <s.perf 2>log >/dev/null
	holds "$(cat log)" "not used: $PWD/prog has another build-id"
	# The original, found by its build-id: whole, and as a debug file.
	sym 0 -f folded --debug-dir dbg p.spool
	cmp out right
	sp-unwind -q --debug-dir dbg <s.perf | sp-spool -q -o again.spool
	sym 0 -f folded --debug-dir dbg again.spool
	cmp out right
	objcopy --only-keep-debug "$SP_PROG/chain-pie" "dbg/.build-id/${id:0:2}/${id:2}.debug"
	sym 0 -f folded --debug-dir dbg p.spool
	cmp out right
}

@test "--debug-dir: what is neither a folder nor a tarball is said, by both tools" {
	mkdir folder
	echo text >text
	mkfifo fifo
	touch packed
	tar cf tarball text
	for given in folder:"" tarball:"" nowhere:"cannot open nowhere: No such file or directory" \
		text:"text is neither a folder nor a tarball" packed:"packed is neither a folder nor a tarball" \
		fifo:"cannot read fifo: not a regular file"; do
		sym 0 -q --debug-dir="${given%%:*}" "$HOSTILE"
		"$TOP/tests/make-hostile" | sp-unwind -q --debug-dir="${given%%:*}" 2>log >/dev/null || true
		if [ "${given#*:}" ]; then
			holds "$(cat err)" "sp-sym: --debug-dir: ${given#*:}"
			holds "$(cat log)" "sp-unwind: --debug-dir: ${given#*:}"
		else
			equal "$(cat err log)" ""
		fi
	done
	sym 0 --debug-dir=tarball --exe "$SP_PROG/chain-pie" 0
	holds "$(cat err)" "--exe looks into folders only"
}

# The program of the next two tests has no build-id; named OPTION… wants the names of right.
named() { # OPTION…
	sym 0 -f folded "$@" p.spool
	cmp out right
}
unnamed() { # REASON OPTION…
	local reason=$1
	shift
	sym 0 -f folded "$@" p.spool
	grep -q ";hot " out && fail "named by another program"
	holds "$(cat out)" "[prog+0x"
	sym 0 -f stats "$@" p.spool
	holds "$(cat out)" "cause: $reason"
}
plain_program() { # NAME OPTION…
	gcc -O2 -g -Wl,--build-id=none "${@:2}" -o "$1" "$TOP/tests/prog/chain.c"
	equal "$(readelf -nW "$1" | grep -c 'Build ID')" 0 "build-ids of $1"
}

@test "a program without build-id is known by its content: mode and times may change, copies stand anywhere" {
	plain_program prog
	sp-capture -q -- ./prog 100 >s.perf
	perf script -i s.perf >perf 2>errors
	holds "$(cat perf)" "($PWD/prog)"
	equal "$(cat errors)" "" "perf's complaints"
	sp-unwind -q <s.perf >u.perf
	sp-spool -q -o p.spool u.perf
	sym 0 -f folded p.spool
	cp out right
	holds "$(cat right)" ";main;alpha;beta;gamma_fn;hot "
	# Neither changes a byte; a copy in its place is another inode.
	chmod 700 prog
	touch prog
	named
	cp prog again && mv again prog
	named
	sp-unwind -q <s.perf >again
	cmp u.perf again
	# Copies, and nothing at the recorded path.
	mkdir -p "map" "root$PWD"
	cp prog map/prog
	cp prog "root$PWD/prog"
	rm prog
	named --path-map "$PWD=$PWD/map"
	named --symfs "$PWD/root"
	named --debug-dir "$PWD/root"
	for where in --path-map="$PWD=$PWD/map" --symfs="$PWD/root" --debug-dir="$PWD/root"; do
		sp-unwind -q "$where" <s.perf >again
		cmp u.perf again
	done
	unnamed "no such file"
	# Spools that are made of this one keep it.
	mv p.spool first.spool
	sp-spool -q -o p.spool first.spool
	named --path-map "$PWD=$PWD/map"
	# So does a perf.data file, on its way in and out.
	cp map/prog prog
	sp-capture -q -o s.data -- ./prog 100
	sp-unwind -q -o u.data s.data
	sp-spool -q -o p.spool u.data
	sym 0 -f folded p.spool
	cp out right
	rm prog
	unnamed "no such file"
	named --path-map "$PWD=$PWD/map"
}

@test "another program in the place of one without build-id is refused, whatever its times and inode" {
	plain_program prog
	cp prog kept
	sp-capture -q -- ./prog 100 >s.perf
	sp-unwind -q <s.perf | sp-spool -q -o p.spool
	sym 0 -f folded p.spool
	cp out right
	plain_program other -O1
	# In place, with the times of the old one.
	time=$(stat -c %y prog)
	cat other >prog
	touch -d "$time" prog
	unnamed "$PWD/prog has another content than the recorded file"
	sp-unwind <s.perf 2>log >/dev/null
	holds "$(cat log)" "not used: $PWD/prog has another content than the recorded file"
	# As large as the old one, one byte aside.
	cat kept >prog
	printf x | dd of=prog bs=1 seek=$(($(stat -c %s kept) / 2)) conv=notrunc status=none
	cmp -s kept prog && fail "nothing was changed"
	unnamed "$PWD/prog has another content than the recorded file"
	# Replaced, and gone.
	cp other new && mv new prog
	unnamed "$PWD/prog has another content than the recorded file"
	rm prog
	unnamed "no such file"
	# A copy that is chosen is refused too; the right one is found behind a wrong one.
	mkdir map dbg
	cp other map/prog
	unnamed "$PWD/map/prog has another content than the recorded file" --path-map "$PWD=$PWD/map"
	mkdir -p "dbg$PWD"
	cp kept "dbg$PWD/prog"
	named --path-map "$PWD=$PWD/map" --debug-dir "$PWD/dbg"
	cp other prog
	named --path-map "$PWD=$PWD/map" --debug-dir "$PWD/dbg"
	# And in place again, as it was.
	cat kept >prog
	named
}

@test "two builds in turn at one path, in one recording: each by its own content" {
	plain_program one
	sed 's/gamma_fn/second_fn/g' "$TOP/tests/prog/chain.c" >second.c
	gcc -O2 -g -I "$TOP/tests/prog" -Wl,--build-id=none -o two second.c
	# The second gets the number of the first one's inode on most file systems.
	sp-capture -q -- sh -c 'cp one prog && ./prog 100; rm prog; cp two prog && ./prog 100; exit 0' |
		sp-unwind -q | sp-spool -q -o p.spool
	sym 0 -f folded p.spool
	equal "$(grep -c ';main;alpha;beta;second_fn;hot ' out)" 1 "stacks of the second"
	run ! grep -E '^prog;.*;gamma_fn' out
	mkdir first
	mv one first/prog
	sym 0 -f folded --path-map "$PWD=$PWD/first" p.spool
	equal "$(grep -c ';main;alpha;beta;gamma_fn;hot ' out)" 1 "stacks of the first"
	equal "$(grep -c ';main;alpha;beta;second_fn;hot ' out)" 1 "stacks of the second"
	# In the stream, with the number of one inode and no file left.
	cp first/prog one
	sp-capture -q --embed=all -- sh -c 'cp one prog && ./prog 100; rm prog; cp two prog && ./prog 100; rm prog one two; exit 0' |
		sp-unwind -q | sp-spool -q -o p.spool
	sym 0 -f folded p.spool
	equal "$(grep -c ';main;alpha;beta;gamma_fn;hot ' out)" 1 "embedded stacks of the first"
	equal "$(grep -c ';main;alpha;beta;second_fn;hot ' out)" 1 "embedded stacks of the second"
}

# debuginfod_at COMMAND…: COMMAND beside a real server of ./files, on a loopback of its own.
debuginfod_at() {
	# shellcheck disable=SC2016
	unshare -Urn bash -c '
		ip link set lo up
		debuginfod -F -p 18002 -d :memory: -t 0 -g 0 files >server.log 2>&1 &
		server=$!
		until curl -sf http://127.0.0.1:18002/metrics | grep -q "^found_debuginfo_total"; do
			kill -0 $server || exit 99
		done
		export DEBUGINFOD_URLS=http://127.0.0.1:18002/
		"$@"
		status=$?
		curl -s http://127.0.0.1:18002/metrics >metrics
		kill $server
		exit $status' - "$@"
}

@test "debuginfod: a stripped program is named by a server, then by the cache, or not at all" {
	mkdir files cache
	objcopy --only-keep-debug "$SP_PROG/chain-pie" files/chain.debug
	strip -s -o chain "$SP_PROG/chain-pie"
	address=$(nm "$SP_PROG/chain-pie" | sed -n 's/ [tT] hot$//p')
	export STACKPULSE_DEBUGINFOD_CACHE_DIR=$PWD/cache/new
	sp-sym --exe "$SP_PROG/chain-pie" "$address" >right
	holds "$(cat right)" hot
	# Nobody is asked unless the variable says whom.
	unset DEBUGINFOD_URLS
	sp-sym --exe chain "$address" 2>/dev/null >out
	grep -q hot out && fail "named by nobody"
	debuginfod_at sp-sym --debuginfod=never --exe chain "$address" >out 2>log
	grep -q hot out && fail "asked though never was said"
	grep -q 'http_responses_total.*buildid' metrics && fail "asked though never was said"
	debuginfod_at sp-sym --exe chain "$address" >out 2>log || fail "$(cat log server.log)"
	cmp out right
	# The server is gone; what it sent is not.
	sp-sym --debuginfod=cache --exe chain "$address" >out
	cmp out right
	# A file in the cache that is another one is not used.
	id=$(readelf -nW chain | sed -n 's/.*Build ID: //p')
	chmod u+w "cache/new/$id/debuginfo"
	objcopy --only-keep-debug "$SP_PROG/templates" "cache/new/$id/debuginfo"
	sp-sym --debuginfod=cache --exe chain "$address" >out 2>/dev/null
	grep -q hot out && fail "named by another program"
	true
}

@test "debuginfod: a terminal sees how much of a file has come, and then none of that" {
	objcopy --only-keep-debug "$SP_PROG/templates" templates.debug
	strip -s -o prog "$SP_PROG/templates"
	sp-capture -q -- ./prog 100 | sp-unwind -q | sp-spool -q -o p.spool
	sp-sym -q -f folded --debug-dir=none p.spool >before
	export STACKPULSE_DEBUGINFOD_CACHE_DIR=$PWD/cache
	# A server that sends the second half of the file when the terminal has shown the first.
	python3 - >out <<-'X'
		import http.server, os, pty, re, select, subprocess, sys, threading
		data, seen = open("templates.debug", "rb").read(), threading.Event()
		want = re.search(r"Build ID: (\w+)", subprocess.check_output(["readelf", "-nW", "prog"], text=True)).group(1)
		class Server(http.server.BaseHTTPRequestHandler):
		    def do_GET(self):
		        if want not in self.path:
		            self.send_error(404)
		            return
		        self.send_response(200)
		        self.send_header("Content-Length", str(len(data)))
		        self.end_headers()
		        self.wfile.write(data[:len(data) // 2])
		        self.wfile.flush()
		        seen.wait(20)
		        self.wfile.write(data[len(data) // 2:])
		    def log_message(self, *args):
		        pass
		server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
		threading.Thread(target=server.serve_forever, daemon=True).start()
		env = dict(os.environ, DEBUGINFOD_URLS="http://127.0.0.1:%d/" % server.server_port)
		ours, theirs = pty.openpty()
		p = subprocess.Popen(["sp-sym", "-f", "folded", "-o", "after", "p.spool"], env=env, stderr=theirs)
		os.close(theirs)
		text = b""
		while True:
		    try:
		        got = os.read(ours, 65536)
		    except OSError:
		        break
		    if not got:
		        break
		    text += got
		    if b"fetching" in text:
		        seen.set()
		assert p.wait() == 0
		assert re.search(rb"sp-sym: fetching the debug file of build-id %s: [0-9.]+ of [0-9.]+ MB" % want[:12].encode(), text), text
		assert text.endswith(b"\r\x1b[K") or b"\r\x1b[K" in text.rsplit(b"MB", 1)[1], text
	X
	grep -q 'shop::' after || fail "not named: $(cat after)"
	! grep -q 'shop::' before
}

@test "debuginfod: a server that says nothing is given up, in one line" {
	strip -s -o chain "$SP_PROG/chain-pie"
	sp-capture -q -- ./chain 50 | sp-unwind -q | sp-spool -q -o p.spool
	export STACKPULSE_DEBUGINFOD_CACHE_DIR=$PWD/cache
	# It takes the connection and never answers.
	python3 - p.spool >seconds 2>log <<-'X'
		import os, socket, subprocess, sys, time
		s = socket.socket()
		s.bind(("127.0.0.1", 0))
		s.listen(64)
		env = dict(os.environ, DEBUGINFOD_URLS="http://127.0.0.1:%d/" % s.getsockname()[1])
		begin = time.monotonic()
		subprocess.run(["sp-sym", "-f", "folded", sys.argv[1]], env=env, check=True, stdout=subprocess.DEVNULL)
		assert time.monotonic() - begin < 20  # it ends at all; make bench measures
		print(time.monotonic() - begin)
	X
	equal "$(grep -c "debuginfod at .*: no answer in time" log)" 1
}

@test "--perf-maps: a list of processes has their names and no others" {
	sym 0 -f folded --perf-maps=any "$HOSTILE"
	cp out any
	sym 0 -f folded --perf-maps=none "$HOSTILE"
	cp out none
	cmp -s any none && fail "there is no map to tell them apart"
	pids=$(sp-sym -f raw "$HOSTILE" | awk '$1 == "sample" && $3 > 0 { print $3 }' | sort -un | paste -sd,)
	sym 0 -f folded --perf-maps="$pids" "$HOSTILE"
	cmp out any
	sym 0 -f folded --perf-maps=999999 "$HOSTILE"
	cmp out none
	sym 2 --perf-maps=1,x "$HOSTILE"
}

# asked FILE [OPTION…]: the answers for the code of a program, cold or from the cache.
asked() {
	local file=$1
	shift
	# shellcheck disable=SC2046
	sp-sym --exe "$file" "$@" $(nm --defined-only "$file" | awk '$2 ~ /[tTwW]/ { print "0x" $1 }')
}

# A cache of its own, and in it the answers for ./prog; files that were written just now are not kept.
cached() {
	asked ./prog >/dev/null && [ -n "$(find "$XDG_CACHE_HOME" -name '*.memo')" ]
}

@test "cache: the same answers without one, with an empty and with a full one; --no-cache keeps nothing" {
	export XDG_CACHE_HOME=$PWD/cache
	cp "$SP_PROG/templates" prog
	asked ./prog --no-cache >want
	holds "$(cat want)" "templates.cc:"
	[ ! -e cache ] || fail "--no-cache made a folder"
	asked ./prog >out
	cmp out want
	await cached
	asked ./prog >out
	cmp out want
	sp-sym --exe ./prog 0x1000 0x1001 0x1002 --no-cache >want
	sp-sym --exe ./prog 0x1000 0x1001 0x1002 >out
	cmp out want
	sp-sym --exe ./prog 0x1002 0x1000 0x1001 >out
	equal "$(sort out)" "$(sort want)"
	asked ./prog --no-cache >want
	asked ./prog >out
	cmp out want
	# What asks for other names has a file of its own.
	sp-capture -q -- ./prog 50 2>/dev/null | sp-unwind -q | sp-spool -q -o p.spool
	for how in "" --no-inline --no-demangle; do
		for format in folded lines text; do
			# shellcheck disable=SC2086
			sp-sym -q --no-cache $how -f $format p.spool >want
			# shellcheck disable=SC2086
			sp-sym -q $how -f $format p.spool >cold
			# shellcheck disable=SC2086
			sp-sym -q $how -f $format p.spool >warm
			cmp cold want
			cmp warm want
		done
	done
	equal "$(find cache -name '*.tmp')" ""
	equal "$(stat -c %a cache/stackpulse/symbols)" 700
}

@test "cache: what is damaged or foreign in it is passed over and made again" {
	export XDG_CACHE_HOME=$PWD/cache
	cp "$SP_PROG/templates" prog
	asked ./prog --no-cache >want
	await cached
	file=$(find cache -name '*.memo')
	cp "$file" whole
	for size in 0 1 31 32 100 "$(($(stat -c %s whole) - 1))"; do
		head -c "$size" whole >"$file"
		asked ./prog >out
		cmp out want
		cmp "$file" whole
	done
	tr f g <whole >"$file"
	asked ./prog >out
	cmp out want
	cmp "$file" whole
	cp whole other
	rm "$file"
	ln -s "$PWD/other" "$file"
	asked ./prog >out
	cmp out want
	[ ! -L "$file" ] || fail "the link is still there"
	cmp "$file" whole
	chmod 777 cache/stackpulse/symbols
	tr f g <whole >"$file"
	asked ./prog >out
	cmp out want
	cmp -s "$file" whole && fail "a folder that all may write to was used"
	return 0
}

@test "cache: a program built anew has its own answers" {
	export XDG_CACHE_HOME=$PWD/cache
	cp "$SP_PROG/chain-pie" prog
	await cached
	cat "$SP_PROG/templates" >prog
	asked ./prog --no-cache >want
	asked ./prog >out
	cmp out want
	# The same build-id, but for the table of symbols: stripping keeps it.
	rm -r cache
	cp "$SP_PROG/chain-pie" prog
	await cached
	strip -o stripped prog
	asked prog --no-cache | grep '^0x' >addresses
	sp-sym --exe stripped --no-cache <addresses >want
	cp stripped prog
	sp-sym --exe prog <addresses >out
	cmp out want
}

@test "cache: many at once leave a whole file" {
	export XDG_CACHE_HOME=$PWD/cache
	cp "$SP_PROG/templates" prog
	asked ./prog --no-cache >want
	await cached
	file=$(find cache -name '*.memo')
	cp "$file" whole
	rm "$file"
	for i in 1 2 3 4 5 6; do
		asked ./prog >"out$i" &
	done
	wait
	for i in 1 2 3 4 5 6; do
		cmp "out$i" want
	done
	cmp "$file" whole
	equal "$(find cache -type f | wc -l)" 1
}

# A symbolizer's command that writes down what it is asked, and names every address after itself.
own_symbolizer() {
	cat >own.py <<-'X'
		import sys
		for line in sys.stdin:
		    with open("asked", "a") as f:
		        f.write(line)
		    address = line.split()[-1]
		    print(f"{address}\ninner;of {address}\nin.c:7\nouter_{address}\n/src/out.c:9:3\n", flush=True)
	X
}

@test "--symbolizer: asked about identified files, each address once, as it is linked" {
	profile p.spool -- "$SP_PROG/templates" 300
	own_symbolizer
	sp-sym --symbolizer="exec python3 own.py" -f folded p.spool >out 2>log
	equal "$(cat log)" ""
	equal "$(sort asked | uniq -d)" "" "addresses that were asked twice"
	holds "$(cat asked)" "CODE \"$SP_PROG/templates\" 0x"
	local main
	main=$(nm -S "$SP_PROG/templates" | awk '$4 == "main" { print $1, $2 }')
	# Some of them lie in main, and carry its place in the names that came back.
	python3 - "$SP_PROG/templates" $main <<-'X'
		import sys
		start, size = int(sys.argv[2], 16), int(sys.argv[3], 16)
		asked = [l.split('"') for l in open("asked") if sys.argv[1] in l]
		inside = [a[2].strip() for a in asked if start <= int(a[2], 16) < start + size]
		assert inside, (asked, start, size)
		folded = open("out").read()
		assert f"outer_{inside[0]};inner:of {inside[0]}_[i]" in folded, folded[:600]
	X
	sp-sym --symbolizer="python3 own.py" --no-inline -f json p.spool >out
	holds "$(cat out)" '"outer_0x'
	[[ $(cat out) != *'"inner;of'* ]] || fail "inlined levels with --no-inline"
	# Formats without names start nothing.
	rm asked
	sp-sym --symbolizer="python3 own.py" -f raw p.spool >/dev/null
	[ ! -e asked ] || fail "raw has no names to ask for"
	run sp-sym --symbolizer= p.spool
	equal "$status" 2
}

@test "--symbolizer=llvm-symbolizer: the functions and lines that we find too" {
	profile p.spool -- "$SP_PROG/templates" 300
	sp-sym --user --module=templates -f json p.spool >ours
	sp-sym --symbolizer=llvm-symbolizer --user --module=templates -f json p.spool >theirs 2>log
	equal "$(cat log)" ""
	python3 - <<-'X'
		import json
		def lines(name):
		    p = json.load(open(name))
		    out = {}
		    for f in p["frames"]:
		        if f["module"] is None or "templates" not in p["modules"][f["module"]]["path"]:
		            continue
		        out[f["address"]] = [(l["line"], l["inlined"]) for l in f["levels"]]
		    return out
		ours, theirs = lines("ours"), lines("theirs")
		assert len(ours) > 3 and ours.keys() == theirs.keys()
		same = sum(ours[a] == theirs[a] for a in ours)
		# Where two lines begin at an address the two may choose differently.
		assert same >= 0.8 * len(ours), [(a, ours[a], theirs[a]) for a in ours if ours[a] != theirs[a]]
	X
	sp-sym --symbolizer="llvm-symbolizer --addresses" -f folded p.spool >with 2>log
	equal "$(cat log)" ""
	sp-sym --symbolizer=llvm-symbolizer -f folded p.spool | cmp - with
	sp-sym --symbolizer="llvm-symbolizer --verbose" -f folded p.spool >verbose 2>log
	equal "$(cat log)" ""
	cmp with verbose
	sp-sym -f text p.spool >ours.text
	sp-sym --symbolizer="llvm-symbolizer --verbose" -f text p.spool >theirs.text
	python3 - <<-'X'
		import re
		def offsets(name):
		    return re.findall(r"^\s+([0-9a-f]+) .*?\+(0x[0-9a-f]+) \(\S*templates\)$", open(name).read(), re.M)
		ours, theirs = offsets("ours.text"), offsets("theirs.text")
		assert len(ours) > 100 and len(set(o for _, o in ours)) > 3
		assert ours == theirs, [p for p in zip(ours, theirs) if p[0] != p[1]][:5]
	X
}

@test "--symbolizer: a command that is dead, silent, babbling or wrong is given up in one line" {
	profile p.spool -- "$SP_PROG/templates" 200
	sp-sym -f folded p.spool >want
	local command
	for command in false no-such-command yes "echo hello; cat >/dev/null" "head -c 3000000 /dev/zero" "kill -9 \$\$" \
		"read -r q; echo f; echo x.c:1; echo; echo; cat >/dev/null" "read -r q; printf '0x1\nf\nx.c:1\n\n'; cat >/dev/null" \
		"exec >&-; cat >/dev/null" "sleep 86399"; do
		run --separate-stderr sp-sym --symbolizer="$command" -f folded p.spool
		equal "$status" 0 "$command"
		# What was answered before it went wrong may stand; nothing is lost.
		equal "$(awk '{ n += $NF } END { print n }' <<<"$output")" "$(awk '{ n += $NF } END { print n }' want)" "$command: samples"
		# shellcheck disable=SC2154 # run sets stderr
		equal "$(grep -c "is not asked any more" <<<"$stderr")" 1 "$command: $stderr"
		[[ $command == read* ]] || diff want <(echo "$output") || fail "$command"
	done
	gone() { ! pgrep -f 'sleep 8639[9]'; }
	await gone
}

@test "code that a JIT replaced has the name of its time, embedded or from the jitdump" {
	profile p.spool -- "$SP_PROG/rejit" 400
	cat >check.py <<-'X'
		import glob, json, struct, sys
		dump = open(sys.argv[2], "rb").read()
		at, loads = struct.unpack_from("<I", dump, 8)[0], []
		while at + 16 <= len(dump):
		    kind, size, time = struct.unpack_from("<IIQ", dump, at)
		    loads.append(time)
		    at += size
		p = json.load(open(sys.argv[1]))
		time, stack = (p["sample_columns"].index(c) for c in ("time_ns", "stack"))
		n = {"before_rejit": 0, "after_rejit": 0}
		for s in p["samples"]:
		    names = {p["functions"][l["function"]]["name"] for f in p["stacks"][s[stack]] for l in p["frames"][f]["levels"]}
		    for name in n:
		        if name in names:
		            n[name] += 1
		            assert (s[time] >= loads[1]) == (name == "after_rejit"), (s, loads)
		assert min(n.values()) > 0.2 * len(p["samples"]), n
	X
	sp-sym -f json p.spool >all.json
	mv jit-*.dump moved.dump
	sp-sym -f json p.spool | cmp - all.json || fail "not the same without the file"
	python3 check.py all.json moved.dump
	# Every sample again, in its order: the row of its time.
	sp-sym -f text p.spool | grep -oE '(before|after)_rejit' | uniq >order
	equal "$(cat order)" "$(printf 'before_rejit\nafter_rejit')"
	sp-sym -f folded p.spool | grep -c rejit_ || fail "no folded line"
	views same p.spool
}
