#!/bin/sh
# The first program in a container: compares what was mounted, opens what is listened on, takes the last rights, becomes the command.
#   container_entry.sh PATH FILTERED COUNT [OPTION-OF-RESTRICT_AND_EXEC...] COMMAND...
# PATH: directories before the image's own, each with a colon behind. FILTERED: 1 where the launcher outside waits for sockets.
# What of perl and python3 the image has is known only here. Exit status 125 where nothing was run.
set -fu
here=/run/wavegen
unset HOSTNAME
# podman says so unasked.
[ "${container-}" != podman ] || unset container
refuse() {
  printf 'wavegen: error: %s (%s)\n' "$1" "$2" >&2
  exit 125
}
exchanged='another shell of the project may have exchanged it: try again when that has ended'
PATH=$1$PATH filtered=$2 count=$3
export PATH
shift 3
perl=$(command -v perl) || perl=
python=$(command -v python3) || python=
# sh has one list alone: the options are set aside, and put before the command's words by eval.
options=''
while [ "$count" -gt 0 ]; do
  eval "option$count=\$1"
  options="$options \"\$option$count\""
  case $1 in
    [0-9]*:[0-9]*:/*)  # --expect: restrict_and_exec compares it where the image has what runs that
      [ -n "$perl$python" ] || [ "$(stat -c %d:%i -- "${1#*:*:}")" = "${1%":${1#*:*:}"}" ] || refuse 'what is mounted was exchanged while the sandbox was built' "$exchanged"
      ;;
  esac
  count=$((count - 1))
  shift
done
# Each mount is at its place: an engine follows links, and inodes are the same where nothing was mounted at all.
mounted='
'
while read -r _ _ _ _ at flags _; do
  mounted="$mounted$at any
"
  case $flags in ro | ro,*) mounted="$mounted$at ro
" ;; esac
done </proc/self/mountinfo
while read -r line; do
  case $mounted in
    *"
$line
"*) ;;
    *) refuse "at ${line% *} is not what was to be mounted there" "$exchanged" ;;
  esac
done <$here/mounts
exec 3>$here/report || exit 125
[ "$#:$1" != 1:bash ] || command -v bash >/dev/null || set -- sh
if [ -n "$perl" ]; then
  export PERL_BADLANG=0
  eval "set -- \"\$perl\" -T $here/restrict_and_exec.pl --unset PERL_BADLANG $options --started 3 -- \"\$@\""
elif [ -n "$python" ]; then
  eval "set -- \"\$python\" -I -S $here/restrict_and_exec.py $options --started 3 -- \"\$@\""
fi
if [ "$filtered" = 1 ]; then
  if [ -n "$python" ]; then set -- "$python" -I -S $here/listeners.py $here/channel -- "$@"
  elif [ -n "$perl" ]; then set -- "$perl" -T $here/listeners.pl $here/channel -- "$@"
  else refuse 'the image has neither python3 nor perl, without which no connection can be filtered' 'put one of them into the image'
  fi
elif [ -z "$perl$python" ]; then
  ulimit -c 0
  echo started >&3
  exec 3>&-
fi
exec "$@"
