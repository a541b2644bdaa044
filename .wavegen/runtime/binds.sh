# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# What is mounted where, from bwrap's words into those of docker and podman. Sourced by the wrappers of docker/.
#
# An engine sorts mounts by their targets, follows links in them, and makes what is missing of them on the host; its
# --volume knows no path with a colon. So each path is a field of --mount, physical, and there.
wg_engine_words=() wg_binds=() wg_host_mounts=() wg_host_tree=() wg_host_roots=()

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
  wg_binds+=("$1" "$2" "${3:+ro}")
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
  local below
  host_mounts
  for below in "${wg_host_mounts[@]}"; do
    [[ $below != "${1%/}"/* || -n ${last[${2%/}${below#"${1%/}"}]-} ]] || bind "$below" "${2%/}${below#"${1%/}"}" readonly
  done
}

host_mounts() { # where, each one's number and that of what it is mounted on, device and path there as the kernel writes them
  local fields place
  ((${#wg_host_mounts[@]} == 0)) || return 0
  while read -r -a fields; do
    printf -v place %b "${fields[4]//\\/\\0}"
    wg_host_mounts+=("$place") wg_host_tree+=("${fields[0]} ${fields[1]}") wg_host_roots+=("${fields[2]} ${fields[3]}")
  done </proc/self/mountinfo
}

# What the engine is asked to mount, as the kernel tells it inside: device, path there, place, `ro` or `any`. Between our look at a path
# and the engine's a command of another shell may put a link there; then the path is another. The last one is the first: it cannot be exchanged.
expected() {
  local n i at above from sources=$'\n' near=() top=''
  local -A index=()
  host_mounts
  for ((n = 0; n < ${#wg_binds[@]}; n += 3)); do sources+=${wg_binds[n]}/$'\n'; done
  for i in "${!wg_host_mounts[@]}"; do
    [[ $sources == *$'\n'"${wg_host_mounts[i]%/}"/* ]] || continue
    near+=("$i") index[${wg_host_tree[i]% *}]=$i
  done
  for i in "${near[@]}"; do
    above=${wg_host_tree[i]#* }
    [[ ${wg_host_mounts[i]} != / || (-n ${index[$above]-} && ${index[$above]} != "$i") ]] || top=$i
  done
  [[ -n $top ]] || return 0
  for ((n = ${#wg_binds[@]} - 3; n >= 0; n -= 3)); do
    from=${wg_binds[n]}
    mount_of "$from" "$top"
    i=$REPLY above=${wg_host_mounts[i]%/}
    as_in_mountinfo "${from#"$above"}"
    from=${wg_host_roots[i]%/}$REPLY
    as_in_mountinfo "${wg_binds[n + 1]}"
    at=$REPLY
    [[ $from != *' ' ]] || from+=/
    printf '%s %s %s\n' "$from" "$at" "${wg_binds[n + 2]:-any}"
  done
}

mount_of() { # path, the mount of /: which mount the kernel finds it on, into REPLY
  local i next=$2
  while [[ -n $next ]]; do
    REPLY=$next next=''
    for i in "${near[@]}"; do
      [[ $i != "$REPLY" && ${wg_host_tree[i]#* } == "${wg_host_tree[REPLY]% *}" && $1/ == "${wg_host_mounts[i]%/}"/* ]] || continue
      [[ -n $next ]] && ((${#wg_host_mounts[i]} >= ${#wg_host_mounts[next]})) || next=$i
    done
  done
}

as_in_mountinfo() { # a path as it is written there, into REPLY
  REPLY=${1//\\/\\134} REPLY=${REPLY// /\\040}
  REPLY=${REPLY//$'\t'/\\011} REPLY=${REPLY//$'\n'/\\012}
}

shown() { # whether something of the host is mounted at a path, or above
  local i
  for i in "${!kinds[@]}"; do
    case ${kinds[i]} in bind | ro-bind) [[ $1/ != "${to[i]}"/* ]] || return 0 ;; esac
  done
  return 1
}

scratch() { # an empty directory of a bounded size; programs may be run there, as builds do
  local mode=1777 owner=",uid=$wg_uid,gid=$wg_gid"
  [[ $1 != */shm ]] || return 0  # --shm-size
  [[ $1 != *:* ]] || die "$1: no engine makes an empty directory at a path with a colon" 'write home: private'
  [[ $1 != "$wg_home" ]] || mode=0700
  # The command's own, as runc gives it the mode of what the image has there. Of the two only docker knows uid=, and only podman U.
  [[ $wg_kind != podman ]] || owner=,U
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
