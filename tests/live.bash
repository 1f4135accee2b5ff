# shellcheck shell=bash
# What the suites share that record running programs: load it after lib.

# A program of $SP_PROG in the background; $pid is its pid.
start() { # PROGRAM [ARG…]
	local program=$1
	shift
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
	sp-capture "$@" >"$out" 2>log 3>&- &
	capture=$!
	pids+=("$capture")
	await grep -q recording log
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
