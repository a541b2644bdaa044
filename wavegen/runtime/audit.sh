# shellcheck shell=bash disable=SC2154,SC2034,SC2086  # the wrapper and the other files set and use wg_ variables; a word that may be none
#
# What a shell leaves is looked at once all in it has ended. Sourced by the wrappers that no launcher written in Python does it for.

# One line about what the host would run or follow later. Where nothing at all has changed, find says so in no time, and
# removes in the same go what was made for this session.
audit() {
  local name since=$wg_marker said
  names_in "${wg_state%/*}"
  for name in "${REPLIES[@]}"; do
    # A session before this one that was not audited, or has left something.
    [[ $name != entered-* || ! ${wg_state%/*}/$name -ot $since ]] || since=${wg_state%/*}/$name
  done
  if [[ -z $wg_unended ]] && tool find; then
    said=$(exec "$REPLY" -P "${wg_groups[@]}" "$wg_project" "$wg_marker" -noleaf -depth \
      '(' -path "/sys/fs/cgroup/*/wavegen-$$" -o -path "*/${wg_marker##*/}" ')' -delete -o \
      -path '/sys/fs/cgroup/*' -o -newercm "$since" -print -quit 2>&1) && [[ -z $said ]] && return 0
  fi
  ((${#wg_groups[@]} == 0)) || leave_groups
  if ! tool python3; then
    printf 'wavegen: note: files have changed; wavegen audit names what the host would run of them\n' >&2
    return 0
  fi
  "$REPLY" -I -S "$wg_runtime/audit.py" --project "$wg_project" --state "${wg_state%/*}" --summary ${wg_unended:---done "$wg_marker"} </dev/null
}

wg_read=audit.sh  # all of it
