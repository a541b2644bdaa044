# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# A shell whose connections are judged one by one: the launcher (launch.py) starts bwrap. Sourced by the wrappers of
# shells with network: open or filtered.
kept_apart() { # whether no command of this project can have written what wavegen keeps
  local place
  if [[ -z $wg_with_paths ]]; then
    # What other shells of the project may write: perhaps they were in force with another XDG_STATE_HOME.
    local wg_writable=("$wg_project" "$wg_kept")
    written_by_any
    wg_writable+=("${REPLIES[@]}")
  fi
  for place in "${wg_writable[@]:2}"; do
    if physical "$place"; then place=$REPLY; fi
    [[ $wg_kept/ != "${place%/}"/* && $place/ != "$wg_kept"/* ]] || return 1
  done
}

pythons() { # interpreters that may do, with colons between, into REPLY
  local directory minor found='' IFS=:
  # The usual case starts no program: python3 is a link to one whose name says that it is new enough.
  for directory in $PATH; do
    for minor in 10 11 12 13 14 15 16; do
      if [[ -x $directory/python3.$minor && $directory/python3 -ef $directory/python3.$minor && ! -L $directory ]] &&
        tool_in "$directory" "python3.$minor"; then return 0; fi
    done
  done
  for directory in $PATH $wg_path; do
    if tool_in "$directory" python3; then found+=${found:+:}$REPLY; fi
  done
  REPLY=$found
  [[ -n $REPLY ]]
}

find_launcher() {
  [[ $wg_fallback != warn ]] || ! hopeless ||
    cannot 'this machine does not let bwrap make namespaces' 'see user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns with sysctl; wavegen doctor says which'
  pythons || cannot 'python3 is not on the PATH' 'install python3 (3.10 or newer), or use nix develop'
  wg_pythons=$REPLY
  [[ -f $wg_runtime/launch.py ]] || die "$wg_runtime/launch.py is missing" 'run wavegen render'
  # Compiled forms are run as they are: not from where a command could have put them.
  ! kept_apart || wg_cache=(--cache "$wg_state/pycache")
}

# It makes the network's namespace, starts bwrap in it, and answers from here.
launch() {
  # Not in the arguments: it may hold a password.
  [[ $wg_proxy == $'\n'* ]] || export wg_upstream=$wg_proxy
  shopt -s execfail
  # shellcheck disable=SC2093
  exec "${wg_pythons%%:*}" -I -S "$wg_runtime/launch.py" --python "$wg_pythons" --state "$wg_state" "${wg_cache[@]}" --shell "$wg_shell" \
    --words "${#wg_command[@]}" --before "${#wg_scope[@]}" --project "$wg_project" ${wg_marker:+--marker "$wg_marker"} "${wg_groups[@]/#/--group=}" ${wg_keep:+--keep-interrupts} \
    "${wg_elsewhere[@]}" "${wg_network[@]}" -- \
    "${wg_scope[@]}" "$wg_bwrap" "${wg_fence[@]}" "${wg_session[@]}" -- "${wg_shim[@]}" "${wg_command[@]}"
  die 'the launcher cannot be started' 'shorten the command, and check python3'
}

wg_read=launched.sh  # all of it
