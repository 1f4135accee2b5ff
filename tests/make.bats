#!/usr/bin/env bats
# The two commands of the README, the packages they install, and the installation.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	mkdir -p fake
}

# make in the project, on the build that is under test.
project() {
	make -s --no-print-directory -C "$TOP" BUILD="$SP_BUILD" "$@"
}

# A machine on which the packages of the list $1 are missing, for the user with the number $2. apt-get
# and sudo write down how they were called.
pretend() {
	cat >fake/dpkg-query <<-X
		#!/bin/sh
		for last; do :; done
		case " $1 " in *" \$last "*) exit 1 ;; esac
		echo installed
	X
	# shellcheck disable=SC2016 # the script's own variables
	printf '#!/bin/sh\necho "apt-get $*" >>"%s"\n' "$PWD/calls" >fake/apt-get
	# shellcheck disable=SC2016
	printf '#!/bin/sh\necho "sudo $*" >>"%s"\nexec "$@"\n' "$PWD/calls" >fake/sudo
	printf '#!/bin/sh\necho %s\n' "$2" >fake/id
	chmod +x fake/*
	: >calls
}

@test "make deps: says nothing and asks for nothing when nothing is missing" {
	pretend "" 1000
	PATH=$PWD/fake:$PATH run project deps test-deps
	equal "$status" 0
	equal "$output" ""
	equal "$(cat calls)" ""
}

@test "make deps: root installs only what is missing, after one update, and says what" {
	pretend "libzstd-dev liblzma-dev bats" 0
	PATH=$PWD/fake:$PATH run project deps
	equal "$status" 0
	equal "$output" "Installing for the build: libzstd-dev liblzma-dev"
	equal "$(cat calls)" "apt-get -qq update
apt-get -qq -y --no-install-recommends install libzstd-dev liblzma-dev"
}

@test "make test-deps: a user installs with sudo" {
	pretend "bats" 1000
	PATH=$PWD/fake:$PATH run project test-deps
	equal "$status" 0
	equal "$output" "Installing for the tests: bats"
	equal "$(grep -c '^sudo' calls)" 2
	grep -q '^apt-get -qq -y --no-install-recommends install bats$' calls
}

@test "make deps: without sudo it says what root has to type" {
	pretend "gcc" 1000
	rm fake/sudo
	for tool in make sh dirname sed find id; do [ -e fake/$tool ] || ln -s "$(command -v $tool)" fake/; done
	PATH=$PWD/fake run project deps
	[ "$status" -ne 0 ]
	holds "$output" "As root: apt-get install gcc"
	equal "$(cat calls)" ""
}

@test "make demo: the hottest functions with their lines, and a flame graph that stands alone" {
	run project demo
	equal "$status" 0 "$output"
	holds "$output" "edit_distance"
	# Its inlined helpers and their lines: the hot path can be found.
	[[ $output =~ distance\.c:[0-9]+ ]] || fail "no line of distance.c in:" "$output"
	html=$SP_BUILD/demo/flamegraph.html
	holds "$output" "$html"
	holds "$(cat "$html")" "edit_distance"
	run grep -oE '(src|href)="?(https?:)?//[^"> ]*' "$html"
	equal "$output" ""
}

@test "make demo CMD=…: the user's own command" {
	run project demo CMD="$SP_PROG/chain-pie 300; $SP_PROG/templates 300"
	equal "$status" 0 "$output"
	holds "$output" "hot"
	holds "$output" "shop::price"
}

@test "make demo CMD=…: a command that fails has its profile too, and one that is not there none" {
	run project demo CMD="$SP_PROG/chain-pie 300; exit 5"
	[ "$status" -ne 0 ]
	holds "$output" "chain.c:"
	holds "$output" "Error 5"
	local wrong
	for wrong in PID=0x7fffffff CMD=./not-there CMD="$SP_PROG/chain-pie 100; ./not-there"; do
		run project demo "$wrong"
		[ "$status" -ne 0 ]
		[[ $output != *"Flame graph"* ]] || fail "the last one's profile is shown:" "$output"
	done
}

@test "make demo PID=…: the user's own process" {
	"$SP_PROG/chain-pie" 30000 &
	run project demo PID=$! DURATION=1
	kill %1
	equal "$status" 0 "$output"
	holds "$output" "hot"
	holds "$output" "chain.c:"
}

@test "make install and uninstall: DESTDIR, PREFIX, a program that uses the library, nothing left" {
	project install DESTDIR="$PWD/root" PREFIX=/opt/sp >log 2>&1 || fail "$(cat log)"
	for tool in sp-capture sp-unwind sp-spool sp-sym; do
		[ -x root/opt/sp/bin/$tool ] || fail "no $tool"
		[ -s root/opt/sp/share/man/man1/$tool.1 ] || fail "no page of $tool"
		"root/opt/sp/bin/$tool" --version
	done
	# pkg-config with the folder in front of what the file says.
	export PKG_CONFIG_PATH=$PWD/root/opt/sp/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$PWD/root
	equal "$(pkg-config --modversion stackpulse)" "$(sp-sym --version | awk '{ print $NF }')"
	sp-capture -q -- "$SP_PROG/chain-pie" 100 | sp-unwind -q | sp-spool -q -o p.spool
	# shellcheck disable=SC2046 # flags
	gcc -Wall -Werror -o shared "$TOP/tests/examples/samples.c" $(pkg-config --cflags --libs stackpulse)
	LD_LIBRARY_PATH=$PWD/root/opt/sp/lib ./shared p.spool >out.shared
	# shellcheck disable=SC2046
	gcc -Wall -Werror -o static "$TOP/tests/examples/samples.c" $(pkg-config --cflags stackpulse) \
		"$PWD/root/opt/sp/lib/libstackpulse.a" -lzstd -ldeflate -llzma -lbz2 -liberty -pthread
	./static p.spool >out.static
	cmp out.shared out.static
	equal "$(cut -d" " -f1 out.shared)" "$(stat_of p.spool samples)" "samples that the library sees"
	project uninstall DESTDIR="$PWD/root" PREFIX=/opt/sp >log 2>&1
	equal "$(find root ! -type d)" ""
}

@test "make install tells the loader of the library, as root and where it is to stay" {
	mkdir loader
	printf '#!/bin/sh\necho x >>"%s/told"\n' "$PWD" >loader/ldconfig
	printf '#!/bin/sh\n[ "$1" = -u ] && echo "$FAKE_ID" || exec /usr/bin/id "$@"\n' >loader/id
	chmod +x loader/*
	local id
	for id in 0 1000; do
		FAKE_ID=$id PATH=$PWD/loader:$PATH project install PREFIX="$PWD/own" >log 2>&1 || fail "$(cat log)"
		equal "$(wc -l <told)" 1 "as user $id"
	done
	FAKE_ID=0 PATH=$PWD/loader:$PATH project install DESTDIR="$PWD/root" PREFIX=/opt/sp >log 2>&1
	equal "$(wc -l <told)" 1 "into a DESTDIR"
}

@test "the examples compile against the installed library and do what they say" {
	project install DESTDIR="$PWD/root" PREFIX=/opt/sp >log 2>&1 || fail "$(cat log)"
	export PKG_CONFIG_PATH=$PWD/root/opt/sp/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$PWD/root
	export LD_LIBRARY_PATH=$PWD/root/opt/sp/lib
	local name
	for name in samples replay histogram tail names plugin; do
		# shellcheck disable=SC2046 # flags
		gcc -std=gnu11 -Wall -Wextra -Werror -o "$name" "$TOP/tests/examples/$name.c" \
			$(pkg-config --cflags --libs stackpulse)
		run "./$name" /dev/null
		equal "$status" 1
		holds "$output" "$name: "
	done
	# From C++ too, each header alone.
	local header
	for header in root/opt/sp/include/stackpulse/*.h; do
		g++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -Iroot/opt/sp/include -x c++ "$header" || fail "$header"
	done
	echo 'int main() { return sp_process_exists(1) ? 0 : 1; }' >cxx.cc
	# shellcheck disable=SC2046 # flags
	g++ -include stackpulse/process.h cxx.cc $(pkg-config --cflags --libs stackpulse) -o cxx && ./cxx
	"$SP_PROG/stream" samples=5000 stacks=30 procs=2 truncated=9 >s.stream
	sp-spool -q -o p.spool s.stream
	cmp <(./replay p.spool) <(sp-sym --format=raw p.spool)
	# The histogram by hand: of the raw text, its stacks without the processes' addresses.
	sp-sym --format=raw p.spool | awk -v RS= '{ key = ""; for (i = 7; i <= NF; i++) key = key " " $i
		gsub(/ [0-9a-f]+ \/opt/, " /opt", key); n[key]++ } END { for (k in n) print n[k] }' | sort -rn | head -10 >want
	./histogram p.spool | awk '{ print $1 }' >got
	diff want got
	# Names: what sp-sym says, without its marks of the kinds.
	sp-capture -q -- "$SP_PROG/chain-pie" 300 | sp-unwind -q | sp-spool -q -o n.spool
	./names n.spool | sort | uniq -c | awk '{ n = $1; $1 = ""; print substr($0, 2) " " n }' | LC_ALL=C sort >got
	sp-sym -q --format=folded --group=none n.spool | sed -E 's/_\[[ikj]\]//g' | LC_ALL=C sort >want
	diff want got
	grep -q ';main;.*work' got || grep -q ';main;' got || fail "no names: $(head -n 3 got)"
	./plugin n.spool >out
	holds "$(cat out)" " addresses asked, "
	awk '{ exit !($1 > 1 && $3 > 3 && $6 > 0 && $8 > 0 && $6 <= $3) }' out || fail "$(cat out)"
	# Live: the example starts on what is there and ends with the writer.
	mkfifo ff
	"$SP_PROG/stream" samples=3000 hz=300 pace=1 >ff 3>&- &
	sp-spool -q -o live.spool <ff 3>&- &
	await test -s live.spool
	./tail live.spool >out
	wait
	equal "$(tail -n 1 out)" "the end: 3000 samples"
	[ "$(wc -l <out)" -ge 3 ] || fail "not live:" "$(cat out)"
	equal "$(awk '/threads/ { n += $1 } END { print n }' out)" 3000
}

@test "make DEBUGINFOD=no: the part that asks servers is left out, and compiles" {
	local part=$PWD/no/obj/common/elf/debuginfod.o
	make -s --no-print-directory -C "$TOP" BUILD="$PWD/no" DEBUGINFOD=no WERROR=1 OPT=-O2 SAN= "$part" 2>&1
	equal "$(nm --undefined-only "$part" | grep -c dlopen)" 0
	make -s --no-print-directory -C "$TOP" BUILD="$PWD/yes" WERROR=1 OPT=-O2 SAN= "${part/no/yes}" 2>&1
	equal "$(nm --undefined-only "${part/no/yes}" | grep -c dlopen)" 1
}

@test "the library's symbols are those that programs were linked against" {
	project libs
	nm -D --defined-only "$SP_BUILD/lib/libstackpulse.so.0" | awk '$2 == "T" { print $3 }' | LC_ALL=C sort >shown
	# What is gone breaks programs: that takes another ABI number. New names are added to the list.
	diff "$TOP/tests/data/libstackpulse.so.0.symbols" shown
	holds "$(readelf -d "$SP_BUILD/lib/libstackpulse.so.0")" "soname: [libstackpulse.so.0]"
	# It keeps to itself: no output, no exit, no state in variables that can be seen.
	equal "$(nm -D --undefined-only "$SP_BUILD/lib/libstackpulse.so.0" |
		grep -oE ' (exit|abort|printf|puts|putchar|perror|stdout|stderr)@' || :)" ""
	equal "$(nm -D --defined-only "$SP_BUILD/lib/libstackpulse.so.0" | awk '$2 ~ /[BD]/ { print $3 }')" ""
}

@test "libstackpulse shows the functions of its public headers, and only those" {
	project libs
	grep -hoE '\bsp_[a-z0-9_]+\(' "$TOP"/common/include/stackpulse/*.h | tr -d '(' | sort -u >declared
	nm -D --defined-only "$SP_BUILD/lib/libstackpulse.so.0" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort >shown
	equal "$(comm -13 declared shown)" ""
	nm --defined-only --extern-only "$SP_BUILD/lib/libstackpulse.a" | awk 'NF == 3 { print $3 }' | sort >static
	equal "$(comm -13 declared static)" ""
	# Every function that is declared exists (inline ones aside).
	grep -hE '^static inline' "$TOP"/common/include/stackpulse/*.h | grep -oE '\bsp_[a-z0-9_]+\(' | tr -d '(' | sort -u >inline
	equal "$(comm -23 declared shown | comm -23 - inline)" ""
}

@test "the floors hold: what may include what" {
	run "$TOP/tests/lint-floors"
	equal "$status" 0 "$output"
}

@test "the README's make commands exist, and its tools and options are known" {
	grep -oE '^    make [a-z-]+' "$TOP/README.md" | awk '{ print $2 }' | sort -u >targets
	grep -q '^demo$' targets
	grep -q '^check$' targets
	while read -r target; do
		grep -qE "^([a-z -]* )?$target( [a-z -]*)?:" "$TOP/Makefile" || fail "README: make $target"
	done <targets
	grep -oE '\bsp-(capture|unwind|spool|sym)\b[^|]*' <(grep '^    ' "$TOP/README.md") | while read -r tool rest; do
		for option in $rest; do
			[ "$option" != -- ] || break
			case $option in
			--*) "$tool" --help | grep -q -- "${option%%=*}" || fail "README: $tool $option" ;;
			esac
		done
	done
}

@test "every tool: --help, man page and completion know the same options; --version; a wrong option is exit 2" {
	for tool in sp-capture sp-unwind sp-spool sp-sym; do
		"$tool" --help >help
		holds "$(head -n 1 help)" "Usage: $tool"
		grep -qE "^$tool( \(stackpulse\))? [0-9]+\.[0-9]+\.[0-9]+$" <("$tool" --version) || fail "$("$tool" --version)"
		run "$tool" --no-such-option
		equal "$status" 2
		holds "$output" "--no-such-option"
		# shellcheck disable=SC2013 # options hold no blanks
		for option in $(sed -nE 's/^ +(-., )?(--[a-z][a-z-]+).*/\2/p' help | sort -u); do
			sed 's/\\-/-/g' "$TOP/$tool/$tool.1" | grep -q -- "$option" || fail "$tool.1 does not have $option"
			grep -q -- "$option" "$TOP/$tool/$tool.bash" || fail "$tool.bash does not have $option"
		done
	done
}
