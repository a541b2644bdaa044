#!/bin/sh
# shellcheck disable=SC2034  # eval uses what is set here
# The first program in a container: hands over what is listened on, takes the last rights from the command, and becomes it.
#   contained.sh RUNTIME PATH COUNT [OPTION-OF-THE-SHIM...] NETWORK COMMAND...
# PATH: directories to be searched before the image's own, each with a colon behind. NETWORK: 0, or how many words for the stage
# follow it. What of perl and python3 the image has is known only here; without both the second layer is not there, and no
# connection can be judged. Exit status 125 where nothing was run. Sourced by nothing; run by the image's /bin/sh.
set -f
unset HOSTNAME
wg_runtime=$1 wg_path=$2$PATH wg_count=$3
shift 3
PATH=$wg_path
export PATH
wg_perl=$(command -v perl) || wg_perl=
wg_python=$(command -v python3) || wg_python=
exec 3>/run/wavegen/report || exit 125
wg_words=''
# sh keeps one list alone: the shim's options go behind the command's words, and the whole is turned round by eval.
wg_number=0
while [ "$wg_number" -lt "$wg_count" ]; do
  eval "wg_option$wg_number=\$1"
  wg_words="$wg_words \"\$wg_option$wg_number\""
  wg_number=$((wg_number + 1))
  shift
done
shift
[ "$#:$1" != 1:bash ] || command -v bash >/dev/null || set -- sh
if [ -n "$wg_perl" ]; then
  export PERL_BADLANG=0
  eval "set -- \"\$wg_perl\" -T \"\$wg_runtime/landlock.pl\" --unset PERL_BADLANG $wg_words --limit core=0 --started 3 -- \"\$@\""
elif [ -n "$wg_python" ]; then
  eval "set -- \"\$wg_python\" -I -S \"\$wg_runtime/shim.py\" $wg_words --limit core=0 --started 3 -- \"\$@\""
else
  echo started >&3
  exec 3>&-
fi
exec "$@"
