#!/bin/sh
# shellcheck disable=SC2034  # eval uses what is set here
# The first program in a container: opens what is listened on, takes the last rights from the command, and becomes it.
#   contained.sh RUNTIME PATH JUDGED COUNT [OPTION-OF-THE-SHIM...] COMMAND...
# PATH: directories to be searched before the image's own, each with a colon behind. JUDGED: 1 where a launcher outside waits for
# what is listened on, else 0. What of perl and python3 the image has is known only here. Exit status 125 where nothing was run.
# Sourced by nothing; run by the image's /bin/sh.
set -f
unset HOSTNAME
# podman says so unasked.
[ "${container-}" != podman ] || unset container
# A core file would be a copy of secrets. By --ulimit podman would forget the limits that its settings give containers.
# shellcheck disable=SC3045  # every sh knows it
ulimit -c 0
wg_runtime=$1 wg_path=$2$PATH wg_judged=$3 wg_number=$4
shift 4
PATH=$wg_path
export PATH
wg_perl=$(command -v perl) || wg_perl=
wg_python=$(command -v python3) || wg_python=
# sh has one list alone: the options are set aside, and put before the command's words by eval.
wg_options=''
while [ "$wg_number" -gt 0 ]; do
  eval "wg_option$wg_number=\$1"
  wg_options="$wg_options \"\$wg_option$wg_number\""
  wg_number=$((wg_number - 1))
  shift
done
wg_mounted='
'
while read -r _ _ wg_device wg_root wg_at wg_option _; do
  wg_mounted="$wg_mounted$wg_device $wg_root $wg_at any
"
  case $wg_option in ro | ro,*) wg_mounted="$wg_mounted$wg_device $wg_root $wg_at ro
" ;; esac
done </proc/self/mountinfo
wg_comparable=''
while read -r wg_line; do
  case $wg_mounted in
    *"
$wg_line
"*) wg_comparable=1 ;;
    *)
      # The first is no command's to exchange. Where the kernel inside tells of another, it is not the host's.
      [ -n "$wg_comparable" ] || break
      wg_line=${wg_line#* * }
      printf 'wavegen: error: at %s is not what was to be mounted there (another shell of the project may have exchanged it: try again when that has ended)\n' "${wg_line% *}" >&2
      exit 125
      ;;
  esac
done </run/wavegen/mounts
exec 3>/run/wavegen/report || exit 125
[ "$#:$1" != 1:bash ] || command -v bash >/dev/null || set -- sh
if [ -n "$wg_perl" ]; then
  export PERL_BADLANG=0
  eval "set -- \"\$wg_perl\" -T \"\$wg_runtime/landlock.pl\" --unset PERL_BADLANG $wg_options --started 3 -- \"\$@\""
elif [ -n "$wg_python" ]; then
  eval "set -- \"\$wg_python\" -I -S \"\$wg_runtime/shim.py\" $wg_options --started 3 -- \"\$@\""
fi
if [ "$wg_judged" = 1 ]; then
  if [ -n "$wg_python" ]; then
    set -- "$wg_python" -I -S "$wg_runtime/stage.py" /run/wavegen/channel -- "$@"
  elif [ -n "$wg_perl" ]; then
    set -- "$wg_perl" -T "$wg_runtime/stage.pl" /run/wavegen/channel -- "$@"
  else
    echo 'wavegen: error: the image has neither python3 nor perl, without which no connection can be judged (put one of them into the image)' >&2
    exit 125
  fi
elif [ -z "$wg_perl$wg_python" ]; then
  echo started >&3
  exec 3>&-
fi
exec "$@"
