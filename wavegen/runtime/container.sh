# shellcheck shell=bash disable=SC2154,SC2034,SC2016,SC2094  # the wrapper and the other files set and use wg_ variables; text of others in single quotes; a FIFO
#
# From the prepared places to a container: main() begins a shell of docker/. Sourced by the wrappers there, with the other
# files. WAVEGEN_CONTAINER=podman starts it with podman.
wg_engine='' wg_kind='' wg_run='' wg_uid='' wg_gid='' wg_frozen='' wg_collected='' wg_told_engine='' wg_told_image='' wg_asking=() wg_patience=30  # seconds, for an answer

# --- the engine

hopeless() { # whether there is none
  [[ -z $wg_engine ]]
}

find_engine() {
  wg_kind=${WAVEGEN_CONTAINER:-docker}
  case $wg_kind in
    docker | podman) ;;
    *) die "WAVEGEN_CONTAINER=$wg_kind is neither docker nor podman" 'set it to one of them' ;;
  esac
  tool "$wg_kind" ||
    cannot "$wg_kind is not on the PATH" "install it: apt install ${wg_kind/#docker/docker.io}$([[ $wg_kind == podman ]] || printf ', or WAVEGEN_CONTAINER=podman for podman')"
  wg_engine=$REPLY
  [[ $wg_kind == podman ]] || endpoint
}

# The settings in ~/.docker put proxies, with their passwords, into every container. So the client gets none, but for where
# its daemon is.
endpoint() {
  local config=${DOCKER_CONFIG:-$wg_home/.docker}/config.json
  if [[ -z ${DOCKER_HOST-} && -f $config ]]; then
    DOCKER_HOST=$("$wg_engine" context inspect -f '{{.Endpoints.docker.Host}}' 2>/dev/null </dev/null) || DOCKER_HOST=
  fi
  case ${DOCKER_HOST-} in
    '') unset DOCKER_HOST ;;
    unix://*) export DOCKER_HOST ;;
    *) die "docker's daemon is elsewhere (${DOCKER_HOST%%:*}), and would look for the project there" 'use the daemon of this machine: DOCKER_HOST=unix:///var/run/docker.sock' ;;
  esac
  unset DOCKER_CONTEXT
  # Asked for another API or another machine's image, the client refuses, or takes what was not meant.
  declare -g +x DOCKER_API_VERSION DOCKER_CONTENT_TRUST DOCKER_DEFAULT_PLATFORM
}

# Both at once, while the places are made into words: each takes the daemon as long as bwrap takes for a whole start.
ask_engine() {
  local engine='{{range .SecurityOptions}}{{.}}{{println}}{{end}}cpus={{.NCPU}}{{println}}system={{.OSType}} {{.OperatingSystem}}{{println}}' limit
  local image='{{range $path, $_ := .Config.Volumes}}volume={{$path}}{{println}}{{end}}{{range .Config.Env}}variable={{.}}{{println}}{{end}}'
  for limit in MemoryLimit PidsLimit CPUCfsQuota; do engine+="$limit={{.$limit}}{{println}}"; done
  if [[ $wg_kind == docker ]]; then
    exec {wg_told_engine}< <(ask info -f "$engine")
    wg_asking+=("$!")
  fi
  exec {wg_told_image}< <(ask image inspect -f "$image" "$wg_image")
  wg_asking+=("$!")
}

ask() { # the client's words; it ends with who asks
  "$wg_engine" "$@" 2>&1 </dev/null &
  # shellcheck disable=SC2064
  trap "kill $!; exit" TERM
  wait "$!"
  printf 'status=%d\n' "$?"
}

heard() { # what an engine answered, into REPLIES; whether it was an answer
  REPLIES=()
  read -r -t "$wg_patience" "REPLIES[0]" <&"$1" || die "$wg_kind does not answer" "see whether it runs: $wg_kind info"
  mapfile -t -O 1 REPLIES <&"$1"
  [[ ${REPLIES[-1]-} == status=0 ]]
}

hear_engine() {
  local said
  [[ $wg_kind == docker ]] || { processors "$(getconf _NPROCESSORS_ONLN)"; return 0; }
  if ! heard "$wg_told_engine"; then
    said=${REPLIES[*]}
    # The client of 20.10 stumbles over its own template where no daemon answers; the other question says why.
    [[ $said != *template:* ]] || { heard "$wg_told_image"; said+=" ${REPLIES[*]}"; }
    case $said in
      *'ermission denied'*)
        die "this user may not use docker's daemon at ${DOCKER_HOST:-/var/run/docker.sock}" \
          'WAVEGEN_CONTAINER=podman needs no daemon; or join the group docker, whose members are as good as root' ;;
      *'annot connect'* | *'daemon running'* | *'onnection refused'* | *'no such file'*)
        die "docker's daemon does not answer at ${DOCKER_HOST:-/var/run/docker.sock}" 'start it: systemctl start docker; or WAVEGEN_CONTAINER=podman, which needs none' ;;
      *podman* | *define.*) die "the docker at $wg_engine is podman" 'say so: WAVEGEN_CONTAINER=podman' ;;
      *) die "docker's daemon gives no information: ${REPLIES[0]//[[:cntrl:]]/}" 'try: docker info' ;;
    esac
  fi
  for said in "${REPLIES[@]}"; do
    case $said in
      cpus=*) processors "${said#cpus=}" ;;
      system=*'Docker Desktop'*)
        die 'Docker Desktop runs containers in a virtual machine, which shares no sockets with this one' "start it by compose: .wavegen/docker/compose run $wg_shell" ;;
      system=linux*) ;;
      system=*) die "docker runs containers of ${said#system=}" 'switch it to Linux containers' ;;
      name=rootless*)
        die "docker runs rootless here: of all users inside only root is you" 'WAVEGEN_CONTAINER=podman keeps you yourself; or use the daemon of the system' ;;
      name=userns*)
        [[ ${WAVEGEN_CONTAINER_USERNS-} == host ]] ||
          die 'docker gives its containers other users (userns-remap), who may not write the project' 'WAVEGEN_CONTAINER_USERNS=host leaves that out for this one'
        wg_engine_words+=(--userns host)
        ;;
      name=selinux*) labels ;;
      MemoryLimit=false) unbounded memory ;;
      PidsLimit=false) unbounded processes ;;
      CPUCfsQuota=false) [[ -z $wg_cpus ]] || unbounded processors ;;
    esac
  done
}

unbounded() {
  die "this machine's docker cannot bound $1" 'let the kernel hand control groups to it: see the warnings of `docker info`'
}

processors() { # how many there are: more than that is an error
  local most=$(($1 * 100000)) cpus=$wg_cpus
  [[ -n $cpus ]] || return 0
  ((cpus <= most)) || cpus=$most
  wg_engine_words+=(--cpus "$((cpus / 100000)).$(printf '%05d' $((cpus % 100000)))")
}

labels() { # SELinux lets containers have only what is labelled for them
  local label
  [[ ${WAVEGEN_CONTAINER_LABEL-} != disable ]] || { wg_engine_words+=(--security-opt label=disable); return 0; }
  label=$(stat -c %C -- "$wg_project" 2>/dev/null) || label=
  [[ $label == *:container_file_t:* ]] ||
    die "SELinux keeps containers from the project (its label: ${label:-none})" \
      'WAVEGEN_CONTAINER_LABEL=disable takes SELinux from this one; or label the project: chcon -R -t container_file_t .'
}

hear_image() {
  local said
  if ! heard "$wg_told_image"; then
    case ${REPLIES[*]} in
      *'o such image'* | *'image not known'* | *'o such object'*) die "the image $wg_image is not here" "${wg_image_remedy//docker /$wg_kind }" ;;
      *) die "$wg_kind says of the image $wg_image: ${REPLIES[0]//[[:cntrl:]]/}" "try: $wg_kind image inspect $wg_image" ;;
    esac
  fi
  for said in "${REPLIES[@]}"; do
    case $said in
      # It would be a directory on the disk, writable whatever --read-only says.
      volume=*) field target "${said#volume=}"; wg_engine_words+=(--mount "type=tmpfs,$REPLY,tmpfs-size=$wg_scratch_size") ;;
      variable=PATH=*/nix/store/* | variable=PATH=*/nix/var/*)
        [[ " ${wg_engine_words[*]} " != *'"target=/nix/store"'* ]] || die "the programs of the image $wg_image lie where the host's /nix/store is shown" 'start it outside of the Nix shell' ;;
    esac
  done
}

# --- whose container

identity() {
  local field
  # Not GROUPS, which an environment may have, too.
  while read -r field _ wg_gid _; do [[ $field != Gid: ]] || break; done </proc/self/status
  wg_uid=$EUID
  if [[ $wg_kind == podman ]]; then
    # What docker leaves to the daemon's defaults: the host's proxies, writable /run, /tmp and /var/tmp, names of the host, ten
    # seconds to end; and variables of a user's settings, and the socket of the service manager that podman was started by.
    wg_engine_words+=(--env-host=false --sdnotify=ignore --http-proxy=false --read-only-tmpfs=false --no-hosts --passwd=false --stop-timeout 0)
    ((EUID == 0)) || wg_engine_words+=(--userns keep-id)
    [[ " ${wg_options[*]} " == *' --network host '* ]] || wg_engine_words+=(--sysctl net.ipv4.ip_unprivileged_port_start=0)
    [[ ! -e /sys/fs/selinux/enforce ]] || labels
    first_process
    ((EUID != 0)) || own_limits
    if ((EUID != 0)) && [[ ! -f /sys/fs/cgroup/cgroup.controllers ]]; then
      note_once .unbounded-podman 'podman bounds nothing for a user on control groups of version 1'
      # It would mount the host's there, as they are.
      wg_engine_words+=(--security-opt mask=/sys/fs/cgroup)
    fi
  fi
  if ((EUID == 0)); then
    IFS=: read -r wg_uid wg_gid < <(exec stat -c %u:%g -- "$wg_project")
    [[ -n $wg_uid && $wg_uid != 0 ]] ||
      die 'the project belongs to root, and nothing in a container runs as root' 'give it to a user: chown -R USER:GROUP the project, or start this as a user'
    # A directory of root's group may be somebody's who is not in it.
    ((wg_gid != 0)) || wg_gid=$wg_uid
    [[ ! -d $wg_private/home || -n $wg_print ]] || chown -h -- "$wg_uid:$wg_gid" "$wg_private/home" "$wg_private/home/.zshrc" 2>/dev/null ||
      chown -h -- "$wg_uid:$wg_gid" "$wg_private/home" || die "$wg_private/home cannot be given to the project's owner" 'see its permissions'
    ((${#wg_made[@]} == 0)) || chown -h -- "$wg_uid:$wg_gid" "${wg_made[@]}" || die "${wg_made[*]} cannot be given to the project's owner" 'see its permissions'
  fi
  wg_engine_words+=(--user "$wg_uid:$wg_gid")
}

# What --init starts is a package of its own, which podman can do without. Any that needs no library of the image does it.
first_process() {
  local name
  for name in /usr/libexec/podman /usr/local/libexec/podman /usr/local/lib/podman /usr/lib/podman; do [[ ! -x $name/catatonit ]] || return 0; done
  for name in catatonit tini-static docker-init; do
    if tool "$name"; then wg_engine_words+=(--init-path "$REPLY"); return 0; fi
  done
}

# Root's podman raises what is not named, which root may not everywhere: not in a container.
own_limits() {
  local line words most
  read -r most </proc/sys/kernel/pid_max
  while IFS= read -r line; do
    read -r -a words <<<"${line#Max *s  }"
    case $line in
      'Max processes '*)
        # It gives itself no more than there are numbers of processes, and then cannot give more.
        [[ ${words[1]} == unlimited ]] || ((words[1] <= most)) || words[1]=$most
        [[ ${words[1]} == unlimited ]] || wg_engine_words+=(--ulimit "nproc=${words[1]}:${words[1]}")
        ;;
      'Max open files '*) wg_engine_words+=(--ulimit "nofile=${words[1]}:${words[1]}") ;;
    esac
  done </proc/self/limits
}

note_once() { # which file says that it was said, what
  [[ -d $wg_state && ! -e $wg_state/$1 ]] || return 0
  printf 'wavegen: note: %s (said once)\n' "$2" >&2
  : >"$wg_state/$1"
}

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

# Outlives this script and the client: when both are gone, whatever ended them, the container goes too. Nobody else would remove it.
watch() {
  local script='trap "" HUP INT QUIT TERM PIPE
    read -r _
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
      case $("$1" container inspect -f . "$2" 2>&1) in
        *"o such container"* | *"o container with"*) printf "gone\n"; break ;;
      esac
      "$1" rm -f "$2" >/dev/null 2>&1 || sleep 0.3
    done
    rm -rf -- "$3"'
  local first ends
  exec {wg_life}<>"$wg_run/life" {ends}<"$wg_run/life" {first}<>"$wg_run/gone" {wg_gone}<"$wg_run/gone"
  # By name a command could open them where /tmp is granted, and keep the watchdog from its work.
  rm -f -- "$wg_run/life" "$wg_run/gone"
  # A session of its own where it can be made: signals are sent to groups of processes.
  REPLY=
  tool setsid || :
  ( (exec {wg_life}>&- {wg_gone}<&- {first}>&- {wg_report}>&-
    [[ -z $wg_told ]] || exec {wg_told}>&-
    exec ${REPLY:+"$REPLY"} /bin/sh -c "$script" wavegen "$wg_engine" "$wg_name" "$wg_run") <&"$ends" >&"$first" {ends}<&- 2>/dev/null &)
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
  if [[ -t 0 || -t 1 || -t 2 ]]; then trap : INT QUIT; else trap 'kill -INT "$wg_client"' INT; trap 'kill -QUIT "$wg_client"' QUIT; fi
  for number in TERM HUP USR1 USR2; do
    # shellcheck disable=SC2064
    trap "kill -$number \"\$wg_client\"" "$number"
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
