#!/bin/sh
# Starts the first of several programs that is there, with its own words and then the caller's.
#   agent.sh fenced|bare COUNT VARIABLES [NAME=VALUE...] PROGRAM WORD... [COUNT ...]... 0 [CALLERS-WORD...]
# COUNT: how many words follow VARIABLES, which says how many of them are variables. Which of the programs the PATH has is
# known only here: homes and other disks are not inside. Exit status 127 where it has none. A value that begins with ./ is
# made absolute: programs do not agree on what else it would be relative to. Sourced by nothing; run by the wrappers.
set -f
wg_where=$1
shift
wg_here=$(pwd -P) wg_missing='' wg_passed_over='' wg_gone='' wg_program=''

# A program on the PATH, into wg_found: not from where a command could have put it. That is the project, also where this
# persona does not write it, and inside a fence whatever can be written: of the host nothing can, unless it is granted so.
find_program() {
  wg_found=
  case $1 in
    */*)
      [ -f "$1" ] && [ -x "$1" ] && wg_found=$1
      [ -n "$wg_found" ]
      return
      ;;
  esac
  wg_ifs=$IFS IFS=:
  for wg_directory in $PATH; do
    [ -d "$wg_directory" ] || wg_gone="$wg_gone${wg_gone:+, }$wg_directory"
    if [ -n "$wg_found" ] || [ ! -f "$wg_directory/$1" ] || [ ! -x "$wg_directory/$1" ]; then continue; fi
    case $(CDPATH='' cd -P -- "$wg_directory" && pwd -P)/ in
      "$wg_here"/*) wg_passed_over="$wg_passed_over${wg_passed_over:+, }$wg_directory/$1" ;;
      /*)
        if [ "$wg_where" = fenced ] && { [ -w "$wg_directory" ] || [ -w "$wg_directory/$1" ]; }; then
          wg_passed_over="$wg_passed_over${wg_passed_over:+, }$wg_directory/$1"
        else
          wg_found=$wg_directory/$1
        fi
        ;;
    esac
  done
  IFS=$wg_ifs
  [ -n "$wg_found" ]
}

while [ "$1" -gt 0 ]; do
  wg_left=$1 wg_variables=$2
  shift 2
  eval "wg_program=\${$((wg_variables + 1))}"
  if find_program "$wg_program"; then
    while [ "$wg_variables" -gt 0 ]; do
      case ${1#*=}$wg_here in
        ./*[\"\\]*)
          printf 'wavegen: error: %s: %s reads the path of the project as part of JSON (move it to a path without quotes and backslashes)\n' "$wg_here" "$wg_program" >&2
          exit 127
          ;;
        ./*) export "${1%%=*}=$wg_here/${1#*=./}" ;;
        *) export "${1?}" ;;
      esac
      shift
      wg_left=$((wg_left - 1)) wg_variables=$((wg_variables - 1))
    done
    shift
    # Its words are set aside, what belongs to the others is dropped, and what is left are the caller's.
    wg_words='' wg_number=1
    while [ "$wg_number" -lt "$wg_left" ]; do
      eval "wg_word$wg_number=\$1"
      wg_words="$wg_words \"\$wg_word$wg_number\""
      wg_number=$((wg_number + 1))
      shift
    done
    while [ "$1" -gt 0 ]; do shift $(($1 + 2)); done
    shift
    # No option of exec, which in this shell knows no end of them.
    case $wg_found in -*) wg_found=./$wg_found ;; esac
    eval "exec \"\$wg_found\" $wg_words \"\$@\""
  fi
  wg_missing="$wg_missing${wg_missing:+, }$wg_program"
  shift "$wg_left"
done
printf 'wavegen: error: %s: not inside (add the package to packages, or grant where it lies with paths, and where its links lead)\n' "$wg_missing" >&2
[ -z "$wg_gone" ] || printf 'wavegen: note: of your PATH these directories are not inside: %s\n' "$wg_gone" >&2
[ -z "$wg_passed_over" ] || printf 'wavegen: note: passed over, as a command could have put it there: %s\n' "$wg_passed_over" >&2
exit 127
