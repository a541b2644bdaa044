#!/bin/sh
# Starts, inside, the first of several programs that is there, with its own words and then the caller's.
#   agent.sh COUNT [NAME=VALUE...] PROGRAM WORD... [COUNT ...]... 0 [CALLERS-WORD...]
# Which of them the PATH inside has is known only here: homes and other disks are not there. Exit status 127 where it
# has none. A value that begins with ./ is made absolute: programs do not agree on what else it would be relative to.
missing=
while [ "$1" -gt 0 ]; do
  left=$1 variables=0
  shift
  for word; do
    case $word in *=*) variables=$((variables + 1)) ;; *) break ;; esac
  done
  if command -v "$word" >/dev/null 2>&1; then
    while [ "$variables" -gt 0 ]; do
      case ${1#*=}$PWD in
        ./*[\"\\]*)
          printf 'wavegen: error: %s: programs read the path of the project as part of JSON (move it to a path without quotes and backslashes)\n' "$PWD" >&2
          exit 127
          ;;
        ./*) export "${1%%=*}=$PWD/${1#*=./}" ;;
        *) export "${1?}" ;;
      esac
      shift
      left=$((left - 1)) variables=$((variables - 1))
    done
    # Its words go to the end, what belongs to the others is dropped, and the caller's words follow.
    own=$left
    while [ "$left" -gt 0 ]; do
      set -- "$@" "$1"
      shift
      left=$((left - 1))
    done
    while [ "$1" -gt 0 ]; do shift $(($1 + 1)); done
    shift
    theirs=$(($# - own))
    while [ "$theirs" -gt 0 ]; do
      set -- "$@" "$1"
      shift
      theirs=$((theirs - 1))
    done
    exec "$@"
  fi
  missing="$missing${missing:+, }$word"
  shift "$left"
done
# The PATH is the caller's: what lies in directories that are not there is what somebody misses.
gone=
IFS=:
set -f
for directory in $PATH; do
  [ -d "$directory" ] || gone="$gone${gone:+, }$directory"
done
printf 'wavegen: error: %s: not inside (add the package to packages, or grant where it lies with paths, and where its links lead)\n' "$missing" >&2
[ -z "$gone" ] || printf 'wavegen: note: of your PATH these directories are not inside: %s\n' "$gone" >&2
exit 127
