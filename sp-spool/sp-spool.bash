# bash completion for sp-spool                             -*- shell-script -*-

_sp_spool() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	# readline splits words at "=": --check = FILE
	[[ $cur == "=" ]] && cur=
	[[ $prev == "=" ]] && ((COMP_CWORD >= 2)) && prev=${COMP_WORDS[COMP_CWORD - 2]}
	local words=
	case $prev in
	--time-resolution) words="1ns 1us 10us 100us 1ms" ;;
	--level) words="1 3 9 19" ;;
	--rotate) words="100M 1G 10m 1h" ;;
	--min-free) words="500M 1G 2G" ;;
	--only) words="pid= tid= comm=" ;;
	--stats) words=json ;;
	esac
	if [[ -z $words && $cur == -* ]]; then
		words="-o --output= -a --append --rotate= --cut= --only= --time-resolution= --sync --level= --min-free= --check= -q --quiet -v \
			--verbose --stats=json -h --help -V --version"
	fi
	if [[ $words ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
		[[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}
complete -F _sp_spool sp-spool
