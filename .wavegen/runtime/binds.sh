# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# What is mounted where, from bwrap's words into those of docker and podman. Sourced by the wrappers of docker/.
#
# An engine sorts mounts by their targets, follows links in them, and makes what is missing of them on the host; its
# --volume knows no path with a colon. So each path is a field of --mount, physical, and there.
wg_engine_words=() wg_host_mounts=()

# A field of a line of comma separated values (RFC 4180), as --mount reads it. Go's reader takes the CR from each CRLF, also in quotes:
# it would be another path, which a command could have made, and a link.
field() { # name, value
  local value=${2//\"/\"\"}
  REPLY="\"$1=${value//$'\r\n'/$'\r\r\n'}\""
}

bind() { # the host's path, the path inside, anything: read-only
  local from
  field source "$1"
  from=$REPLY
  field target "$2"
  wg_engine_words+=(--mount "type=bind,$from,$REPLY${3:+,readonly}")
}

# An engine takes UTF-8 alone, and makes U+FFFD of all else: another path, or other words than were meant.
only_utf8() { # what it is, its parts
  local what=$1 LC_ALL=C
  shift
  [[ $* == *[$'\x80'-$'\xff']* ]] || return 0
  # Numbers beyond U+10FFFF: glibc's iconv lets them pass, Go does not.
  if [[ $* == *[$'\xf5'-$'\xff']* || $* == *$'\xf4'[$'\x90'-$'\xbf']* ]] || ! printf '%s\0' "$@" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1; then
    die "$what that is not UTF-8 cannot be handed to a container" 'use UTF-8'
  fi
}

# The places in wg_mounts as the engine's words. Of two for one path the later one holds, as with bwrap.
binds() {
  local words=("${wg_mounts[@]}") n i before kind size='' at
  local -A last=()
  local kinds=() from=() to=()
  for ((n = 0; n < ${#words[@]}; n++)); do
    case ${words[n]} in
      --perms) ((n++)); continue ;;
      --size) ((++n)); size=${words[n]}; continue ;;
      --tmpfs) ((++n)); kind=${size:+scratch} from+=("$size") size='' ;;
      --bind | --ro-bind | --dev-bind) kind=${words[n]#--}; ((++n)); from+=("${words[n]}"); ((++n)) ;;
      --ro-bind-try)
        if [[ ! -e ${words[n + 1]} ]] || idle_store "${words[n + 1]}"; then ((n += 2)); continue; fi
        kind=ro-bind from+=("${words[n + 1]}")
        ((n += 2))
        ;;
      *) die "${words[n]} means nothing in a container" 'run wavegen render' ;;
    esac
    i=${#kinds[@]} at=${words[n]}
    [[ ${from[i]} != /dev/null ]] || kind=nothing
    kinds+=("${kind:-empty}") to+=("$at")
    before=${last[$at]-}
    [[ -z $before ]] || kinds[before]=none
    last[$at]=$i
  done
  only_utf8 'a path' "${from[@]}" "${to[@]}"
  for i in "${!kinds[@]}"; do
    case ${kinds[i]} in
      none) ;;
      empty | nothing)
        # What no mount shows is not there anyhow.
        if shown "${to[i]}"; then bind "$wg_run/${kinds[i]}" "${to[i]}" readonly; fi
        ;;
      scratch) scratch "${to[i]}" "${from[i]}" ;;
      bind)
        bind "${from[i]}" "${to[i]}" "$wg_frozen"
        [[ -z $wg_frozen || ! -d ${from[i]} ]] || mounts_below "${from[i]}" "${to[i]}"
        ;;
      ro-bind)
        bind "${from[i]}" "${to[i]}" readonly
        [[ ! -d ${from[i]} ]] || mounts_below "${from[i]}" "${to[i]}"
        ;;
      dev-bind) device "${from[i]}" "${to[i]}" ;;
    esac
  done
}

# An engine's read-only holds for one mount: what the host has mounted below would be there, and writable.
mounts_below() { # the host's directory, the path inside
  local fields below
  if ((${#wg_host_mounts[@]} == 0)); then
    while read -r -a fields; do
      printf -v below %b "${fields[4]//\\/\\0}"
      wg_host_mounts+=("$below")
    done </proc/self/mountinfo
  fi
  for below in "${wg_host_mounts[@]}"; do
    [[ $below != "${1%/}"/* || -n ${last[${2%/}${below#"${1%/}"}]-} ]] || bind "$below" "${2%/}${below#"${1%/}"}" readonly
  done
}

shown() { # whether something of the host is mounted at a path, or above
  local i
  for i in "${!kinds[@]}"; do
    case ${kinds[i]} in bind | ro-bind) [[ $1/ != "${to[i]}"/* ]] || return 0 ;; esac
  done
  return 1
}

scratch() { # an empty directory of a bounded size; programs may be run there, as builds do
  local mode=1777 owner=''
  [[ $1 != */shm ]] || return 0  # --shm-size
  [[ $1 != *:* ]] || die "$1: no engine makes an empty directory at a path with a colon" 'write home: private'
  if [[ $1 == "$wg_home" ]]; then
    mode=0700
    # Of the two only docker knows uid=, and only podman U.
    if [[ $wg_kind == podman ]]; then owner=,U; else owner=,uid=$wg_uid,gid=$wg_gid; fi
  fi
  wg_engine_words+=(--tmpfs "$1:rw,exec,nosuid,nodev,size=$2,mode=$mode$owner")
}

device() {
  [[ $1$2 != *:* ]] || die "$2: no engine takes a device at a path with a colon" 'remove the entry'
  if [[ -d $1 || -c $1 || -b $1 ]]; then wg_engine_words+=(--device "$1:$2"); else bind "$1" "$2" readonly; fi
}

# A directory of packages that nothing leads to: PATH does where a Nix shell started this. An image may have one of its own.
idle_store() {
  case $1 in /nix/store | /gnu/store) [[ :$wg_path != *:"$1"/* && $wg_runtime != "$1"/* ]] ;; *) return 1 ;; esac
}

wg_read=binds.sh  # all of it
