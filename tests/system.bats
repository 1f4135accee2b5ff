#!/usr/bin/env bats
# sp-capture -a and --cgroup: who is recorded and who is not, by value; what is refused, and how.
#
# shellcheck disable=SC2030,SC2031,SC2094 # each test is a shell of its own

load lib
load waits

setup() {
	live_setup
	group='' away=''
}

teardown() {
	[ -z "$away" ] || echo 1 >"$away"
	live_teardown # who is in the group goes first
	[ -z "$group" ] || remove_group
}

# Recording all CPUs needs CAP_PERFMON, or a kernel that lets everybody.
need_all_cpus() {
	sp-capture -a -d 0 >/dev/null 2>&1 || skip "this user may not record all CPUs"
}

# A copy of a test program under another name: $pid is its process.
start() { # PROGRAM NAME [ARG…]
	local program=$1 name=$2
	shift 2
	[ -e "$name" ] || cp "$SP_PROG/$program" "$name"
	"./$name" "$@" >/dev/null 2>&1 3>&- &
	pid=$!
	pids+=("$pid")
}

# The recording runs in the background, its stream in s, its messages in log; $capture is its pid.
begin() { # OPTIONS…
	rm -f log # of another one, which says that it records
	sp-capture "$@" >s 2>log 3>&- &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
}

end() {
	kill -INT "$capture"
	wait "$capture"
}

# Until the stream, which grows, holds ten samples of each.
await_samples_of() { stream until s samples 10 "$@" || fail "$(cat log)"; } # PID…

samples_of() { stream stacks s | awk -v p="$1" '$1 == p' | wc -l; }

cgroup2() { awk '$(NF - 2) == "cgroup2" { print $5; exit }' /proc/self/mountinfo; }

# A control group of this test's own, $group its folder.
make_group() {
	local root
	root=$(cgroup2)
	[ -n "$root" ] || skip "no cgroup v2 is mounted"
	group=$root/stackpulse-test-$$
	mkdir "$group" 2>/dev/null || {
		group=
		skip "this user may not make control groups"
	}
}

remove_group() {
	local below
	for below in "$group"/*/ "$group"; do
		[ ! -d "$below" ] || await rmdir "$below"
	done
	group=
}

# A program in a control group.
start_in() { # FOLDER PROGRAM NAME ARG…
	local folder=$1 program=$2 name=$3
	shift 3
	[ -e "$name" ] || cp "$SP_PROG/$program" "$name"
	bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$folder" "./$name" "$@" >/dev/null 2>&1 3>&- &
	pid=$!
	pids+=("$pid")
}

# bats test_tags=smoke
@test "-a: programs that ran before, that start and exit meanwhile; each by its own chains" {
	need_all_cpus
	start chain-pie before 60000
	local before=$pid
	begin -a
	cp "$SP_PROG/chain-nopie" meanwhile
	./meanwhile 300 >out 3>&- &
	local meanwhile=$!
	wait "$meanwhile"
	await_samples_of "$before"
	end
	stream order s
	holds "$(cat log)" "recording all processes ("
	[ "$(stream ext s | grep -c "^exec $meanwhile .*meanwhile 300")" = 1 ] || fail "no exec of meanwhile"
	sp-unwind -q <s | sp-spool -q -o x.spool
	local comm
	for comm in before meanwhile; do
		sp-sym -q --comm "$comm" --format=folded x.spool >folded
		grep -q 'main;alpha;beta;gamma_fn;hot' folded || fail "no chain of $comm" "$(cat folded)"
		# nothing that is cut, nothing without a name below main
		! grep -q truncated folded || fail "cut stacks of $comm"
	done
}

@test "-a: the pipeline that records is left out, however it is started" {
	need_all_cpus
	start chain-pie busy 60000
	# Each stage leaves its pid. Others may run the same tools at the same time.
	sp-capture -a -F 4999 -d 1.5 2>log | sh -c 'echo $$ >stage.1; exec sp-unwind -q -j 1' |
		sh -c 'echo $$ >stage.2; exec tee copy' | sh -c 'echo $$ >stage.3; exec sp-spool -q -o x.spool'
	sp-sym -q --format=folded x.spool | grep -q '^busy;'
	sp-sym -q --format=raw x.spool | awk '$1 == "sample" { print $3 }' | sort -u >who
	local stage
	for stage in 1 2 3; do
		! grep -qxf "stage.$stage" who || fail "stage $stage was sampled"
	done
	# -o FILE.spool runs the stages itself.
	sp-capture -a -F 4999 -d 1 -v -o y.spool 2>log
	equal "$(grep -c 'is left out: a stage of this pipeline' log)" 2 "stages found"
}

@test "-a: with -k kernel threads and idle CPUs are left out, and recorded when asked for" {
	need_all_cpus
	sp-capture -a -k -d 1 >s 2>log
	stream ext s | grep -q '^start.*kernel=1' || skip "no kernel frames here"
	stream stacks s | awk '{ print $1 }' | sort -u >pids
	! grep -qx 0 pids || fail "the idle task is there"
	local flags
	while read -r pid; do # field 9, behind the name, holds PF_KTHREAD
		flags=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f7)
		((!(${flags:-0} & 0x200000))) || fail "kernel thread $pid"
	done <pids
	sp-capture -a --idle -F 4999 -d 1 >s 2>log
	# A machine that is never idle in that second has none to show.
	[ -n "$(stream stacks s)" ]
	sp-capture -a --kernel-threads -F 20000 -d 2 >s 2>log
	stream ext s | grep -q '^start.*kernel=1'
	# Every living kernel thread is told by name.
	perf script --no-inline -F comm,pid --show-task-events -i - <s 2>/dev/null | grep -q 'PERF_RECORD_COMM: kthreadd:2'
}

@test "-a: --exclude leaves a process out, not its children" {
	need_all_cpus
	start chain-pie child 60000
	kill -9 "$pid"
	# Not out of itself either: the child is a copy of the program that is left out.
	bash -c './child 60000 & while :; do :; done' >parent.out 2>&1 3>&- &
	local parent=$!
	pids+=("$parent")
	has_child() { pgrep -P "$parent" >child.pid; }
	await has_child
	pids+=("$(cat child.pid)")
	start chain-pie out1 60000
	local out1=$pid
	start chain-pie out2 60000
	local out2=$pid
	start chain-pie kept 60000
	local kept=$pid
	begin -a --exclude "$out1" --exclude "$out2,$parent"
	await_samples_of "$kept" "$(cat child.pid)"
	end
	equal "$(samples_of "$parent")" 0 "samples of the parent"
	equal "$(samples_of "$out1")" 0 "samples of the first"
	equal "$(samples_of "$out2")" 0 "samples of the second"
}

@test "-a: who is born while /proc is read is told once, not again by records from before" {
	need_all_cpus
	cp /bin/sleep onceonly
	for _ in 1 2 3; do
		sh -c 'while :; do ./onceonly 0.02 & ./onceonly 0.03 & wait; done' 3>&- &
		pids+=($!)
	done
	for _ in 1 2 3 4 5 6; do
		sp-capture -q -a -F 99 -d 0.1 >s
		stream ext s | awk '$1 == "exec" && /onceonly/ { print $2 }' | sort >execs
		[ -s execs ] || fail "none was seen"
		equal "$(uniq -d execs)" "" "told twice"
		equal "$(stream forks s | cut -d' ' -f1,2 | sort | uniq -d)" "" "births told twice"
	done
}

@test "-a beside 5,000 processes: each is told to wait; few descriptors, little memory" {
	need_all_cpus
	local engine engines=perf
	"$SP_PROG/cap_herd" 5000 >herd.out 3>&- &
	local herd=$!
	pids+=("$herd")
	await grep -q ready herd.out
	[ "$(id -u)" != 0 ] || [ ! -r /sys/kernel/btf/vmlinux ] || engines+=" bpf"
	pgrep -P "$herd" | sort >herd.pids
	equal "$(wc -l <herd.pids)" 5000
	for engine in $engines; do
		rm -f log
		begin -a -F 99 --engine=$engine --off-cpu=1ms
		find "/proc/$capture/fd" | wc -l >fds
		awk '$1 == "VmHWM:" { print $2 }' "/proc/$capture/status" >peak
		end
		[ "$(cat fds)" -lt $((64 + 8 * $(nproc))) ] || fail "$engine: $(cat fds) descriptors"
		# Rings and their pages among it: some 10 MB with perf's, 50 with that of BPF.
		[ "$(cat peak)" -lt 300000 ] || fail "$engine: $(cat peak) KB"
		stream ext s | awk '$1 == "wait" { print $2 }' | sort -u | comm -12 - herd.pids >waited
		equal "$(wc -l <waited)" 5000 "$engine: processes that wait"
	done
	kill -9 "$herd"
}

@test "-a: a file that would be missed travels once a process that maps it is sampled" {
	need_all_cpus
	cp /bin/sleep asleep
	./asleep 1000 3>&- &
	pids+=($!)
	start chain-pie busy 60000
	local busy=$pid
	runs() { [ "$(readlink "/proc/$1/exe")" = "$PWD/$2" ]; }
	await runs "${pids[0]}" asleep
	await runs "$busy" busy
	rm asleep busy
	begin -a
	await_samples_of "$busy"
	end
	stream objects s >objects
	grep -q "/busy (deleted)$" objects || fail "no image of what runs" "$(cat objects)"
	! grep -q "/asleep (deleted)$" objects || fail "an image of what sleeps"
	sp-unwind -q <s | sp-spool -q -o x.spool
	sp-sym -q --comm busy --format=folded x.spool | grep -q 'main;alpha;beta;gamma_fn;hot'
}

@test "-a at the highest rate: the kernel is let take samples piece by piece, to the end" {
	need_all_cpus
	local limit taken seconds before
	start chain-pie busy 60000
	begin -a --engine=perf -F max -s 8
	ticks() { awk '{ print $14 }' "/proc/$pid/stat"; } # of 10 ms on the CPU
	before=$(ticks)
	burned() { [ "$(ticks)" -ge $((before + 30)) ]; }
	await burned
	end
	limit=$(sed -n 's/.*recording all processes .*, \([0-9]*\) Hz.*/\1/p' log)
	taken=$(sed -n 's/.*: \([0-9]*\) samples, \([0-9]*\) lost;.*/\1 \2/p' log | awk '{ print $1 + $2 }')
	seconds=$(sed -n 's/.* threads; \([0-9]*\)\..* s\>.*/\1/p' log) # whole ones
	# One piece is a twentieth of what a second makes, on each CPU; no more than its time makes is taken.
	[ "$taken" -gt $((limit / 10)) ] || fail "$(cat log)"
	[ "$taken" -lt $((limit * 12 / 10 * $(nproc) * (seconds + 1))) ] || fail "$(cat log)"
}

@test "-a with a command: all are recorded while it runs, its status is ours" {
	need_all_cpus
	start chain-pie busy 60000
	local busy=$pid status=0
	sp-capture -a -- sh -c "$SP_PROG/chain-pie 300; exit 7" >s 2>log || status=$?
	equal "$status" 7
	[ "$(samples_of "$busy")" -gt 10 ] || fail "busy was not recorded"
	holds "$(stream ext s | tail -n 1)" "command_status=1792"
}

@test "--cgroup: those in the group and below, who come and go; by path and by part of an id" {
	need_all_cpus
	make_group
	local id inside outside nested later
	id=$(printf '%064x' $$)
	mkdir "$group/docker-$id.scope"
	start chain-pie outside 60000
	outside=$pid
	start_in "$group" chain-pie inside 60000
	inside=$pid
	start_in "$group/docker-$id.scope" chain-pie nested 60000
	nested=$pid
	begin --cgroup "${group#"$(cgroup2)"}"
	start_in "$group" chain-pie later 60000
	later=$pid
	await_samples_of "$inside" "$nested" "$later"
	end
	equal "$(samples_of "$outside")" 0 "samples of a process outside"
	sp-unwind -q <s | sp-spool -q -o x.spool
	for comm in inside nested later; do
		sp-sym -q --comm "$comm" --format=folded x.spool | grep -q 'main;alpha;beta;gamma_fn;hot'
	done
	# The same by the id of the container, of which only one is in the scope below.
	begin --cgroup "$id"
	await_samples_of "$nested"
	end
	equal "$(samples_of "$inside")" 0 "samples of a process of the group above"
	kill -9 "$inside" "$nested" "$later"
}

@test "--cgroup: the recording ends when the group is removed" {
	need_all_cpus
	make_group
	start_in "$group" chain-pie inside 60000
	begin --cgroup "$group"
	await_samples_of "$pid"
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || :
	remove_group
	wait "$capture"
	grep -q "was removed: the recording ends" log
	stream ext s | tail -n 1 | grep -q '^end status=0 ended_by=cgroup '
}

@test "a control group that is not there, and a name of several, are refused with what helps" {
	need_all_cpus
	make_group
	local status=0
	sp-capture --cgroup stackpulse-none -d 1 >out 2>log || status=$?
	equal "$status" 1
	[ ! -s out ]
	grep -q "there is no such group below $(cgroup2)" log
	grep -q "/proc/PID/cgroup" log
	mkdir "$group"/docker-{a,b}"$(printf '%063x' 5)".scope
	mkdir "$group/x" "$group/x/docker-a$(printf '%063x' 6).scope"
	status=0
	sp-capture --cgroup a00000000000 -d 1 >out 2>log || status=$?
	rmdir "$group/x/docker-a$(printf '%063x' 6).scope"
	equal "$status" 1
	grep -q "2 groups are called so" log
}

@test "a container of cgroup v1 is refused as one, and its processes are labelled by it" {
	need_all_cpus
	local v1 id status=0
	id=$(printf '%032x' $$)$(printf '%032x' 7)
	v1=$(awk '$(NF - 2) == "cgroup" && /[, ](freezer|memory|pids)( |,|$)/ { print $5; exit }' /proc/self/mountinfo)
	[ -n "$v1" ] || skip "no cgroup v1 is mounted"
	group=$v1/stackpulse-test-$$
	mkdir "$group" 2>/dev/null || {
		group=
		skip "this user may not make control groups"
	}
	mkdir "$group/docker" "$group/docker/$id"
	start_in "$group/docker/$id" chain-pie inside 60000
	local inside=$pid
	sp-capture --cgroup "${id:0:50}" -d 1 >out 2>log || status=$?
	sp-capture -p "$inside" -d 0.2 >s 2>log.2
	kill -9 "$inside"
	wait "$inside" 2>/dev/null || :
	await rmdir "$group/docker/$id"
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	grep -q "it is one of cgroup v1 only ($group/docker/$id)" log
	grep -q "systemd.unified_cgroup_hierarchy=1" log
	sp-unwind -q <s | sp-spool -q -o x.spool
	equal "$(sp-sym -q --group=container --format=folded x.spool | cut -d';' -f1 | sort -u)" "docker:${id:0:12}"
}

online=/sys/devices/system/cpu/cpu1/online

need_hotplug() {
	{ [ "$(cat $online)" = 1 ] && echo 1 >$online; } 2>/dev/null || skip "no CPU can be taken away here"
}

take_away() { away=$online && echo 0 >$online; }
bring_back() { echo 1 >$online && away=''; }

# bats test_tags=alone
@test "-a: a CPU that was away is recorded again, and one line says so" {
	need_all_cpus
	need_hotplug
	start chain-pie pinned 60000
	local pinned=$pid
	start chain-pie other 60000
	taskset -pc 0,1 "$pinned" >/dev/null
	begin -a
	await_samples_of "$pinned"
	take_away
	bring_back
	await grep -q "CPU 1 is back: recorded from now on" log
	taskset -pc 1 "$pinned" >/dev/null
	stream until s samples $(($(samples_of "$pinned") + 110)) "$pinned"
	end
	equal "$(cat $online)" 1 "CPU 1"
	[ "$(stream cpus s | awk -v p="$pinned" '$1 == p && $2 == 1 { print $3 }')" -ge 100 ]
}

# A command that waits for a line, then runs 50 short processes on CPU 1 and 300 ms of another. Little
# environment, so that the arguments are copied (capture.bats).
begin_on_cpu_1() { # OPTION…
	rm -f go ready
	mkfifo go
	# shellcheck disable=SC2016 # the inner shell's
	begin "$@" -- env -i PATH="$PATH" sh -c ': >ready; read -r _ <go; taskset -pc 1 $$; i=0
		while [ $i -lt 50 ]; do "$0" 1; i=$((i + 1)); done; "$1" 300; :' "$SP_PROG/short" "$SP_PROG/chain-pie"
	await test -e ready
}

# How many processes have exec markers: one that was met between fork and exec has two.
execing() { stream ext s | awk '$1 == "exec" { print $2 }' | sort -u | wc -l; }

# All of the processes that it ran there, and samples of them.
ran_on_cpu_1() {
	echo >go
	wait "$capture" || fail "$(cat log)"
	equal "$(execing)" 53 "sh, taskset, chain-pie and 50 that are short"
	[ "$(stream ext s | grep -c "^exec .*short 1 $")" -ge 25 ] || fail "$(stream ext s | grep '^exec' | head)"
	stream cpus s | awk '$2 == 1 { n += $3 } END { exit !(n > 100) }' || fail "$(stream cpus s)"
	stream order s
}

# bats test_tags=alone
@test "a launched command, by BPF: a CPU that was away, and one that was not there, is recorded" {
	need_all_cpus
	need_bpf
	need_tracefs
	need_hotplug
	begin_on_cpu_1 --engine=bpf
	take_away
	bring_back
	await grep -q "CPU 1 is back: recorded from now on; what it ran in the .* s before may be missing" log
	ran_on_cpu_1
	holds "$(cat log)" " samples, 1 lost; "
	stream ext s | grep -q '^loss'
	stream ext s | grep -q 'lifecycle_gaps [1-9]'
	take_away
	begin_on_cpu_1 --engine=bpf
	bring_back
	await grep -q "CPU 1 appeared: recorded from now on" log
	ran_on_cpu_1
}

# bats test_tags=alone
@test "a launched command, by perf events: a CPU that was away is recorded, one that was not there is warned of" {
	need_tracefs
	need_hotplug
	begin_on_cpu_1 -v --engine=perf
	take_away
	bring_back
	await grep -q "CPU 1 is back" log
	ran_on_cpu_1
	take_away
	begin_on_cpu_1 --engine=perf
	bring_back
	await grep -q "CPU 1 was offline at the start: what it runs from now on is not recorded" log
	echo >go
	wait "$capture" || fail "$(cat log)"
	equal "$(stream cpus s | awk '$2 == 1')" "" "samples there"
}

# The list of CPUs is read, then one goes: for who begins then, it never changes.
# bats test_tags=alone
@test "a CPU that goes as the recording begins: said, and recorded once it is back" {
	need_all_cpus
	need_bpf
	need_tracefs
	need_hotplug
	unshare -m true 2>/dev/null || skip "this user has no mount namespaces"
	local how
	cat /sys/devices/system/cpu/online >cpus
	for how in "" -a; do
		mkfifo go
		rm -f log ready
		take_away
		# shellcheck disable=SC2086,SC2016 # words; the inner shell's
		unshare -m sh -c 'mount --bind cpus /sys/devices/system/cpu/online && exec sp-capture "$@"' sh -F 99 $how -- \
			sh -c ': >ready; read -r _ <go; taskset -pc 1 $$; "$@"; :' sh "$SP_PROG/cap_storm" 300 >s 2>log 3>&- &
		capture=$!
		pids+=("$capture")
		await test -e ready
		bring_back
		holds "$(cat log)" "CPU 1 is offline: recorded from when it is back"
		await grep -q "CPU 1 is back: recorded from now on" log
		echo >go
		wait "$capture" || fail "$(cat log)"
		# sh, taskset, cap_storm and its 300; with -a others too.
		[ "$(execing)" = 303 ] || { [ "$how" = -a ] && [ "$(execing)" -gt 303 ]; } || fail "$how: $(execing) processes"
		rm go
	done
	equal "$(cat $online)" 1 "CPU 1"
}

@test "a user who may not record all CPUs is told why, and what helps; nothing is written" {
	[ "$(id -u)" = 0 ] || skip "needs root to become nobody"
	[ "$(cat /proc/sys/kernel/perf_event_paranoid)" -gt 0 ] || skip "everybody may here"
	pub=$(mktemp -d /tmp/stackpulse.XXXXXX)
	cp "$SP_BUILD/bin/sp-capture" "$pub"
	chmod -R a+rX "$pub"
	local status=0
	setpriv --reuid=65534 --regid=65534 --clear-groups "$pub/sp-capture" -a -d 1 >out 2>log || status=$?
	equal "$status" 1
	[ ! -s out ] || fail "output after a refusal"
	grep -q "perf_event_open: Permission denied (perf_event_paranoid is" log
	grep -q "sudo sysctl kernel.perf_event_paranoid=0" log
}

@test "what does not go with -a is refused by name" {
	local what
	for what in "-p 1" "-t 1" "--stop" "--descendants" "--no-follow"; do
		local status=0
		# shellcheck disable=SC2086 # two words
		sp-capture -a $what >out 2>log || status=$?
		equal "$status" 2 "-a $what"
		[ ! -s out ]
		holds "$(cat log)" "-a"
	done
	for what in "--exclude 1" "--idle" "--kernel-threads"; do
		status=0
		# shellcheck disable=SC2086
		sp-capture -p 1 $what >out 2>log || status=$?
		equal "$status" 2 "-p 1 $what"
		holds "$(cat log)" "belongs to -a and --cgroup"
	done
}

@test "control groups and containers travel as labels: pprof, --group=container, stats" {
	need_all_cpus
	make_group
	local id
	id=$(printf '%064x' 77)
	mkdir "$group/docker-$id.scope" "$group/machine-web.scope"
	start_in "$group/docker-$id.scope" chain-pie indocker 60000
	local docker=$pid
	start_in "$group/machine-web.scope" chain-pie inweb 60000
	local web=$pid
	start_in "$group" chain-pie plain 60000
	local plain=$pid
	start chain-pie outside 60000
	local outside=$pid
	begin -a
	await_samples_of "$docker" "$web" "$plain" "$outside"
	end
	local p
	kill -9 "$docker" "$web" "$plain"
	sp-unwind -q <s | sp-spool -q -o x.spool
	sp-sym -q --group=container --format=folded x.spool >folded
	local where=${group#"$(cgroup2)"}
	for p in "docker:${id:0:12}" web "$where"; do
		grep -qF "$p;" folded || fail "no group $p" "$(cut -d';' -f1 folded | sort | uniq -c)"
	done
	sp-sym -q --group=container --format=flamegraph -o x.html x.spool
	grep -qF '{"group":"container",' x.html
	grep -qF '{"label":"web"}' x.html
	equal "$(sp-sym -q --pid "$docker" --group=container --format=folded x.spool | cut -d';' -f1 | sort -u)" "docker:${id:0:12}"
	equal "$(sp-sym -q --pid "$outside" --group=container --format=folded x.spool | cut -d';' -f1 | sort -u)" host
	sp-sym -q --format=stats x.spool | sed -n '/^Containers/,/^$/p' >stats
	grep -q " web$" stats
	sp-sym -q --pid "$docker" --format=pprof -o x.pb.gz x.spool
	{ zcat x.pb.gz 2>/dev/null || cat x.pb.gz; } >x.pb
	for p in container_id "$id" "docker:${id:0:12}" cgroup "$where/docker-$id.scope"; do
		grep -qaF "$p" x.pb || fail "pprof lacks $p"
	done
	# A merged spool says the same.
	sp-spool -q x.spool -o y.spool
	for p in "$docker" "$web" "$outside"; do
		cmp <(sp-sym -q --pid "$p" --group=container --format=folded x.spool) \
			<(sp-sym -q --pid "$p" --group=container --format=folded y.spool)
	done
}

@test "--check says whether all processes, or a control group, can be recorded" {
	need_all_cpus
	sp-capture --check -a >out
	grep -q '^  all processes  *yes' out
	local status=0
	sp-capture --check --cgroup stackpulse-none >out || status=$?
	equal "$status" 1
	grep -q '^  control group  *no: .*there is no such group' out
}
