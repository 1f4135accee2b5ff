#!/usr/bin/env bats
# The four stages together, on programs whose call chains are known from their source: each chain
# is checked root to leaf, by value, in the samples that hold its function.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
}

# Profile a program of $SP_PROG and write its raw and folded text: run_chain PROGRAM [ARG…]
run_chain() {
	local program=$1
	shift
	profile p.spool -- "$SP_PROG/$program" "$@"
	sp-sym --format=raw p.spool >raw
	sp-sym --format=folded p.spool >folded
}

main='^_start;(libc\.so\.6;)+main;'
static_main='^_start;(_*libc_start\w*;)+main;'

# bats test_tags=smoke
@test "C, position independent, no frame pointers: every stack reaches _start" {
	run_chain chain-pie
	chain raw raw --holding hot --chain "${main}alpha;beta;gamma_fn;hot;\$" --min 99 --calls chain-pie
	chain folded folded --holding ';hot$' --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$' --min 99
}

@test "C, at a fixed address: every stack reaches _start" {
	run_chain chain-nopie
	chain raw raw --holding hot --chain "${main}alpha;beta;gamma_fn;hot;\$" --min 99 --calls chain-nopie
	chain folded folded --holding ';hot$' --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$' --min 99
}

@test "C, statically linked: every stack reaches _start" {
	run_chain chain-static
	chain raw raw --holding hot --chain "${static_main}alpha;beta;gamma_fn;hot;\$" --min 99 --calls chain-static
	chain folded folded --holding ';hot$' --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$' --min 99
}

@test "C, statically linked and position independent: every stack reaches _start" {
	run_chain chain-static-pie
	chain raw raw --holding hot --chain "${static_main}alpha;beta;gamma_fn;hot;\$" --min 99 --calls chain-static-pie
}

@test "C, stripped: the addresses are right, and no name is made up" {
	run_chain chain-stripped
	chain raw raw --holding hot --chain "${main}alpha;beta;gamma_fn;hot;\$" --min 99 \
		--syms "chain-stripped=$SP_PROG/chain-pie"
	# Between libc's main-caller and the leaf stand four frames of the program, all without a name.
	chain folded folded --holding 'chain-stripped\+0x[0-9a-f]+\]$' --min 99 \
		--chain '(;\[chain-stripped\+0x[0-9a-f]+\]){5}$'
	run grep -E 'alpha|beta|gamma_fn|;hot' folded
	equal "$status" 1 "names in a stripped program: $output"
}

@test "C with frame pointers: every stack reaches _start" {
	run_chain chain-fp
	chain raw raw --holding hot --chain "${main}alpha;beta;gamma_fn;hot;\$" --min 99 --calls chain-fp
}

@test "C, not optimized, no frame pointers: every stack reaches _start" {
	run_chain chain-O0
	chain raw raw --holding hot --chain "${main}alpha;beta;gamma_fn;hot;(keep;)?\$" --min 99 --calls chain-O0
}

@test "clang and lld, whose text segment's address and file offset differ: every stack reaches _start" {
	run_chain chain-lld
	chain raw raw --holding hot --chain "${main}alpha;beta;gamma_fn;hot;\$" --min 99 --calls chain-lld
	chain folded folded --holding ';hot$' --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$' --min 99
}

# Link chain.c as prog-NAME and check its chains: layout NAME FLAG…
layout() {
	local name=$1
	shift
	cc -O2 -g -fomit-frame-pointer "$@" -o "prog-$name" "$TOP/tests/prog/chain.c"
	of_layout "$name" "$main"
}

of_layout() { # NAME PATTERN-OF-THE-ROOT [OPTION-OF-CHAINS…]
	local name=$1 root=$2
	shift 2
	rm -f p.spool
	profile p.spool -- "./prog-$name"
	sp-sym --format=raw p.spool >raw
	SP_PROG=. chain raw raw --holding hot --chain "${root}alpha;beta;gamma_fn;hot;\$" --min 99 "$@" ||
		fail "layout $name"
}

@test "gold, mold, 2 MiB pages, one segment for all, another base, no section headers, broken headers: every stack reaches _start" {
	layout gold -fuse-ld=gold
	layout mold -fuse-ld=mold
	layout mold-norelro -fuse-ld=mold -Wl,-z,norelro -Wl,-z,max-page-size=0x200000
	layout pages -Wl,-z,max-page-size=0x200000 -Wl,-z,separate-code
	layout noseparate -Wl,-z,noseparate-code
	layout nohdr -Wl,--no-eh-frame-hdr
	layout elsewhere -no-pie -Wl,-Ttext-segment=0x10000000
	# Of copies that say less: sections gone, a table that can't be read, one that is not sorted.
	cp prog-pages prog-plain
	for what in sections version order; do
		python3 - "$what" <<'END'
import struct, sys
data = bytearray(open("prog-plain", "rb").read())
shoff, = struct.unpack_from("<Q", data, 40)
if sys.argv[1] == "sections":
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HH", data, 60, 0, 0)
else:
    phoff, = struct.unpack_from("<Q", data, 32)
    size, n = struct.unpack_from("<HH", data, 54)
    for i in range(n):
        kind, _, off, _, _, filesz = struct.unpack_from("<IIQQQQ", data, phoff + i * size)
        if kind != 0x6474e550:
            continue
        if sys.argv[1] == "version":
            data[off] = 9
        else:
            entries = [data[off + 12 + 8 * k:off + 20 + 8 * k] for k in range((filesz - 12) // 8)]
            data[off + 12:off + 12 + 8 * len(entries)] = b"".join(reversed(entries))
open("prog-" + sys.argv[1], "wb").write(data)
END
		chmod +x "prog-$what"
		of_layout "$what" "$main" --syms "prog-$what=prog-plain"
	done
}

@test "rules only in .debug_frame, plain, zlib and zstd: every stack reaches _start" {
	layout plain -fno-asynchronous-unwind-tables -fno-unwind-tables
	for how in zlib zstd; do
		objcopy --compress-debug-sections=$how prog-plain prog-$how
		of_layout $how "$main" --syms "prog-$how=prog-plain"
	done
}

@test "OCaml: its compiler's own rules, from the runtime's C code down to the leaf" {
	cp "$TOP/tests/prog/chain.ml" .
	ocamlopt -o prog-ocaml chain.ml
	local hot
	hot=$(nm prog-ocaml | awk '/ camlChain__hot_[0-9]+$/ { print $3 }')
	rm -f p.spool
	profile p.spool -- ./prog-ocaml
	sp-sym --format=raw p.spool >raw
	SP_PROG=. chain raw raw --holding "$hot" --min 99 --calls prog-ocaml \
		--chain "${main}caml_main;(caml_\w+;)*camlChain__entry;camlChain__alpha_\d+;camlChain__beta_\d+;camlChain__gamma_fn_\d+;$hot;\$"
}

@test "musl, which has no rules, static and dynamic, and its threads: every stack reaches its root" {
	run_chain chain-musl
	chain raw raw --holding hot --min 99 --calls chain-musl \
		--chain "^_start;libc_start_main_stage2;main;alpha;beta;gamma_fn;hot;\$"
	musl-gcc -O2 -g -o prog-musl "$TOP/tests/prog/chain.c"
	of_layout musl '^_start;(libc\.so;)+main;'
	musl-gcc -O2 -g -pthread -static -o musl-threads "$TOP/tests/prog/threads.c"
	rm -f p.spool
	profile p.spool -- ./musl-threads
	sp-sym --format=raw p.spool >raw
	SP_PROG=. chain raw raw --holding hot_1 --min 99 --chain '^__clone;start;worker_1;middle_1;hot_1;$'
}

@test "code without rules: called back by musl's qsort; and a coroutine's stack ends in its first function" {
	cat >back.c <<-'END'
		#include <stdlib.h>
		#include <time.h>
		#include <ucontext.h>
		static volatile unsigned sum;
		__attribute__((noipa)) static void hot(int n) { for (int i = 0; i < n; i++) sum += i; }
		static long cpu_ms(void) { return clock() / (CLOCKS_PER_SEC / 1000); }
		#ifdef SORT
		static int order(const void *a, const void *b) { hot(500); return *(const int *)a - *(const int *)b; }
		int main(void)
		{
			int v[100];
			while (cpu_ms() < 500) {
				for (int i = 0; i < 100; i++) v[i] = (int)(i * 7919u % 1000);
				qsort(v, 100, sizeof *v, order);
			}
			return 0;
		}
		#else
		static ucontext_t all, one;
		static char stack[1 << 16];
		static void body(void) { for (;;) { hot(20000); sum++; swapcontext(&one, &all); } }
		int main(void)
		{
			getcontext(&one);
			one.uc_stack.ss_sp = stack;
			one.uc_stack.ss_size = sizeof stack;
			makecontext(&one, body, 0);
			while (cpu_ms() < 500) swapcontext(&all, &one);
			return 0;
		}
		#endif
	END
	musl-gcc -O2 -g -DSORT -static -o back-musl back.c
	gcc -O2 -g -o back-coroutine back.c
	profile p.spool -- ./back-musl
	sp-sym --format=raw p.spool >raw
	SP_PROG=. chain raw raw --holding hot --min 99 --chain '^_start;libc_start_main_stage2;main;(\w+;)+order;hot;$'
	rm p.spool
	profile p.spool -- ./back-coroutine
	sp-sym --format=raw p.spool >raw
	SP_PROG=. chain raw raw --holding hot --min 99 --calls back-coroutine --chain '^libc\.so\.6;body;hot;$'
}

@test "threads: each has its own chain from its start function, and its name" {
	run_chain threads
	sp-sym --format=text p.spool >text
	for n in 1 2 3 4; do
		chain raw raw --holding hot_$n --chain "^(libc\.so\.6;)+worker_$n;middle_$n;hot_$n;\$" --min 99 --calls threads
		chain folded folded --holding ";hot_$n(;|\$)" --chain ";worker_$n;middle_$n;hot_$n(;churn_\[i\])?\$" --min 99
		# Text: hot_N runs in threads called worker-N and in no other.
		awk -v n=$n '/^[^ \t]/ { comm = $1 } $2 ~ "^hot_" n "\\+" { seen[comm]++ }
			END { for (c in seen) print c, seen[c]; exit !(seen["worker-" n] > 100 && length(seen) == 1) }' text
	done
}

@test "a process that was running before: -p attaches to all of its threads" {
	# It runs for 4 s of CPU, and all of the rest is seen.
	"$SP_PROG/threads" 1000 &
	profile p.spool -p $!
	sp-sym --format=raw p.spool >raw
	for n in 1 2 3 4; do
		chain raw raw --holding hot_$n --chain "^(libc\.so\.6;)+worker_$n;middle_$n;hot_$n;\$" --min 99
	done
}

@test "a signal handler, and under it a function interrupted at its first instruction" {
	run_chain signal
	chain raw raw --holding handler_hot --min 99 \
		--chain "${main}outer;spin_first_insn;libc\.so\.6;on_alarm;handler_hot;\$"
	chain raw raw --holding spin_first_insn --min 99 \
		--chain "${main}outer;spin_first_insn;(libc\.so\.6;|\$)"
	chain folded folded --holding ';handler_hot$' --min 99 \
		--chain ';main;outer;spin_first_insn;[^;]*;on_alarm;handler_hot$'
	run grep bare_before folded
	equal "$status" 1 "the function in front of the interrupted one: $output"
}

@test "calls through the PLT, and samples inside of PLT stubs" {
	run_chain plt
	chain raw raw --holding lib_hot --min 99 --chain "${main}run;lib_outer;lib_hot;(\[plt\];|host_tick;)?\$"
	chain raw raw --holding '[plt]' --min 95 --samples 10 --chain "${main}run;lib_outer;lib_hot;\[plt\];\$"
	chain folded folded --holding ';host_tick@plt$' --min 95 --samples 10 \
		--chain ';main;run;lib_outer;lib_hot;host_tick@plt$'
}

@test "a plugin loaded with dlopen while the profile runs" {
	run_chain dlopen
	chain raw raw --holding plug_hot --min 99 --chain "${main}use_plugin;plug_entry;plug_hot;\$" --calls dlopen
	chain folded folded --holding ';plug_hot$' --min 99 --chain ';main;use_plugin;plug_entry;plug_hot$'
}

@test "a plugin that is mapped after the attach, in a process that was running before" {
	mkfifo go
	# The shell becomes the program once the capture has begun: everything is mapped under its eyes.
	sh -c 'read -r _ <go; exec "$0" 600' "$SP_PROG/dlopen" &
	local pid=$!
	sp-capture -p $pid 2>capture.log >stream &
	local capture=$!
	await grep -qi recording capture.log
	echo >go
	wait $pid $capture
	sp-unwind stream | sp-spool -o p.spool
	sp-sym --format=raw p.spool >raw
	chain raw raw --holding plug_hot --min 99 --chain "${main}use_plugin;plug_entry;plug_hot;\$"
}

@test "C++: templates root to leaf, demangled, with what was inlined into the leaf" {
	run_chain templates
	chain raw raw --holding _ZN4shop5priceERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEj --min 99 \
		--chain "${main}_ZN4shop3runEj;(_ZN4shop4WalkILi[3210]EE2goI\S*;){4}_ZN4shop5price\w*;\$" --calls templates
	chain folded folded --holding ';shop::price\(' --min 99 --chain ';main;shop::run\(unsigned int\);[^;]*shop::Walk<3>::go<[^;]*;[^;]*shop::Walk<2>::go<[^;]*;[^;]*shop::Walk<1>::go<[^;]*;[^;]*shop::Walk<0>::go<.*;shop::price\('
	# The loop's work is two inlined functions deep.
	chain folded folded --holding ';shop::price\(' --min 80 \
		--chain ';shop::price\([^;]*;[^;]*scale[^;]*_\[i\];[^;]*Mixer[^;]*mix[^;]*_\[i\]$'
}

@test "lines: the hot loop of the C++ program is found in its source" {
	run_chain templates
	sp-sym --format=top p.spool >top
	# mix() is the hottest function by itself, and its line is the one marked in the source.
	line=$(grep -n 'mix line' "$TOP/tests/prog/templates.cc" | cut -d: -f1)
	holds "$(cat top)" "templates.cc:"
	addresses=$(awk 'leaf && $2 ~ /\/templates$/ { print $3 } { leaf = /^sample/ }' raw | sort | uniq -c | sort -rn | awk 'NR <= 3 { print "0x" $2 }')
	# shellcheck disable=SC2086 # a list
	sp-sym --exe "$SP_PROG/templates" $addresses >lines
	holds "$(cat lines)" "templates.cc:$line"
}

@test "gcc on a real file: the compiler proper, a child, from its _start down" {
	profile p.spool -f -- g++ -O2 -std=c++17 -S -o /dev/null "$TOP/tests/prog/demo/main.cc"
	sp-sym --format=raw p.spool >raw
	sp-sym --format=folded p.spool >folded
	local cc1plus
	cc1plus=$(g++ -print-prog-name=cc1plus)
	# gcc exports its functions: they are looked up in its dynamic symbols.
	chain raw raw --syms "cc1plus=$cc1plus" --holding _ZN6toplev4mainEiPPc --min 95 --samples 300 \
		--chain "${main}_ZN6toplev4mainEiPPc;"
	chain raw raw --syms "cc1plus=$cc1plus" --holding _Z12c_parse_filev --min 95 --samples 100 \
		--chain "${main}_ZN6toplev4mainEiPPc;(cc1plus[^;]*;|\w+;)*_Z12c_parse_filev;"
	chain folded folded --holding ';toplev::main\(' --min 95 --samples 300 \
		--chain ';_start;([^;]*;)+main;toplev::main\('
	# The assembler's or the driver's samples are told apart from the compiler's.
	grep -q '^cc1plus' folded
}

@test "python -X perf: every Python function of the chain, down from _start" {
	local python
	python=$(dirname "$SP_PROG")/python/bin/python3
	profile p.spool -- "$python" -X perf "$TOP/tests/prog/chain.py"
	sp-sym --format=folded p.spool >folded
	rm -f "/tmp/perf-$(sp-sym --format=raw p.spool | awk '/^sample/ { pid = $3 } END { print pid }').map"
	chain folded folded --holding 'leaf_py' --min 99 --samples 700 \
		--chain ';_start;.*Py_BytesMain[^;]*;.*<module>[^;]*;(.*;)?[^;]*run_py[^;]*;(.*;)?[^;]*mid_py[^;]*;(.*;)?[^;]*leaf_py'
}

@test "node --perf-basic-prof: every JavaScript function of the chain, down from _start" {
	profile p.spool -- node --perf-basic-prof --no-turbo-inlining "$TOP/tests/prog/chain.js"
	sp-sym --format=folded p.spool >folded
	rm -f "/tmp/perf-$(sp-sym --format=raw p.spool | awk '/^sample/ { pid = $3 } END { print pid }').map"
	chain folded folded --holding 'leafJs' --min 95 --samples 700 \
		--chain ';_start;.*;node::Start\([^;]*;.*[^;]*runJs[^;]*;(.*;)?[^;]*midJs[^;]*;(.*;)?[^;]*leafJs'
}

@test "a shell pipeline of short processes: each of them is there, whole" {
	cat >loop.sh <<-'X'
		i=0
		while [ $i -lt 20 ]; do
			echo x | "$1" 20 | "$1" 20 >/dev/null
			i=$((i + 1))
		done
	X
	profile p.spool -- sh loop.sh "$SP_PROG/short"
	sp-sym --format=raw p.spool >raw
	chain raw raw --holding stage_hot --min 99 --samples 600 --chain "${main}stage;stage_hot;\$" --calls short
	# 40 processes of 20 ms CPU: none is missing.
	equal "$(awk '/^sample/ { pid = $3 } $2 ~ /\/short$/ { seen[pid] = 1 } END { print length(seen) }' raw)" 40 "processes seen"
}

# bats test_tags=smoke
@test "the counts agree from the stream to every output" {
	run_chain chain-pie 300
	n=$(grep -c '^sample' raw)
	equal "$(awk '{ n += $NF } END { print n }' folded)" "$n" "folded"
	equal "$(stat_of p.spool samples)" "$n" "stats-json samples"
	equal "$(stat_of p.spool lost_events)" 0 "lost_events"
	equal "$(sp-sym --format=text p.spool | grep -c '^[^[:space:]]')" "$n" "text"
}

# bats test_tags=smoke
@test "nothing needs a file: the spool through a pipe" {
	sp-capture -- "$SP_PROG/chain-pie" 200 | sp-unwind | sp-spool -o - | sp-sym --format=folded - >folded
	chain folded folded --holding ';hot$' --samples 50 --min 99 --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$'
}

@test "sp-unwind's pipe has memory beside it; behind another reader the same comes through the pipe" {
	# The program runs once the offer is taken; the other reader makes none.
	until_offer='until grep -q "offers memory for the samples" log; do sleep 0.05; done; exec "$@"'
	sp-capture -vv -- sh -c "$until_offer" sh "$SP_PROG/chain-pie" 200 2>log | sp-unwind 2>unwind.log | sp-spool -o p.spool
	equal "$(grep -c 'offers memory' log)" 1 "offers taken"
	sp-capture -vv -- "$SP_PROG/chain-pie" 200 2>log2 | cat | sp-unwind 2>unwind2.log | sp-spool -o p2.spool
	equal "$(grep -c 'offers memory' log2)" 0 "offers behind cat"
	for which in '' 2; do
		sent=$(sed -nE 's/^sp-capture: ([0-9]+) samples.*/\1/p' "log$which")
		equal "$(stat_of "p$which.spool" samples)" "$sent" "samples of p$which.spool"
		sp-sym --format=folded "p$which.spool" >folded
		chain folded folded --holding ';hot$' --samples 50 --min 99 --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$'
	done
}

@test "sp-capture -o FILE.spool runs the rest of the pipeline itself" {
	sp-capture -o p.spool -- "$SP_PROG/chain-pie" 200
	sp-sym --format=folded p.spool >folded
	chain folded folded --holding ';hot$' --samples 50 --min 99 --chain ';_start;.*;main;alpha;beta;gamma_fn;hot$'
}

@test "every view is made, from one spool, twice the same" {
	run_chain templates 300
	for format in top tree text raw folded flamegraph stats stats-json; do
		sp-sym --format=$format --width=300 p.spool >1.$format
		sp-sym --format=$format --width=300 p.spool >2.$format
		[ -s 1.$format ] || fail "$format is empty"
		cmp 1.$format 2.$format
	done
	holds "$(cat 1.top)" "mix"
	holds "$(cat 1.tree)" "shop::run"
	holds "$(cat 1.flamegraph)" "shop::price"
	python3 -c 'import json, sys; json.load(sys.stdin)' <1.stats-json
	# Self-contained: nothing is fetched from anywhere.
	run grep -oE '(src|href)="?(https?:)?//[^"> ]*' 1.flamegraph
	equal "$output" ""
}
