# shellcheck shell=bash disable=SC2154,SC2034,SC2016,SC2094  # the wrapper and the other files set and use wg_ variables; text of others in single quotes; a FIFO
#
# From the prepared places to a container: main() begins a shell of docker/. Sourced by the wrappers there, with the other
# files. WAVEGEN_CONTAINER=podman starts it with podman.
wg_run='' wg_frozen='' wg_collected=''

# --- what it is handed

make_run_directory() {
  wg_run=/tmp/wavegen-$$-${EPOCHREALTIME//[!0-9]/}
  # A name that is there could be anybody's.
  # To be passed through: whoever the container runs as opens what is in `inside`.
  (umask 066 && mkdir -- "$wg_run" && umask 077 && mkdir -- "$wg_run/empty" "$wg_run/inside") || die "$wg_run cannot be made" 'make room in /tmp'
  trap 'kill -- "${wg_asking[@]}" 2>/dev/null; rm -rf -- "$wg_run"; [[ -z $wg_collected ]] || rmdir -- "$wg_collected" 2>/dev/null' EXIT
  (umask 077 && : >"$wg_run/nothing" && chmod 0 "$wg_run/nothing" && chmod 0555 "$wg_run/empty" && mkfifo -- "$wg_run/inside/report" "$wg_run/life" "$wg_run/gone") ||
    die "$wg_run cannot be filled" 'make room in /tmp'
  # Now, as later it may be what somebody else has put there; and nobody else is to read what is for this script.
  exec {wg_report}<>"$wg_run/inside/report"
  chmod 0200 "$wg_run/inside/report" || die "$wg_run cannot be filled" 'make room in /tmp'
}

variables() {
  local name values=()
  for name in "${wg_passed[@]}"; do
    [[ -n ${!name+set} ]] || continue
    # By name: a value would stand in the process list.
    export -- "${name?}"
    wg_engine_words+=(--env "$name") values+=("${!name}")
  done
  only_utf8 'a variable' "${values[@]}"
  wg_engine_words+=(--env "HOME=$wg_home" --env SHELL=/bin/sh)
  [[ -z $wg_interactive ]] || wg_engine_words+=(--env "PS1=($wg_shell) \\w\\\$ " --env "debian_chroot=$wg_shell")
}

nix_path() { # what of the caller's PATH is inside, too
  local directory path='' IFS=:
  for directory in $wg_path; do
    case $directory in /nix/store/* | /gnu/store/*) path+=$directory: ;; esac
  done
  REPLY=$path
}

# Results of earlier steps, and a place for those of this one; of all else nothing is left.
artifacts() {
  [[ -n $wg_artifacts$wg_output ]] || return 0
  wg_frozen=1
  if [[ -n $wg_artifacts ]]; then
    if [[ ! -d $wg_artifacts ]] || ! physical "$wg_artifacts"; then die "$wg_artifacts is not a directory" 'name what is to be at /artifacts'; fi
    wg_mounts+=(--ro-bind "$REPLY" /artifacts)
  fi
  wg_mounts+=(--size "$wg_scratch_size" --tmpfs /workspace)
  if [[ -n $wg_output ]]; then
    [[ $wg_output == /* ]] || wg_output=$wg_start/$wg_output
    wg_output=${wg_output%/}
    physical "${wg_output%/*}/" || die "${wg_output%/*} does not exist" 'name a directory that can be made'
    wg_output=${REPLY%/}/${wg_output##*/}
    names_in "$wg_output"
    if [[ -L $wg_output || ( -e $wg_output && ! -d $wg_output ) ]] || ((${#REPLIES[@]})); then die "$wg_output is there already, and not empty" 'name another directory for what comes out'; fi
    wg_collected=$wg_output.wavegen-$$-${EPOCHREALTIME//[!0-9]/}
    [[ -n $wg_print ]] || to_collect || die "$wg_collected cannot be made" 'make room there, for the owner of the project'
    bind "$wg_collected" /workspace/output
  fi
}

to_collect() { # a directory of the owner's, made by him where he may
  (
    umask 077
    as_owner mkdir -- "$wg_collected" 2>/dev/null || { mkdir -- "$wg_collected" && { ((EUID != 0)) || chown -h -- "$wg_uid:$wg_gid" "$wg_collected"; }; }
  )
}

# Root does with the owner's files what he could, and no more: while it looks at them, a command of another shell could put links there.
as_owner() {
  if ((EUID == 0)); then setpriv --reuid="$wg_uid" --regid="$wg_gid" --clear-groups -- "$@"; else "$@"; fi
}

# Files and directories are taken over. A link would lead whoever reads it elsewhere; a device, a FIFO or a socket is nobody's result.
collect() {
  local left
  [[ -n $wg_collected ]] || return 0
  if [[ -n $wg_unended ]]; then
    printf 'wavegen: error: the output lies in %s, where the container may still write\n' "$wg_collected" >&2
    return 0
  fi
  left=$({
    # What nobody may look into could hold anything.
    chmod -- u+rwx "$wg_collected" && builtin cd -- "$wg_collected" && as_owner find -P . -type d ! -perm -700 -exec chmod -- u+rwx {} ';' &&
      as_owner find -P . ! -type d ! -type f -printf . -delete && as_owner find -P . -perm /7000 -exec chmod -- a-st {} + || printf '?\n'
  } 2>&1)
  if [[ -n ${left//./} ]]; then
    printf 'wavegen: error: the output lies in %s, with whatever is in it: %s\n' "$wg_collected" "${left%%$'\n'*}" >&2
    return 0
  fi
  [[ -z $left ]] || printf 'wavegen: note: of the output what is no plain file was left behind: %d\n' "${#left}" >&2
  if ! mv -fT -- "$wg_collected" "$wg_output"; then printf 'wavegen: error: the output could not be moved and lies in %s\n' "$wg_collected" >&2; fi
}

# --- start and end

# Once its input ends: the engine, the container, the run directory.
readonly wg_removal='trap "" HUP INT QUIT TERM PIPE
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  case $("$1" container inspect -f . "$2" 2>&1) in
    *"o such container"* | *"o container with"*) printf "gone\n"; break ;;
  esac
  "$1" rm -f "$2" >/dev/null 2>&1 || sleep 0.3
done
rm -rf -- "$3"'

# Outlives this script and the client: when both are gone, whatever ended them, the container goes too. Nobody else would remove it.
watch() {
  local first ends
  exec {wg_life}<>"$wg_run/life" {ends}<"$wg_run/life" {first}<>"$wg_run/gone" {wg_gone}<"$wg_run/gone"
  # By name a command could open them where /tmp is granted, and keep the watchdog from its work.
  rm -f -- "$wg_run/life" "$wg_run/gone"
  # A session of its own where it can be made: signals are sent to groups of processes.
  REPLY=
  tool setsid || :
  ( (exec {wg_life}>&- {wg_gone}<&- {first}>&- {wg_report}>&-
    [[ -z $wg_told ]] || exec {wg_told}>&-
    exec ${REPLY:+"$REPLY"} /bin/sh -c "$wg_removal" wavegen "$wg_engine" "$wg_name" "$wg_run") <&"$ends" >&"$first" {ends}<&- 2>/dev/null &)
  exec {first}>&- {ends}<&-
  trap - EXIT
}

# Tells whoever asked by --report once the command is started.
relay() {
  [[ -n $wg_told ]] || return 0
  (
    exec {wg_life}>&- {wg_gone}<&- </dev/null >/dev/null
    # The watchdog removes the directory when all is over. What the command itself writes there comes after that first line.
    until read -r -t 0.2 said <&"$wg_report"; do
      [[ -d $wg_run ]] || { read -r -t 0.01 said <&"$wg_report"; break; }
    done
    [[ $said == started ]] && printf 'started\n' >&"$wg_told"
  ) &
  wg_relay=$!
  exec {wg_told}>&-
}

# Where connections are judged, the client is started by the launcher: it serves what the first process inside has opened.
launcher() {
  # Not in the arguments: it may hold a password.
  [[ $wg_proxy == $'\n'* ]] || export wg_upstream=$wg_proxy
  wg_launcher=("${wg_pythons%%:*}" -I -S "$wg_runtime/launch.py" --python "$wg_pythons" --state "$wg_state" "${wg_cache[@]}" --shell "$wg_shell"
    --project "$wg_project" --channel "$wg_run/inside/channel" --user "$wg_uid" "${wg_elsewhere[@]}" "${wg_network[@]}" --)
}

serve() { # the client's words
  local status said number
  # What the terminal sends the client has got already.
  if [[ -t 0 || -t 1 || -t 2 ]]; then trap : INT QUIT; else trap 'kill -INT "$wg_client" 2>/dev/null' INT; trap 'kill -QUIT "$wg_client" 2>/dev/null' QUIT; fi
  for number in TERM HUP USR1 USR2; do
    # shellcheck disable=SC2064
    trap "kill -$number \"\$wg_client\" 2>/dev/null" "$number"
  done
  (
    trap - INT QUIT TERM HUP USR1 USR2
    exec {wg_life}>&- {wg_gone}<&- {wg_report}>&-
    exec -- "$@"
  ) <&0 &
  wg_client=$!
  while :; do
    { wait "$wg_client"; } 2>/dev/null  # of a signal bash would say where in this file
    status=$?
    kill -0 "$wg_client" 2>/dev/null || break
  done
  # It may have ended while a signal ended the waiting.
  if ((status > 128)); then { wait "$wg_client"; } 2>/dev/null; status=$?; fi
  trap '' INT QUIT TERM HUP USR1 USR2
  [[ -z $wg_terminal ]] || "$wg_stty" "$wg_terminal"
  exec {wg_life}>&-
  read -r -t 30 said <&"$wg_gone"
  # Whoever has ended the watchdog has not ended the container.
  [[ $said == gone ]] || said=$(/bin/sh -c "$wg_removal" wavegen "$wg_engine" "$wg_name" "$wg_run" </dev/null 2>/dev/null)
  if [[ $said != gone ]]; then
    wg_unended=1
    printf 'wavegen: warning: the container %s has not ended; remove it with: %s rm -f %s\n' "$wg_name" "$wg_kind" "$wg_name" >&2
  fi
  if [[ -n $wg_relay ]]; then
    wait "$wg_relay" && said=started || said=
  else
    read -r -t 0.01 said <&"$wg_report"
  fi
  collect
  [[ -z $wg_audited ]] || audit
  [[ $said != started ]] || exit "$status"
  # Only what ended the client before anything ran.
  ((status <= 128)) || exit "$status"
  die 'the container did not start the command' 'its message stands above'
}

main() {
  local wg_interactive='' wg_print='' wg_artifacts='' wg_output='' wg_relay='' wg_client='' wg_stty='' wg_terminal='' wg_name=wavegen-$$-${EPOCHREALTIME//[!0-9]/}
  local wg_elsewhere=() wg_pythons='' wg_cache=() wg_proxy=$'\n' wg_audited=1 wg_life='' wg_gone='' wg_report='' wg_bwrap='' wg_launcher=()

  [[ -z $wg_uses_upstream ]] || wg_proxy="${HTTPS_PROXY:-${https_proxy-}}"$'\n'"${NO_PROXY:-${no_proxy-}}"
  prepare "$@"
  find_engine
  [[ -z $wg_proxied || -n $wg_print ]] || find_launcher
  look_for_logins
  close_descriptors
  make_run_directory
  [[ $wg_kind == podman ]] || export DOCKER_CONFIG=$wg_run/settings
  ask_engine
  identity
  artifacts
  binds
  variables
  memory_of_machine
  wg_engine_words+=(--memory "$wg_memory" --memory-swap "$wg_memory")
  if [[ -n $wg_filter_name ]]; then
    [[ -s $wg_seccomp/$wg_filter_name.json ]] || die "$wg_seccomp/$wg_filter_name.json is missing" 'run wavegen render'
    wg_engine_words+=(--security-opt "seccomp=$wg_seccomp/$wg_filter_name.json")
  else
    wg_engine_words+=(--security-opt seccomp=unconfined)
  fi
  # A terminal is one stream for output and messages; where they go to different places it would mix them.
  if [[ -t 0 && -t 1 && -t 2 ]]; then
    wg_engine_words+=(--tty)
    # A client that is killed leaves it raw.
    ! tool stty || { wg_stty=$REPLY wg_terminal=$("$REPLY" -g); }
  fi
  start_directory
  only_utf8 'a path' "$REPLY"
  wg_engine_words+=(--workdir "$REPLY" --name "$wg_name")
  bind "$wg_run/inside" /run/wavegen readonly
  (umask 022 && expected >"$wg_run/inside/mounts") || die "$wg_run/inside/mounts cannot be written" 'make room in /tmp'
  only_utf8 'a word' "${wg_command[@]}"
  nix_path
  shim_rights
  REPLIES+=(--limit core=0 --limit nofile="$wg_files")
  [[ -z $wg_frozen || -n $wg_nested ]] || REPLIES+=(--write /workspace)
  local wg_inside=(/bin/sh "$wg_runtime/contained.sh" "$wg_runtime" "$REPLY" "${wg_proxied:-0}" "${#REPLIES[@]}" "${REPLIES[@]}" "${wg_command[@]}")
  # Each adds words.
  hear_engine
  hear_image
  local wg_client_words=("$wg_engine" run "${wg_options[@]}" "${wg_engine_words[@]}")
  ((EUID != 0)) || chown -h -- "$wg_uid:$wg_gid" "$wg_run/inside/report" "$wg_run/inside" || die "$wg_run cannot be given to the project's owner" 'see its permissions'
  if [[ -n $wg_print ]]; then
    printf '%q\n' "${wg_client_words[@]}" "$wg_image" "${wg_inside[@]}"
    exit 0
  fi
  mark_entry
  [[ -z $wg_interactive ]] || banner >&2
  [[ -z $wg_proxied ]] || launcher
  watch
  relay
  serve "${wg_launcher[@]}" "${wg_client_words[@]}" "$wg_image" "${wg_inside[@]}"
}

wg_read=container.sh  # all of it
