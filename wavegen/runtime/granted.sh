# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# What the manifest grants and hides: paths that may lead anywhere, are shown at once by several mounts, or contradict
# each other. Sourced by the wrappers of shells whose manifest names paths.

# --- what the manifest grants

wg_granted=() wg_named=()

# The directories that are written inside are known before any path is resolved.
may_write() { # path
  wg_writable+=("$1")
  if physical "$1"; then wg_writable+=("$REPLY"); fi
}

written() { # whether a directory is, or lies in, one that is written inside
  local place
  for place in "${wg_writable[@]}"; do
    [[ $1/ != "$place"/* ]] || return 0
  done
  return 1
}

# Like physical, but a link on the way that stands where commands may write could be theirs, and lead anywhere.
resolve() { # path, asked by
  local rest=$1 part current='' link hops=0
  while [[ -n $rest ]]; do
    part=${rest%%/*}
    if [[ $rest == */* ]]; then rest=${rest#*/}; else rest=; fi
    case $part in
      '' | .) ;;
      ..) current=${current%/*} ;;
      *)
        if [[ -L $current/$part ]]; then
          ! written "$current" || die "$current/$part is a link that a command could have made, or could remove" "$2 asks for it; name the place it leads to"
          ((++hops < 40)) || return 1
          link=$(readlink -- "$current/$part") || return 1
          [[ $link != /* ]] || current=
          rest=$link${rest:+/$rest}
        else
          current+=/$part
        fi
        ;;
    esac
  done
  [[ -e ${current:-/} ]] || return 1
  REPLY=${current:-/}
}

# A path of the host that the manifest names. Where it lies in a place that is known only now, it waits for that one.
named() { # access, asked by, path
  local at=$3
  if [[ $1 == hide ]]; then
    deny "$3" "$2"
    return 0
  fi
  if ! resolve "$3" "$2"; then
    [[ $1 == *+optional* ]] || die "$3 does not exist" "$2 asks for it; create it, or write optional: true"
    return 0
  fi
  [[ $REPLY != "$wg_home" ]] || die "a rule for $3 is one for the real home directory" "$2 asks for it; name what is needed below it"
  [[ $REPLY != "$wg_project" ]] || die "a rule for $3 is one for the project" "$2 asks for it; write the path as ."
  if [[ -n $wg_minimal_root ]]; then
    # The links that lead there are not in the empty root, except for the last one, which is what was asked for.
    local from=$REPLY
    physical "${at%/*}/" && at=${REPLY%/}/${at##*/}
    REPLY=$from
  else
    at=$REPLY
  fi
  if [[ $at == "$wg_home"/* || $at == "$wg_project"/* || ($wg_homes != / && $at/ == "$wg_homes"/*) || ($wg_around != / && $at/ == "$wg_around"/*) ]]; then
    rule "$1" "$2" "$at"
    wg_named[${#wg_at[@]} - 1]=$3
  else
    local from=$REPLY
    unaliased "$1" "$2" "$3" "$from"
    rule "held-$1" "$2" "$at" "$from"
    wg_named[${#wg_at[@]} - 1]=$3
    hold "$((${#wg_at[@]} - 1))"
    grant "$1" "$2" "$at" "$from"
  fi
}

# By another name than its own a place would be there without what is mounted in it: pins, masks, the private home.
unaliased() { # access, asked by, path, what is shown there
  local i other
  if [[ $3 != "$4" ]]; then
    [[ $wg_home/ != "$4"/* ]] || die "$3 leads to $4, which holds the real home" "$2 asks for it; name what is needed below it"
    [[ $1 != write* || ($wg_project/ != "$4"/* && $4/ != "$wg_project"/*) ]] || die "$3 leads to $4, a place of the project" "$2 asks for it; name the place itself"
  fi
  # The home's own links are mounted where they stand.
  [[ $3 != "$wg_home"/* ]] || return 0
  for i in "${!wg_named[@]}"; do
    other=${wg_access[i]#held-}
    [[ ${other%%+*} == "${1%%+*}" || $other == none || ($3 == "$4" && ${wg_named[i]} == "${wg_from[i]}") ]] ||
      [[ $4/ != "${wg_from[i]}"/* && ${wg_from[i]}/ != "$4"/* ]] ||
      die "$3 and ${wg_named[i]} lead to one place, $4, with different rights" "$2 and ${wg_asker[i]} ask for them; name the places themselves"
  done
}

grant() { # access, asked by, path, what is shown there
  [[ $1 == *+socket* || ! -S $4 ]] || die "$4 is a socket: whoever answers there acts outside the fence" "$2 asks for it; remove it, or write socket: true"
  case $1:$3 in
    *:/dev/*) wg_mounts+=(--dev-bind "$4" "$3") ;;
    write*) wg_mounts+=(--bind "$4" "$3") ;;
    *) wg_mounts+=(--ro-bind "$4" "$3") ;;
  esac
  wg_granted+=("$4")
}

settle_shown() {
  local i=$1 at=${wg_at[$1]} from=${wg_from[$1]} asker=${wg_asker[$1]} access=${wg_access[$1]} above='' within='' pin
  if ! resolve "$from" "$asker"; then
    [[ $access == *+optional* ]] || die "$from does not exist" "$asker asks for it; create it, or write optional: true"
    wg_access[i]=none
    return 0
  fi
  from=$REPLY
  [[ $at != "$wg_home"/* ]] || within=$wg_home
  if nearest "$at"; then
    above=$REPLY
    case ${wg_access[above]} in project* | read* | write* | held-*) within=${wg_from[above]} ;; esac
  fi
  if [[ -n $within && $from != "$within"/* ]]; then
    # Links into the store are home-manager's, and nobody can change what is there.
    [[ $within == "$wg_home" && ($from == /nix/store/* || $from == /gnu/store/*) ]] ||
      die "${wg_from[i]} leads to $from, outside $within" "$asker asks for it; name the place it leads to instead"
  fi
  for pin in "${!wg_at[@]}"; do
    [[ ${wg_access[pin]} != pin || $from/ != "${wg_at[pin]}"/* ]] || die "$from is part of the fence" "$asker asks for it; remove the entry"
  done
  case ${above:+${wg_access[above]}} in
    project* | read* | write*)
      # At the place itself, not at a name that leads there.
      if [[ ${wg_at[above]}${from#"$within"} != "$at" ]]; then
        wg_access[i]=none
        rule "$access" "$asker" "${wg_at[above]}${from#"$within"}" "$from"
        i=$((${#wg_at[@]} - 1))
      fi
      ;;
  esac
  unaliased "$access" "$asker" "${wg_named[$1]-${wg_at[i]}}" "$from"
  wg_from[i]=$from
  wg_granted+=("$from")
  hold "$i"
}

# --- what must not be read, by whatever name a mount shows it

wg_denied=() wg_denier=()

deny() { # path, asked by
  wg_denied+=("$1")
  wg_denier+=("$2")
}

denied() { # whether REPLY is not there inside
  local program=$REPLY place
  if physical "$program"; then
    for place in "${wg_denied[@]}"; do
      if [[ $REPLY/ == "$place"/* || $program/ == "$place"/* ]]; then return 0; fi
    done
  fi
  REPLY=$program
  return 1
}

deny_all() {
  local d level above slashes levels=() system=()
  # What wavegen keeps holds the logins of other shells; it is made now, so that nobody else makes it.
  if [[ $wg_kept != "$wg_home"/* ]] || ((${#wg_granted[@]})); then
    [[ -d $wg_kept ]] || (umask 077 && mkdir -p -- "$wg_kept") || die "$wg_kept cannot be created" 'make room there'
    deny "$wg_kept" 'wavegen itself'
  fi
  ((${#wg_denied[@]})) || return 0
  for d in "${!wg_denied[@]}"; do
    if ! resolve "${wg_denied[d]}" "${wg_denier[d]}"; then
      above=${wg_denied[d]}
      while [[ ! -e ${above:-/} ]]; do above=${above%/*}; done
      # A directory of our own could be opened again inside; nobody inside gets into another's.
      [[ -x ${above:-/} || ! -O ${above:-/} ]] ||
        die "whether ${wg_denied[d]} exists cannot be told, as $above cannot be entered" "${wg_denier[d]} asks to hide it; make $above accessible"
      continue
    fi
    wg_denied[d]=$REPLY
    [[ $REPLY != "$wg_project" ]] || die "$REPLY is the project itself" "${wg_denier[d]} asks to hide it; name what must not be read in it"
    # What lies in the home or the project is shown by no default mount of the system.
    if [[ $REPLY == "$wg_home"/* || $REPLY == "$wg_project"/* ]]; then
      slashes=${REPLY//[!\/]/}
      levels[${#slashes}]+=" $d"
    else
      system+=("$d")
    fi
  done
  wg_source=() wg_shown=()
  list_places
  for level in "${!levels[@]}"; do
    for d in ${levels[level]}; do deny_one "${wg_denied[d]}" "${wg_denier[d]}"; done
  done
  ((${#system[@]})) || return 0
  wg_source=() wg_shown=()
  list_system
  list_places
  for d in "${system[@]}"; do deny_one "${wg_denied[d]}" "${wg_denier[d]}"; done
}

deny_one() { # physical path, asked by
  local path=$1 source shown i rest covered
  for i in "${!wg_shown[@]}"; do
    source=${wg_source[i]} shown=${wg_shown[i]}
    if [[ -z $source ]]; then
      :
    elif [[ $source == / || $path/ == "$source"/* ]]; then
      rest=${path#"${source%/}"}
      covering "${shown%/}$rest"
      [[ $REPLY != "$i" ]] || hide_place "${shown%/}$rest" "$path" "$2"
    elif [[ $source == "$path"/* ]]; then
      # A part of it is shown somewhere. The project and the home are what the shell is for.
      covered=${wg_index[$shown]-}
      case ${covered:+${wg_access[covered]}} in
        home | project* | keep | pin | mask*) ;;
        *) hide_place "$shown" "$source" "$2" ;;
      esac
    fi
  done
}

# What is mounted where, in the order of mounting: wg_source (empty for what is of no file of the host) and wg_shown.
list_system() {
  local words=("${wg_mounts[@]}") n
  for ((n = 0; n < ${#words[@]}; n++)); do
    case ${words[n]} in
      --perms | --size) ((n++)) ;;
      --symlink) ((n += 2)) ;;
      --ro-bind | --ro-bind-try | --bind | --dev-bind)
        # A missing source of an optional mount shows nothing.
        if physical "${words[n + 1]}"; then wg_source+=("$REPLY") wg_shown+=("${words[n + 2]}"); fi
        ((n += 2))
        ;;
      *) wg_source+=('') wg_shown+=("${words[n + 1]}"); ((n++)) ;;
    esac
  done
}

list_places() {
  local level i
  for level in "${!wg_level[@]}"; do
    for i in ${wg_level[level]}; do
      case ${wg_access[i]} in
        none) ;;
        hide | scratch) wg_source+=('') wg_shown+=("${wg_at[i]}") ;;
        *) wg_source+=("${wg_from[i]}") wg_shown+=("${wg_at[i]}") ;;
      esac
    done
  done
}

covering() { # which mount shows a path, into REPLY: the deepest one above it, and of two the later
  local i longest=-1
  for i in "${!wg_shown[@]}"; do
    if [[ ${wg_shown[i]} == / || $1/ == "${wg_shown[i]}"/* ]] && ((${#wg_shown[i]} >= longest)); then
      longest=${#wg_shown[i]} REPLY=$i
    fi
  done
}

wg_masked=()

hide_place() { # where it is shown, what it is on the host, asked by
  local place=${wg_index[$1]-} kind=mask-file i
  case ${place:+${wg_access[place]}} in mask*) return 0 ;; esac
  if nearest "$1" && [[ ${wg_access[REPLY]} == mask* ]]; then return 0; fi
  case ${place:+${wg_access[place]}} in
    read* | write* | held-*) die "$1 is both granted and hidden" "${wg_asker[place]} and $3 ask for it; remove one of the two" ;;
  esac
  if [[ -d $2 ]]; then
    kind=mask-directory
    # What was held on the way to something deeper would show it again.
    for i in "${!wg_at[@]}"; do
      [[ (${wg_access[i]} != keep && ${wg_access[i]} != guard) || ${wg_at[i]}/ != "$1"/* ]] || wg_access[i]=none
    done
  fi
  wg_masked+=("$1")
  rule "$kind" - "$1"
  hold "$((${#wg_at[@]} - 1))"
}

drop_masked() { # what would be made read-only below a mask is no longer there
  local words=("${wg_late[@]}") n masked gone
  wg_late=()
  for ((n = 0; n < ${#words[@]}; n += 2)); do
    gone=
    for masked in "${wg_masked[@]}"; do
      [[ ${words[n + 1]} == "$masked" || ${words[n + 1]}/ != "$masked"/* ]] || gone=1
    done
    [[ -n $gone ]] || wg_late+=("${words[n]}" "${words[n + 1]}")
  done
}

wg_read=granted.sh  # all of it
