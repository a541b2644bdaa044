# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# From the prepared places to bwrap: main() begins a shell of bin/. Sourced by the wrappers there, with the other files.

# Only where the machine forbids every fence: a place that an agent made unfit, or processes that it used up, are no
# reason to go without.
hopeless() {
  local said most
  [[ -n $wg_bwrap ]] || return 0
  said=$("$wg_bwrap" --unshare-user --unshare-pid --ro-bind / / -- /bin/sh -c : 2>&1) && return 1
  case $said in
    *'Permission denied'* | *'ermissions'* | *'not permitted'*) return 0 ;;
    *'No space left'*) read -r most </proc/sys/user/max_user_namespaces && ((most == 0)) ;;
    *) return 1 ;;
  esac
}

# A terminal that is shared with the host stays, with its job control, where the filter keeps the command from typing
# into it. Otherwise a session of its own: /dev/tty must not lead to the caller's.
session() {
  wg_session=()
  if [[ -z $wg_filter_name ]]; then
    wg_session+=(--new-session)
    return 0
  fi
  # bash's own word: HOSTTYPE may come from the environment.
  case ${BASH_VERSINFO[5]} in
    x86_64-* | aarch64-*) ;;
    *) die 'there is no system call filter for this machine' 'write seccomp: off if that is meant' ;;
  esac
  [[ -t 0 || -t 1 || -t 2 ]] || wg_session+=(--new-session)
  [[ -s $wg_seccomp/$wg_filter_name.bpf ]] || die "$wg_seccomp/$wg_filter_name.bpf is missing" 'run wavegen render'
  exec {wg_filter}<"$wg_seccomp/$wg_filter_name.bpf" || die 'the system call filter cannot be opened' 'raise the limit of open files: ulimit -n'
  wg_session+=(--seccomp "$wg_filter")
}

main() {
  local wg_interactive='' wg_print='' wg_keep=''
  local wg_elsewhere=() wg_pythons='' wg_cache=() wg_proxy=$'\n'

  [[ -z $wg_uses_upstream ]] || wg_proxy="${HTTPS_PROXY:-${https_proxy-}}"$'\n'"${NO_PROXY:-${no_proxy-}}"
  prepare "$@"
  tool bwrap || cannot 'bwrap is not on the PATH' 'install bubblewrap: apt install bubblewrap, dnf install bubblewrap, or use nix develop'
  wg_bwrap=$REPLY
  [[ -z $wg_proxied || -n $wg_print ]] || find_launcher
  look_for_logins
  start_directory
  local wg_inside=$REPLY
  [[ -z $wg_bounded ]] || local wg_runtime_dir=${XDG_RUNTIME_DIR-}
  clean_environment
  close_descriptors
  wg_session=() wg_shim=()
  if [[ -z $wg_print ]]; then
    mark_entry
    session
    shim
    [[ -z $wg_bounded ]] || bounds
    # On a terminal Ctrl-C is the command's. Of bwrap it would make an end, and with it of all that runs inside.
    if [[ -t 0 || -t 1 || -t 2 ]] && [[ $(trap -p INT) != "trap -- '' SIGINT" ]]; then
      wg_keep=1
      wg_shim+=(--signals)
    fi
    # The last of its options: where the launcher puts a stage of its own behind the shim, it is that one's.
    [[ -z $wg_told ]] || wg_shim+=(--started "$wg_told")
    wg_shim+=(--)
  fi
  wg_fence=("${wg_options[@]}" "${wg_mounts[@]}" "${wg_late[@]}" "${wg_variables[@]}" --chdir "$wg_inside")
  if [[ -n $wg_print ]]; then
    printf '%q\n' "$wg_bwrap" "${wg_fence[@]}" -- "${wg_command[@]}"
    exit 0
  fi
  if [[ -n $wg_interactive ]]; then
    banner >&2
    wg_session+=(--setenv PS1 "($wg_shell) \\w\\\$ " --setenv debian_chroot "$wg_shell")
  fi
  if [[ -n $wg_proxied ]]; then launch; else enter; fi
}

wg_read=bubblewrap.sh  # all of it
