# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# The second layer: what is put before the command inside, and what of it this kernel does not hold. Sourced by every
# fenced wrapper.
# What takes the last rights from the command, inside, once bwrap is done: it writes only where it is to (Landlock, which
# a mistake in the mounts does not touch), signals nobody outside, and is bounded. Perl starts in a third of Python's time.
shim() {
  local code=() words=()
  # Of the system, as it must be there inside.
  if system_tool perl; then
    mapfile -d '' -t code <"$wg_runtime/landlock.pl" || die "$wg_runtime/landlock.pl cannot be read" 'run wavegen render'
    # It would complain of the host's locale, and obey PERL5OPT.
    wg_variables+=(--setenv PERL_BADLANG 0)
    words=("$REPLY" -T -e "${code[0]-}" -- --unset PERL_BADLANG)
  elif system_tool python3; then
    mapfile -d '' -t code <"$wg_runtime/shim.py" || die "$wg_runtime/shim.py cannot be read" 'run wavegen render'
    words=("$REPLY" -I -S -c "${code[0]-}")
  else
    cannot 'neither perl nor python3 is on the PATH' 'install one of them, or use nix develop'
  fi
  shim_rights
  words+=("${REPLIES[@]}")
  held_once "${words[@]}"
  memory_of_machine
  words+=(--limit core=0 --limit nofile="$wg_files" --limit data="$wg_memory")
  # The kernel counts a user's processes for each user namespace (Linux 5.14), and never real root's.
  ((EUID == 0)) || words+=(--limit nproc="$wg_pids")
  wg_shim=("${words[@]}")
}

shim_rights() { # where the command writes, and whom it reaches: options of the shim, into REPLIES
  local i
  REPLIES=(--landlock best-effort --scope abstract --scope signal)
  if [[ -n $wg_nested ]]; then
    # A sandbox inside mounts, which Landlock refuses whoever may write less than everything.
    REPLIES+=(--no-files)
    return 0
  fi
  REPLIES+=(--writes-only --write-try /dev --write-try /proc)
  for i in "${wg_scratch[@]}"; do REPLIES+=(--write-try "$i"); done
  for i in "${!wg_at[@]}"; do
    case ${wg_access[i]} in
      home | project | worktree | scratch) REPLIES+=(--write "${wg_at[i]}") ;;
      write* | held-write*) REPLIES+=(--write-try "${wg_at[i]}") ;;
    esac
  done
}

memory_of_machine() { # the bytes that the manifest grants, or a share of what the machine has, into wg_memory
  local total
  wg_memory=$wg_memory_limit
  [[ -z $wg_memory ]] || return 0
  read -r _ total _ </proc/meminfo || total=0
  wg_memory=$((total * wg_memory_share * 1024 / 100))
}

held_once() { # what of that this kernel does not hold, said once for each kernel
  local release said
  read -r release </proc/sys/kernel/osrelease || return 0
  [[ -d $wg_state && ! -e $wg_state/.landlock-$release ]] || return 0
  PERL_BADLANG=0 "$@" --report "$wg_state/.landlock-$release" -- /bin/true 2>/dev/null
  mapfile -t said 2>/dev/null <"$wg_state/.landlock-$release" || : >"$wg_state/.landlock-$release"
  for said in "${said[@]}"; do
    printf 'wavegen: note: a second layer is %s (said once)\n' "$said" >&2
  done
}

wg_read=shim.sh  # all of it
