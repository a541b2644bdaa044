# shellcheck shell=bash disable=SC2154,SC2034,SC2016  # the wrapper and the other files set and use wg_ variables; text of others in single quotes
#
# Which engine starts a container, what it says of itself and of the image, and as whom: find_engine(), ask_engine(), hear_engine(),
# hear_image(), identity(). Whatever keeps it from starting is a sentence here. Sourced by the wrappers of docker/, before container.sh.
wg_engine='' wg_kind='' wg_uid='' wg_gid='' wg_told_engine='' wg_told_image='' wg_asking=() wg_patience=30  # seconds, for an answer

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
  trap "kill $! 2>/dev/null; exit" TERM
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

wg_read=engine.sh  # all of it
