# bash completion for sp-sym                               -*- shell-script -*-

_sp_sym() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	# readline splits words at "=": --symfs = DIR
	[[ $cur == "=" ]] && cur=
	[[ $prev == "=" && COMP_CWORD -ge 2 ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}
	local words=
	compopt -o filenames 2>/dev/null
	case $prev in
	-f | --format) words="top tree text raw folded flamegraph json pprof firefox speedscope callgrind diff lines jsonl otlp stats stats-json" ;;
	-g | --group) words="none process thread comm pool container state waker" ;;
	-w | --weight) words="samples time weight" ;;
	--sort) words="self total" ;;
	--table) words="samples stacks" ;;
	--debuginfod) words="auto never cache" ;;
	--perf-maps) words="marked none any last" ;;
	--stats) words=json ;;
	-o | --output | --exe | --diff | --debug-dir)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--symfs | --path-map | --perf-map-dir)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--symbolizer)
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		return
		;;
	--time | -p | --pid | -t | --tid | --comm | -e | --event | --module | --function | --file | -m | --min-percent | \
		-d | --depth | -n | --limit | --width | --require | -j | --jobs)
		return
		;;
	esac
	if [[ $words ]]; then
		compopt +o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	elif [[ $cur == -* ]]; then
		compopt +o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "-f --format= -o --output= --diff= --file= --table= --time= -p --pid= -t --tid= \
			--comm= -e --event= --module= --function= --kernel --user --hide-runtime --no-inline \
			-g --group= -r --reverse --lines -w --weight= -m --min-percent= -d --depth= -n --limit= --sort= \
			--width= --follow --require= --path-map= --symfs= --debug-dir= --debuginfod= --perf-maps= --perf-map-dir= \
			--no-demangle --symbolizer= --no-cache -j --jobs= --exe= -q --quiet -v --verbose --stats=json -h --help \
			-V --version" -- "$cur")
		[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}
complete -F _sp_sym sp-sym
