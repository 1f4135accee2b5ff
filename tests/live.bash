# shellcheck shell=bash
# What the suites share that record running programs: load it after lib.

# A program of $SP_PROG in the background; $pid is its pid.
start() { # PROGRAM [ARG…]
	local program=$1
	shift
	rm -f start.out
	"$SP_PROG/$program" "$@" >start.out 2>&1 3>&- &
	pid=$!
	pids+=("$pid")
	# On a busy machine it is bash for a while: an exec that a recording would tell.
	until [ ! "/proc/$pid/exe" -ef "/proc/$$/exe" ]; do read -rt 0.01 <> <(:) || :; done
}

# sp-capture in the background, with its messages in log; returns once it records. $capture: its pid.
begin() { # OUTPUT OPTIONS…
	local out=$1
	shift
	rm -f log # of another one, which says that it records
	sp-capture "$@" >"$out" 2>log 3>&- &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
}

# A program that begins on begin_life's byte; descriptor 9 is its standard input.
start_life() { # MODE MS
	mkfifo go
	exec 9<>go
	"$SP_PROG/cap_life" "$@" <go >start.out 2>&1 3>&- 9>&- &
	pid=$!
	pids+=("$pid")
	until [ ! "/proc/$pid/exe" -ef "/proc/$$/exe" ]; do read -rt 0.01 <> <(:) || :; done
}
begin_life() { echo >&9; }

# Whose events are inherited from who has ended long ago, by more than a second: none of its samples
# is missing.
daemon_lives() { # ENGINE
	local stolen
	stolen=$(stolen_ms)
	start_life daemon 1500
	begin s --engine="$1" -f -p "$pid"
	begin_life
	wait "$capture" || fail "$(cat log)"
	equal "$(stream stacks s | awk -v p="$pid" '{ print $1 == p, $1 == $2 }' | sort -u)" "0 1" "whose samples"
	equal "$(stream stacks s | cut -d' ' -f1 | sort -u | wc -l)" 1 "processes with samples"
	lived_whole daemon_hot "$(stolen_ms "$stolen")"
}

leader_lives() { # ENGINE
	local stolen
	stolen=$(stolen_ms)
	start_life leader 1500
	begin s --engine="$1" -p "$pid"
	begin_life
	wait "$capture" || fail "$(cat log)"
	equal "$(stream stacks s | awk -v p="$pid" '{ print $1 == p, $1 == $2 }' | sort -u)" "1 0" "whose samples"
	lived_whole orphan_hot "$(stolen_ms "$stolen")"
}

# Time that the host takes is no CPU time of the process, but the clock of the samples goes on.
lived_whole() { # FUNCTION STOLEN_MS
	stream order s
	stream ext s | grep -q '^end status=0'
	local n
	n=$(stream stacks s | wc -l)
	[ "$n" -gt 1300 ] && [ "$n" -lt $((1600 + $2)) ] || fail "$n samples of 1500 ms and $2 that were stolen"
	equal "$(perf script --no-inline -F ip,sym -i - <s 2>/dev/null | grep -o '[a-z]*_hot$' | sort -u)" "$1"
}

# As a user without any privilege.
as_nobody() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		"$@"
	fi
}

# Copies of tools and programs where everybody can run them, in $pub.
publish() { # FILE…
	pub=$(mktemp -d /tmp/stackpulse.XXXXXX)
	cp "$SP_BUILD/bin/sp-capture" "$@" "$pub"
	chmod -R a+rX "$pub"
}

state_of() { awk '/^State:/ { print $2 }' "/proc/$1/status"; }
states_of() { cat /proc/"$1"/task/*/stat 2>/dev/null | sed 's/.*) //' | cut -c1 | sort -u | tr -d '\n'; }
has_threads() { [ "$(find /proc/"$1"/task -mindepth 1 -maxdepth 1 | wc -l)" = "$2" ]; }
in_state() { [ "$(states_of "$1")" = "$2" ]; }
