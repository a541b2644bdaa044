# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# A shell whose connections nobody judges: bwrap is started from here, and what it leaves is looked at once all is ended.
# Sourced by the wrappers of shells with network: host or none.

enter() {
  local wg_report wg_status wg_group
  # The report says whether the command was started at all: bwrap's own failures have the status 1 too.
  exec {wg_out}>&1
  [[ -z $wg_keep ]] || trap '' INT QUIT
  wg_report=$(
    for wg_group in "${wg_groups[@]}"; do
      bound "$wg_group/cgroup.procs" "$BASHPID" || die "$wg_group cannot be joined" 'try again'
    done
    exec "${wg_scope[@]}" "$wg_bwrap" --json-status-fd 4 "${wg_fence[@]}" "${wg_session[@]}" -- \
      "${wg_shim[@]}" "${wg_command[@]}" 4>&1 1>&"$wg_out" {wg_out}>&-
  )
  wg_status=$?
  ended || printf 'wavegen: warning: something inside has not ended; wavegen audit looks at what it leaves\n' >&2
  audit
  if [[ $wg_report == *'"exit-code"'* ]] || ((wg_status != 1)); then exit "$wg_status"; fi
  not_started
}

# bwrap ends before the kernel has ended everything inside, and until then files may be written. The first process of a PID
# namespace becomes a zombie only after all others are gone (pid_namespaces(7)).
ended() {
  local first stat turn
  [[ $wg_report =~ \"child-pid\":\ ([0-9]+) ]] || return 0
  first=${BASH_REMATCH[1]}
  for turn in {1..550}; do
    read -r stat 2>/dev/null </proc/"$first"/stat || return 0
    case ${stat##*) } in Z* | X*) return 0 ;; esac
    ((turn < 50)) || sleep 0.01
  done
  wg_unended=1
  return 1
}

# bwrap has said why on stderr. Is it the machine, or this fence?
not_started() {
  local said
  said=$("$wg_bwrap" "${wg_fence[@]}" -- /bin/sh -c : 2>&1 </dev/null)
  case $said in
    *'setting up uid map'* | *'new namespace'* | *'Operation not permitted'* | *'RTM_NEWADDR'*)
      cannot 'this machine does not let bwrap make namespaces' 'see user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns with sysctl; wavegen doctor says which' ;;
    *) cannot 'bwrap could not build the fence' 'its message stands above' ;;
  esac
}

wg_read=direct.sh  # all of it
