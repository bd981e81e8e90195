#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Shells complete ebbprof's commands, options and option values with the installed files.
#
# Needs these shells, enough memory for them, and tools/ebbprof/completion in the guest:
# `scripts/vm run --mem 2G --packages bash fish zsh --add tools/ebbprof/completion`.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

completion=/root/completion

# offers SHELL WORDS WANTED...: checks that SHELL offers each WANTED for the last one of WORDS.
offers() {
	shell=$1 words=$2
	shift 2
	must "in_$shell" "$words" >"$work/offered"
	cat "$work/offered"
	for wanted; do
		grep -qx -e "$wanted" "$work/offered" || fail "$shell: '$words' is not completed by '$wanted'"
	done
}

# Completes as bash-completion does: the file names the function that completes the words.
in_bash() {
	bash --norc -c '
		. "$1"/ebbprof || exit
		read -ra COMP_WORDS <<<"$2"
		[[ $2 != *" " ]] || COMP_WORDS+=("")
		COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		by=$(complete -p ebbprof) && by=${by##*-F } && by=${by%% *} || exit
		"$by" ebbprof "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
		printf "%s\n" "${COMPREPLY[@]}"
	' bash "$completion" "$1"
}

bash_completes() {
	offers bash 'ebbprof rep' report
	offers bash 'ebbprof ' record report collapsed flame pprof compare check completion
	offers bash 'ebbprof record --per' --period
	offers bash 'ebbprof report --by ' symbol object thread
	[ "$(grep -c . "$work/offered")" -eq 3 ] || fail "more than three values"
}

in_fish() {
	# Remove the descriptions.
	fish --no-config -c 'source $argv[1]/ebbprof.fish; complete -C $argv[2]' "$completion" "$1" | cut -f 1
}

fish_completes() {
	offers fish 'ebbprof rep' report
	offers fish 'ebbprof record --per' --period
	offers fish 'ebbprof report --by ' symbol object thread
}

# Runs a zsh at a terminal, and prints its line after the tabulator.
in_zsh() {
	cat >"$work/ask.zsh" <<-'END'
		zmodload zsh/zpty
		zpty shell zsh -f -i
		zpty -w shell 'PS1= PS2= RPS1=; unsetopt prompt_cr prompt_sp zle_bracketed_paste 2>/dev/null'
		zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $2"
		# The line after the completion.
		zpty -w shell 'show() { print; print "LINE <$BUFFER>"; zle kill-buffer; }; zle -N show; bindkey "^X" show'
		zpty -w shell 'print -r "REA""DY"'
		zpty -r shell line '*READY*'
		zpty -n -w shell "$3"$'\t'
		zpty -n -w shell $'\x18'
		zpty -r shell line '*LINE <*>*'
		print -r -- "${${line##*LINE <}%%>*}"
	END
	zsh -f "$work/ask.zsh" "$completion" "$work/dump" "$1" | sed 's/ *$//'
}

zsh_completes() {
	offers zsh 'ebbprof repo' 'ebbprof report'
	# This uses the function that the first completion has loaded.
	offers zsh 'ebbprof record --per' 'ebbprof record --period='
	offers zsh 'ebbprof report --by th' 'ebbprof report --by thread'
}

# Without ebbprof there are no completions, and no error messages.
missing_program_is_borne() {
	bash=$(command -v bash)
	! PATH=/nowhere "$bash" --norc -c '. "$0"/ebbprof' "$completion" >"$work/said" 2>&1 || fail "bash loads the completion"
	must [ ! -s "$work/said" ]
}

for name in bash fish zsh; do
	command -v $name >/dev/null || skip_all "there is no $name"
done
run_tests bash_completes fish_completes zsh_completes missing_program_is_borne
