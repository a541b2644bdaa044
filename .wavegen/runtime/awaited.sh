#!/bin/sh
# The first process in a container of compose whose network is filtered: waits for the service that is its network, and
# lets stage.py, or stage.pl where there is no Python, open the sockets, hand them over and become the command.
#
#   /bin/sh awaited.sh CHANNEL COMMAND [ARGUMENT...]
set -u
here=${0%/*} channel=$1
shift
left=300
until [ -S "$channel" ]; do
  left=$((left - 1))
  if [ "$left" -le 0 ]; then
    printf 'wavegen: error: the network of the shell does not answer (see the messages of its service: .wavegen/docker/compose logs)\n' >&2
    exit 125
  fi
  sleep 0.1 || exit 125
done
if python3 -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  exec python3 -I -S "$here/stage.py" "$channel" -- "$@"
fi
exec perl -T "$here/stage.pl" "$channel" -- "$@"
