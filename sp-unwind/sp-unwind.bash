# bash completion for sp-unwind                            -*- shell-script -*-

_sp_unwind() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	# readline splits words at "=": --symfs = DIR
	[[ $cur == "=" ]] && cur=
	[[ $prev == "=" ]] && ((COMP_CWORD >= 2)) && prev=${COMP_WORDS[COMP_CWORD - 2]}
	compopt -o filenames 2>/dev/null
	case $prev in
	-o | --output | --dump-cfi | --debug-dir)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--symfs | --path-map)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--stats)
		mapfile -t COMPREPLY < <(compgen -W json -- "$cur")
		return
		;;
	-j | --jobs)
		mapfile -t COMPREPLY < <(compgen -W "1 2 4 8 $(nproc 2>/dev/null)" -- "$cur")
		return
		;;
	esac
	if [[ $cur == -* ]]; then
		compopt +o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "-o --output -j --jobs --path-map= --symfs= \
			--debug-dir= --dump-cfi= -q --quiet -v --verbose --stats=json -h --help \
			-V --version" -- "$cur")
		[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}
complete -F _sp_unwind sp-unwind
