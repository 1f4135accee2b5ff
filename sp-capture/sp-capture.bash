# bash completion for sp-capture                           -*- shell-script -*-

_sp_capture() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i
	# Behind "--" stands a command with its own completion.
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			if declare -F _command_offset >/dev/null; then
				_command_offset $((i + 1))
			else
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			fi
			return
		fi
	done
	# readline splits words at "=": --embed = auto
	[[ $cur == "=" ]] && cur=
	[[ $prev == "=" ]] && ((COMP_CWORD >= 2)) && prev=${COMP_WORDS[COMP_CWORD - 2]}
	case $prev in
	--cgroup)
		mapfile -t COMPREPLY < <(compgen -W "$(cut -d: -f3 /proc/[0-9]*/cgroup 2>/dev/null | sort -u)" -- "$cur")
		return
		;;
	-p | --pid | --exclude)
		mapfile -t COMPREPLY < <(compgen -W "$(ps -eo pid= 2>/dev/null)" -- "$cur")
		return
		;;
	-t | --tid)
		mapfile -t COMPREPLY < <(compgen -W "$(ps -eLo tid= 2>/dev/null)" -- "$cur")
		return
		;;
	-F | --frequency)
		mapfile -t COMPREPLY < <(compgen -W "99 999 4999 max" -- "$cur")
		return
		;;
	-s | --stack-size)
		mapfile -t COMPREPLY < <(compgen -W "8K 16K 32K 60K 65528" -- "$cur")
		return
		;;
	--max-size | --min-free)
		mapfile -t COMPREPLY < <(compgen -W "100M 512M 1G 4G" -- "$cur")
		return
		;;
	--ring)
		mapfile -t COMPREPLY < <(compgen -W "1M 4M 16M 64M" -- "$cur")
		return
		;;
	-e | --event)
		mapfile -t COMPREPLY < <(compgen -W "cycles instructions cache-references cache-misses \
			branches branch-misses bus-cycles ref-cycles cpu-clock task-clock page-faults \
			minor-faults major-faults context-switches cpu-migrations alignment-faults \
			emulation-faults" -- "$cur")
		return
		;;
	--engine)
		mapfile -t COMPREPLY < <(compgen -W "auto perf bpf" -- "$cur")
		return
		;;
	--embed)
		mapfile -t COMPREPLY < <(compgen -W "none auto all" -- "$cur")
		return
		;;
	-o | --output | --control)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--stats)
		mapfile -t COMPREPLY < <(compgen -W json -- "$cur")
		return
		;;
	-d | --duration | -D | --delay | --start-time-us | --interval-us)
		return
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "-p --pid -t --tid -a --all-cpus --cgroup= \
		--exclude= --kernel-threads --idle -F --frequency -s --stack-size -k --kernel \
		-f --follow --no-follow --descendants -d --duration -D --delay -e --event --engine= --off-cpu --stop --embed= \
		-o --output --control= --start-time-us= --interval-us= --ring= --max-size= --min-free= --check -q --quiet \
		-v --verbose --stats=json -h --help -V --version --" -- "$cur")
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
}
complete -F _sp_capture sp-capture
