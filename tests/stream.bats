#!/usr/bin/env bats
# common/perf against the real perf: what perf records goes record by record through our reader and
# our writer, and perf must print the copy as it prints the original, byte by byte.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export PERF_CONFIG=/dev/null HOME=$BATS_TEST_TMPDIR PERF_BUILDID_DIR=$BATS_TEST_TMPDIR
	copy=$SP_BUILD/tests/tool/perf-copy
	fields=()
}

# The program's own output goes elsewhere than a stream's.
record() { # OUTPUT OPTIONS…
	local out=$1
	shift
	# shellcheck disable=SC2016 # the inner shell's argument
	perf record -q -F 999 -e cpu-clock "$@" -o "$out" -- \
		sh -c 'exec "$0" 60 >/dev/null' "$SP_PROG/chain-pie" 2>>perf.log
}

# Of a whole machine without names: the files that perf takes them from come and go.
print() { # INPUT
	perf script --no-inline "${fields[@]}" -i "$1" --show-mmap-events --show-task-events --show-lost-events 2>>perf.log
}

same() { # WANTED GOT WHAT
	[ -s "$1" ] || fail "perf printed nothing of the original"
	cmp "$1" "$2" || { diff "$1" "$2" | head -20; fail "$3 differs"; }
}

# A perf.data file: its copies as a file and as a stream; a stream: its copies as both.
copies_alike() { # OPTIONS…
	record x.data "$@"
	print x.data >want
	"$copy" -f x.data >y.data
	print y.data >got
	same want got "the file copied to a file"
	"$copy" x.data | print - >got
	same want got "the file copied to a stream"
	record - "$@" >x.pipe
	print - <x.pipe >want
	"$copy" <x.pipe | print - >got
	same want got "the stream copied to a stream"
	"$copy" -f x.pipe >y.data
	print y.data >got
	same want got "the stream copied to a file"
}

# bats test_tags=smoke
@test "perf prints our copy of stacks with registers alike" { copies_alike --call-graph dwarf,8192; }
@test "perf prints our copy of frame-pointer chains alike" { copies_alike -g; }
@test "perf prints our copy of compressed records alike" { copies_alike -z --call-graph dwarf,4096; }
@test "perf prints our copy of all CPUs' records alike" { fields=(-F "-symoff,-sym") && copies_alike -a -g; }
@test "perf prints our copy of addresses and physical addresses alike" { copies_alike -d --phys-data; }
@test "perf prints our copy of weights alike" { copies_alike -W -g; }
@test "perf prints our copy of interrupt registers alike" { copies_alike --intr-regs=ax,bx,sp --call-graph dwarf,4096; }
@test "perf prints our copy of context switches and namespaces alike" { copies_alike --switch-events --namespaces; }
@test "perf prints our copy of cgroups alike" { copies_alike --all-cgroups -g; }
@test "perf prints our copy of counter values alike" { copies_alike -s -g; }
@test "perf prints our copy of two events alike" { copies_alike -e page-faults --call-graph dwarf,4096; }
@test "perf prints our copy of another clock's times alike" { copies_alike -k mono -g; }
@test "perf prints our copy of build-ids in mappings alike" { copies_alike --buildid-mmap -g; }

@test "what is written in time order needs no rounds: every record of the copy is in order" {
	# Three times at most: the host may stop a CPU between a record's time and its writing.
	for _ in 1 2 3; do
		record x.data -a -g
		"$copy" x.data >x.pipe
		"$copy" -s x.pipe >y.pipe
		cmp x.pipe y.pipe && return
	done
	fail "not in order, three times"
}

@test "perf report and perf inject read our copy" {
	record x.data --call-graph dwarf,4096
	"$copy" x.data >y.pipe
	"$copy" -f x.data >y.data
	perf report --no-inline --no-children --stdio -g none -i x.data 2>/dev/null | grep -v '^#' >want
	perf report --no-inline --no-children --stdio -g none -i - <y.pipe 2>/dev/null | grep -v '^#' >got
	same want got "the report of the stream"
	perf report --no-inline --no-children --stdio -g none -i y.data 2>/dev/null | grep -v '^#' >got
	same want got "the report of the file"
	perf inject -b -i y.data -o z.data
	print z.data >got
	print x.data >want
	same want got "what perf inject makes of it"
}

@test "perf reads the features of a copied file" {
	record x.data -g
	"$copy" -f x.data >y.data
	perf report --header-only -i x.data | grep -E '^# (hostname|os release|arch|nrcpus|cpudesc|cmdline|event|total memory)' >want
	perf report --header-only -i y.data | grep -E '^# (hostname|os release|arch|nrcpus|cpudesc|cmdline|event|total memory)' >got
	same want got "the header"
	perf buildid-list -i x.data >want
	perf buildid-list -i y.data >got
	same want got "the list of build-ids"
}

@test "a perf.data file on a pipe is read as far as it goes" {
	record x.data --call-graph dwarf,4096
	print x.data >want
	# shellcheck disable=SC2002 # a pipe is the point
	cat x.data | "$copy" | print - >got
	same want got "the copy"
}

@test "a recording that was killed gives what it holds, and exit status 3" {
	record x.data -g
	want=$("$copy" -n x.data)
	holds "$want" 'state=whole'
	# the size that the header gives its data: eight bytes at 48
	printf '\0\0\0\0\0\0\0\0' | dd of=x.data bs=1 seek=48 conv=notrunc 2>/dev/null
	truncate -s -1 x.data
	run "$copy" -n x.data
	equal "$status" 3 'exit status'
	holds "$output" "${want%% *}"
}

@test "a cut stream gives what came before, and exit status 3" {
	record - -g >x.pipe
	head -c "$(($(stat -c %s x.pipe) - 3))" x.pipe >part
	run "$copy" -n part
	equal "$status" 3 'exit status'
	holds "$output" 'state=cut'
	holds "$output" 'ends inside a record, at offset'
}

@test "what is no recording is refused with what it looks like" {
	for what in "$copy:ELF file" /dev/null:empty "$TOP/Makefile:text" "$TOP:folder"; do
		run "$copy" -n "${what%:*}"
		equal "$status" 1 "exit status of ${what%:*}"
		holds "$output" "${what##*:}"
	done
	run "$copy" -n nowhere
	holds "$output" 'cannot open nowhere: No such file or directory'
}

# The corpus, where it is: ../shared beside the repository or its parent.
@test "recordings of many perfs give their true counts" {
	for corpus in "$TOP/../shared/corpus" "$TOP/../../shared/corpus" ''; do
		[ ! -e "$corpus/expected/counts.tsv" ] || break
	done
	[ -n "$corpus" ] || skip "no corpus of recordings beside the repository"
	bad=0 n=0
	while IFS=$'\t' read -r file samples lost lost_samples state _; do
		[ "$file" != file ] || continue
		got=$("$copy" -n "$corpus/$file" 2>/dev/null) || :
		[[ $got == "samples=$samples lost=$lost lost_samples=$lost_samples "*"malformed=0 "* ]] &&
			[[ $state != whole || $got == *state=whole ]] ||
			{ echo "$file: $got"; bad=$((bad + 1)); }
		n=$((n + 1))
	done <"$corpus/expected/counts.tsv"
	[ $n -gt 0 ] && [ $bad = 0 ]
}
