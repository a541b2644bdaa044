# shellcheck shell=bash disable=SC2154,SC2034,SC2206  # the wrapper and the other files set and use wg_ variables; a pattern
#
# What the host runs or follows later, as git hooks: held read-only where it exists, in every repository of the project.
# Sourced by every fenced wrapper, whose guards() lists the places.
keep_place() { # a directory that nobody may exchange, or a file that leads elsewhere
  if [[ -f $1 ]]; then guard "$1"; elif [[ -d $1 && ! -L $1 && -z ${wg_index[$1]-} ]]; then
    rule keep - "$1"
  fi
}

guard() { # path, what is shown there
  local at=$1 from=${2-$1} above
  [[ -e $from ]] || return 0
  if [[ -L $from ]]; then
    # A link cannot be mounted over. What it leads to can, where it lies in the project.
    physical "$from" && [[ $REPLY == "$wg_project"/* ]] || return 0
    at=$REPLY from=$REPLY
  fi
  # The manifest may say something about it; what is only held on the way to something deeper is nobody's rule.
  above=${wg_index[$at]-}
  [[ -z $above || ${wg_access[above]} == keep ]] || return 0
  above=${from%/*}
  while [[ $above == "$wg_project"/* ]]; do
    # Where a directory is a link, what is in it lies elsewhere.
    [[ ! -L $above ]] || return 0
    above=${above%/*}
  done
  rule guard - "$at" "$from"
  hold "$((${#wg_at[@]} - 1))"
}

# Git on the host looks into every repository that it comes across: a submodule, a clone below, a linked worktree.
repositories() { # directory, what is shown there, how deep
  local level=('') next directory depth most=1000 left=100 pattern='!(.git|.wavegen|node_modules|.venv|target)' IFS=
  [[ -d $2 ]] || return 0
  # A bare one, which is its own git directory.
  [[ ! -f $2/HEAD || ! -d $2/objects || ! -d $2/refs ]] || repository "$1" "$2"
  for ((depth = 0; depth <= $3; depth++)); do
    next=()
    for directory in "${level[@]}"; do
      if [[ -e $2/$directory.git && ! -L $2/$directory.git ]]; then
        # Commands make as many as they like: bwrap takes 9000 words.
        ((left-- > 0)) || return 0
        repository "$1/$directory.git" "$2/$directory.git"
      fi
      ((depth < $3)) || continue
      directories_in "$2/$directory"
      next+=("${REPLIES[@]/#/$directory}")
      ((${#next[@]} < most)) || break
    done
    level=("${next[@]:0:most}")
  done
}

directories_in() { # their names into REPLIES, with a / behind, but for links and where nobody keeps repositories
  local name
  REPLIES=()
  builtin cd -P -- "$1" 2>/dev/null || return 0
  shopt -s dotglob nullglob extglob
  set +f
  REPLIES=($pattern/)
  set -f
  shopt -u dotglob nullglob extglob
  local found=("${REPLIES[@]}")
  REPLIES=()
  for name in "${found[@]}"; do
    [[ -L ${name%/} ]] || REPLIES+=("$name")
  done
}

repository() { # a git directory or a file that leads to one, what is shown there
  local part names git
  if [[ -f $2 ]]; then
    guard "$1" "$2"
    return 0
  fi
  [[ -d $2 && ! -L $2 ]] || return 0
  for part in "${wg_git_files[@]}"; do guard "$1/$part" "$2/$part"; done
  # A hook that is a link, as to a script of the project's.
  names_in "$2/hooks"
  for part in "${REPLIES[@]}"; do
    [[ ! -L $2/hooks/$part ]] || guard "$1/hooks/$part" "$2/hooks/$part"
  done
  hooks_path "$2"
  names_in "$2/worktrees"
  names=("${REPLIES[@]}")
  for git in "${names[@]}"; do
    for part in "${wg_worktree_files[@]}"; do guard "$1/worktrees/$git/$part" "$2/worktrees/$git/$part"; done
  done
  modules "$1/modules" "$2/modules" 1
}

# A linked worktree keeps its index and history in another repository, outside of the project. That one is shown, writable but
# for what git runs, where it names this worktree itself: a pointer alone could be a command's, and lead anywhere. The other
# checkouts of that repository stay outside.
linked_worktree() {
  local line git common
  [[ -f $wg_project/.git && ! -L $wg_project/.git ]] || return 0
  IFS= read -r line <"$wg_project/.git" && [[ $line == 'gitdir: '* ]] || return 0
  git=${line#gitdir: }
  [[ $git == /* ]] || git=$wg_project/$git
  [[ -d $git ]] && physical "$git" || return 0
  git=$REPLY common=${REPLY%/worktrees/*}
  [[ $git == "$common"/worktrees/* && ${git#"$common"/worktrees/} != */* && $common/ != "$wg_project"/* && $wg_project/ != "$common"/* ]] || return 0
  IFS= read -r line <"$git/gitdir" && [[ ! -L $git/gitdir && $line == "$wg_project/.git" ]] || return 0
  IFS= read -r line <"$git/commondir" && [[ ! -L $git/commondir && $line == ../.. && -f $common/HEAD && -d $common/objects ]] || return 0
  case $common/ in "$wg_kept"/* | "$wg_state"/*) return 0 ;; esac
  [[ $common != "$wg_home" && $wg_home/ != "$common"/* ]] || return 0
  rule worktree - "$common"
  hold "$((${#wg_at[@]} - 1))"
  repository "$common" "$common"
}

hooks_path() { # a directory of the project that a repository's settings name for hooks
  local line settings=()
  [[ -f $1/config ]] && mapfile -t -n 1000 settings <"$1/config" || return 0
  for line in "${settings[@]}"; do
    [[ ${line,,} =~ ^[[:space:]]*hookspath[[:space:]]*=[[:space:]]*\"?([^\"]+)\"?[[:space:]]*$ ]] || continue
    # As it is written, without quotes and what stands around it.
    [[ ${line#*=} =~ ^[[:space:]]*\"?(.*[^\"[:space:]])\"?[[:space:]]*$ ]] || continue
    line=${BASH_REMATCH[1]}
    [[ $line == /* ]] || line=${1%/.git}/$line
    if physical "$line" && [[ $REPLY == "$wg_project"/* ]]; then guard "$REPLY"; fi
  done
}

modules() { # where the git directories of submodules are, below the parts of their names
  local name names
  names_in "$2"
  names=("${REPLIES[@]}")
  for name in "${names[@]}"; do
    if [[ -L $2/$name || ! -d $2/$name ]]; then
      :
    elif [[ -e $2/$name/HEAD ]]; then
      repository "$1/$name" "$2/$name"
    elif (($3 < 8)); then
      modules "$1/$name" "$2/$name" "$(($3 + 1))"
    fi
  done
}

names_in() { # the names in a directory, into REPLIES
  REPLIES=()
  [[ -d $1 && ! -L $1 ]] || return 0
  shopt -s dotglob nullglob
  set +f
  REPLIES=("$1"/*)
  set -f
  shopt -u dotglob nullglob
  REPLIES=("${REPLIES[@]##*/}")
}

wg_read=guards.sh  # all of it
