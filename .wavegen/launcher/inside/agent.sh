#!/bin/sh
# Starts the first of several programs that is there, with its own words and then the caller's.
#   agent.sh NUMBER PLACE... COUNT VARIABLES [NAME=VALUE...] PROGRAM WORD... [COUNT ...]... 0 [CALLERS-WORD...]
# NUMBER PLACE...: what commands may write (+PATH), and what they may not in it (-PATH), shallow to deep: of what may be written no program is
# taken, whatever its mode is, nor by a link that leads there.
# COUNT: how many words follow VARIABLES, which says how many of them are variables. Which of the programs the PATH has is
# known only here: homes and other disks are not inside. Exit status 127 where it has none. A value that begins with ./ is
# made absolute: programs do not agree on what else it would be relative to. The launcher gives it to sh as text.
set -f
wg_here=$(pwd -P) wg_missing='' wg_passed_over='' wg_gone='' wg_program='' wg_places=''
wg_left=$1
shift
while [ "$wg_left" -gt 0 ]; do
  # One a line: no place has a line's end in it that would matter, as each is compared from its beginning.
  wg_places="$wg_places$1
"
  wg_left=$((wg_left - 1))
  shift
done
for wg_readlink in /usr/bin/readlink /bin/readlink /run/current-system/sw/bin/readlink ''; do [ ! -x "$wg_readlink" ] || break; done

is_written() { # whether a path lies in one of the places that may be written
  wg_ifs2=$IFS wg_last=-
  IFS='
'
  for wg_place in $wg_places; do
    case $1/ in "${wg_place#?}"/*) wg_last=$wg_place ;; esac
  done
  IFS=$wg_ifs2
  case $wg_last in +*) return 0 ;; *) return 1 ;; esac
}

is_taken() { # whether a program on the PATH is none that a command could have put there
  wg_real=$(CDPATH='' cd -P -- "${1%/*}/" && pwd -P)/${1##*/}
  ! is_written "$wg_real" || return 1
  [ -L "$wg_real" ] || return 0
  [ -n "$wg_readlink" ] && wg_real=$("$wg_readlink" -f -- "$wg_real") && ! is_written "$wg_real"
}

# A program on the PATH, into wg_found.
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
    if is_taken "$wg_directory/$1"; then
      wg_found=$wg_directory/$1
    else
      wg_passed_over="$wg_passed_over${wg_passed_over:+, }$wg_directory/$1"
    fi
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
