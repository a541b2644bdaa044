# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# Where the project, the home and what wavegen keeps are, and what is mounted there. Sourced by every fenced wrapper,
# whose system() and places() list the rules.

# --- where everything is

find_project() {
  local here=$wg_file
  if [[ $here == */* ]]; then here=${here%/*}; else here=.; fi
  physical . || die 'the working directory is gone' 'change to one that exists'
  wg_start=$REPLY
  [[ $here == /* ]] || here=$wg_start/$here
  if [[ ${wg_runtime@a} != *r* ]]; then
    physical "$wg_runtime" || die "$wg_runtime is missing" 'run wavegen render'
    wg_runtime=$REPLY
  fi
  [[ -n $wg_seccomp ]] || wg_seccomp=${wg_runtime%/*}/seccomp
  if [[ -n $wg_asked ]]; then
    if [[ ! -d $wg_asked ]] || ! physical "$wg_asked"; then die "$wg_asked is not a directory" 'name the project with --project DIR'; fi
    wg_project=$REPLY
  elif [[ -f $here/../plan.json ]] && physical "$here/../.."; then
    wg_project=$REPLY
  else
    # Started from the Nix store: the project is the highest directory above that was rendered from the same plan. A
    # command may have put a copy of it into a directory below.
    local directory=$wg_start
    while :; do
      if [[ -f $directory/.wavegen/plan.json ]] && { [[ -z $wg_plan ]] || same "$wg_plan" "$directory/.wavegen/plan.json"; }; then
        wg_project=$directory
      elif [[ -e $directory/.wavegen/plan.json && -z $wg_project ]]; then
        wg_other=$directory
      fi
      [[ -n $directory ]] || break
      directory=${directory%/*}
    done
    [[ -n $wg_project || -z ${wg_other-} ]] ||
      die "this shell was not rendered from the manifest of $wg_other" 'use the flake of that project, render it again, or name the directory with --project DIR'
    [[ -n $wg_project ]] || die "no rendered project at or above $wg_start" 'change into the project, or name it with --project DIR'
  fi
}

same() { # whether two text files are equal
  local one two
  mapfile one <"$1" && mapfile two <"$2" && [[ ${one[*]} == "${two[*]}" ]]
}

find_places() {
  find_project
  [[ -n ${HOME-} ]] || die 'HOME is not set' 'set it to your home directory; nix develop -i needs -k HOME'
  if [[ $HOME != /* || ! -d $HOME ]] || ! physical "$HOME"; then die "HOME=$HOME is not a directory" 'set HOME to your home directory'; fi
  wg_home=$REPLY
  [[ $wg_home != / ]] || die 'HOME is /' 'set HOME to a directory of your own'
  case $wg_project in
    / | /bin | /boot | /dev | /dev/shm | /etc | /home | /lib | /lib32 | /lib64 | /libx32 | /mnt | /media | /nix | /opt | /proc | /root | /run | /sbin | /sys | /tmp | /usr | /usr/local | /var | /var/tmp | /proc/* | /sys/* | /nix/store/*)
      die "the project is $wg_project, a directory of the system" 'move it into a directory of its own' ;;
  esac
  case $wg_home/ in
    "$wg_project"/*) die "the project $wg_project is, or holds, the home directory $wg_home" 'move it into a directory of its own' ;;
  esac
  local state=${XDG_STATE_HOME-} key=${wg_project//%/%25} LC_ALL=C
  [[ $state == /* ]] || state=$wg_home/.local/state
  # Where it really is, whatever links lead there; what is missing of it will be made.
  local missing=''
  until physical "${state:-/}"; do
    [[ ! -L $state ]] || die "$state leads nowhere" 'remove the link'
    missing=/${state##*/}$missing state=${state%/*}
  done
  state=${REPLY%/}$missing
  key=${key//\//%2F}
  ((${#key} < 250)) || die "the project's path is too long to keep a home for it: $wg_project" 'move it to a shorter path'
  wg_kept=$state/wavegen
  wg_state=$wg_kept/$key/$wg_shell
  # Root is somebody else in a container, with whose files root without capabilities can do nothing.
  wg_private=$wg_state
  [[ -z $wg_contained ]] || ((EUID != 0)) || wg_private=$wg_state/container
  case $state/ in
    "$wg_project"/*) die "XDG_STATE_HOME=$state lies in the project" 'set it to a directory outside' ;;
  esac
  case $wg_project/ in
    "$state"/wavegen/*) die "the project $wg_project lies among what wavegen keeps" 'move it into a directory of its own' ;;
  esac
  # What holds HOME, and the highest directory above the project that is no part of the system; / where there is none.
  wg_homes=${wg_home%/*} wg_around=${wg_project#/}
  wg_around=/${wg_around%%/*}
  case $wg_homes/ in / | /usr/* | /nix/* | /etc/* | /opt/) wg_homes=/ ;; esac
  case $wg_around in /bin | /etc | /lib* | /nix | /opt | /sbin | /usr) wg_around=${wg_project%/*} ;; esac
  case $wg_around in "$wg_project" | /bin | /etc | /lib* | /nix | /opt | /sbin | /usr | /usr/local) wg_around=/ ;; esac
}

# --- paths of the system

hidden() { # each an empty read-only directory, or a file that cannot be opened
  local path
  for path; do
    [[ -e $path ]] || continue
    if [[ -d $path && ! -L $path ]]; then
      # A home or project that is itself hidden by default is mounted there instead.
      [[ $path == "$wg_home" || $path == "$wg_project" ]] || wg_mounts+=(--tmpfs "$path") wg_late+=(--remount-ro "$path")
    elif [[ ! -L $path ]]; then
      wg_mounts+=(--ro-bind /dev/null "$path")
    elif physical "$path"; then
      # A symlink cannot be mounted over; what it leads to can.
      hidden "$REPLY"
    fi
  done
}

# --- places that are known only now

wg_at=() wg_from=() wg_access=() wg_asker=() wg_level=() wg_writable=() wg_made=()
declare -A wg_index=()

rule() {
  local access=$1 asker=$2 at=$3 from=${4-$3} i=${#wg_at[@]} slashes replaced
  if [[ $access == hide && $asker != - ]]; then
    deny "$at" "$asker"
    return 0
  fi
  replaced=${wg_index[$at]-}
  if [[ -n $replaced ]]; then
    case ${wg_access[replaced]}:$access in
      pin:read* | pin:write* | home:read* | home:write* | project*:read* | project*:write*) die "$at is part of the fence" "$asker asks for it; remove the entry" ;;
    esac
    wg_access[replaced]=none
  fi
  slashes=${at//[!\/]/}
  wg_index[$at]=$i wg_at[i]=$at wg_from[i]=$from wg_access[i]=$access wg_asker[i]=$asker
  wg_level[${#slashes}]+=" $i"
}

# A directory that holds more than what is granted below it, unless other rules are about it.
neighbours() {
  of_the_system "$1" || [[ -n ${wg_index[$1]-} ]] || rule hide - "$1"
}

nearest() { # the rule for the nearest directory above a path, into REPLY
  local path=$1
  while path=${path%/*}; do
    [[ -n $path ]] || return 1
    REPLY=${wg_index[$path]-}
    if [[ -n $REPLY && ${wg_access[REPLY]} != none ]]; then return 0; fi
  done
}

# Resolves each rule, shallow ones first, as a deeper one may lie in what a shallower one shows.
settle() {
  local level i
  for level in "${!wg_level[@]}"; do
    for i in ${wg_level[level]}; do
      case ${wg_access[i]} in
        home | scratch | project*) hold "$i" ;;
        pin) settle_pin "$i" ;;
        read* | write*) settle_shown "$i" ;;
      esac
    done
  done
}

settle_pin() { # a file of the fence itself
  local at=${wg_at[$1]} asker=${wg_asker[$1]}
  # A symlink could be turned elsewhere by whoever may write beside it.
  [[ ! -L $at ]] || die "$at is a symlink, which an agent could turn elsewhere" 'put the file itself there'
  [[ -e $at ]] && return 0
  # What is not there could be made inside.
  [[ $asker == - ]] || die "$at is missing" 'run wavegen render'
  wg_access[$1]=none
}

# Whoever may rename a directory above a mount takes the mount away with it, and finds an unguarded one in its place.
# So each directory between a writable place and what is mounted in it is a mount of its own, which nobody can rename.
hold() { # index of the rule
  local at=${wg_at[$1]} j rest base from part IFS=/
  nearest "$at" || return 0
  j=$REPLY
  case ${wg_access[j]} in home | project | write* | keep | worktree | held-write*) ;; *) return 0 ;; esac
  base=${wg_at[j]} from=${wg_from[j]} rest=${at#"${wg_at[j]}"/}
  for part in $rest; do
    base+=/$part from+=/$part
    # bwrap would follow a link that stands where it is to mount something.
    [[ ! -L $from ]] || die "$from is a symlink where the manifest mounts something" 'remove it'
    if [[ $base == "$at" ]]; then
      [[ -z $wg_contained || -e $from ]] || mount_point "$from" "$1"
      break
    fi
    if [[ ! -d $from ]]; then
      (umask 077 && mkdir -p -- "$from") || die "$from cannot be created" 'make room there'
      wg_made+=("$from")
    fi
    if [[ ${wg_access[$1]} == held-* ]]; then
      wg_mounts+=(--bind "$from" "$base")
      rule held-write - "$base" "$from"
    else
      rule keep - "$base" "$from"
    fi
  done
}

# What an engine does not find to mount something on it makes itself, as root's.
mount_point() { # path, index of the rule
  if [[ -d ${wg_from[$2]} || ${wg_access[$2]} == scratch ]]; then (umask 077 && mkdir -- "$1"); else (umask 077 && set -C && : >"$1"); fi ||
    die "$1 cannot be created" 'make room there'
  wg_made+=("$1")
}

mount_places() {
  local level i at
  for level in "${!wg_level[@]}"; do
    for i in ${wg_level[level]}; do
      at=${wg_at[i]}
      case ${wg_access[i]} in
        hide) hidden "$at" ;;
        mask-directory) wg_mounts+=(--tmpfs "$at") wg_late+=(--remount-ro "$at") ;;
        mask-file) wg_mounts+=(--ro-bind /dev/null "$at") ;;
        scratch) wg_mounts+=(--perms 0700 --size "$wg_scratch_size" --tmpfs "$at") ;;
        pin | project-read) wg_mounts+=(--ro-bind "$at" "$at") ;;
        guard) wg_mounts+=(--ro-bind "${wg_from[i]}" "$at") ;;
        home | project | keep | worktree) wg_mounts+=(--bind "${wg_from[i]}" "$at") ;;
        read* | write*) grant "${wg_access[i]}" "${wg_asker[i]}" "$at" "${wg_from[i]}" ;;
      esac
    done
  done
}

wg_read=places.sh  # all of it
