# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# Bounds for all processes of a shell together. Sourced by the wrappers whose manifest writes limits.
#
# Control groups of our own where they can be made, else a scope of the user's service manager, else what the shim sets
# for each process. What cannot be set is said once. Only where the manifest asks for it: to join a group takes the kernel
# longer than all the rest of a start.
bounds() {
  local pids='' memory='' cpus=1
  [[ -z $wg_cpus ]] || cpus=
  if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then group; else groups; fi
  if [[ -z $pids || -z $memory || -z $cpus ]] && scope; then return 0; fi
  local missing=''
  [[ -n $pids ]] || ((EUID != 0)) || missing='processes are not bounded'
  [[ -n $memory ]] || missing+=${missing:+, }'memory is bounded for each process alone'
  [[ -n $cpus ]] || missing+=${missing:+, }'processors are not bounded'
  [[ -n $missing && -d $wg_state && ! -e $wg_state/.unbounded ]] || return 0
  printf 'wavegen: note: no control group can be made here: %s (said once)\n' "$missing" >&2
  : >"$wg_state/.unbounded"
}

group() { # cgroup v2: below the nearest group above ours that hands its controllers on (cgroups(7))
  local number name path place enabled wanted=(pids memory ${wg_cpus:+cpu})
  while IFS=: read -r number name path; do [[ $number:$name != 0: ]] || break; done </proc/self/cgroup
  place=/sys/fs/cgroup${path%/}
  until [[ -w $place && -w $place/cgroup.procs ]] && read -r enabled <"$place/cgroup.subtree_control" && handed_on; do
    [[ $place == /sys/fs/cgroup/* ]] || return 0
    place=${place%/*}
  done
  make_groups "$place" || return 0
  bound "$REPLY/pids.max" "$wg_pids" && pids=1
  bound "$REPLY/memory.max" "$wg_memory" && memory=1
  [[ ! -e $REPLY/memory.swap.max ]] || bound "$REPLY/memory.swap.max" 0
  [[ -z $wg_cpus ]] || { bound "$REPLY/cpu.max" "$wg_cpus 100000" && cpus=1; }
}

handed_on() {
  local controller
  for controller in "${wanted[@]}"; do [[ " $enabled " == *" $controller "* ]] || return 1; done
}

groups() { # cgroup v1: one hierarchy for each controller
  local number controllers path controller place places=()
  while IFS=: read -r number controllers path; do
    for controller in pids memory ${wg_cpus:+cpu}; do
      [[ ,$controllers, == *,$controller,* ]] || continue
      place=/sys/fs/cgroup/$controller
      # In a container the path may be the host's.
      [[ ! -d $place/${path#/} ]] || place+=/${path#/}
      place=${place%/}
      [[ ! -w $place || ! -e $place/tasks ]] || places+=("$place")
    done
  done </proc/self/cgroup
  ((${#places[@]})) && make_groups "${places[@]}" || return 0
  for place in "${wg_groups[@]}"; do
    if [[ -e $place/pids.max ]]; then bound "$place/pids.max" "$wg_pids" && pids=1; fi
    if [[ -e $place/memory.limit_in_bytes ]]; then
      bound "$place/memory.limit_in_bytes" "$wg_memory" && memory=1
      [[ ! -e $place/memory.memsw.limit_in_bytes ]] || bound "$place/memory.memsw.limit_in_bytes" "$wg_memory"
    fi
    if [[ -n $wg_cpus && -e $place/cpu.cfs_quota_us ]]; then
      bound "$place/cpu.cfs_period_us" 100000 && bound "$place/cpu.cfs_quota_us" "$wg_cpus" && cpus=1
    fi
  done
}

bound() { # a file of the kernel's, a number
  { printf '%s\n' "$2" >"$1"; } 2>/dev/null
}

make_groups() { # one below each place, into wg_groups; the last one into REPLY
  local place old gone=()
  for place; do
    wg_groups+=("$place/wavegen-$$")
    # Those of wrappers that were killed.
    names_in "$place"
    for old in "${REPLIES[@]}"; do
      [[ $old != wavegen-*[0-9] || -e /proc/${old#wavegen-} ]] || gone+=("$place/$old")
    done
  done
  ((${#gone[@]} == 0)) || rmdir -- "${gone[@]}" 2>/dev/null
  if ! mkdir -- "${wg_groups[@]}" 2>/dev/null; then
    leave_groups
    return 1
  fi
  REPLY=${wg_groups[-1]}
}

leave_groups() {
  local _
  ((${#wg_groups[@]})) || return 0
  # bwrap ends a moment before the last of the processes that it leaves to the kernel.
  for _ in {1..100}; do
    rmdir -- "${wg_groups[@]}" 2>/dev/null
    [[ -d ${wg_groups[0]} || -d ${wg_groups[-1]} ]] || break
    sleep 0.01
  done
  wg_groups=()
}

scope() { # words before bwrap that start it in a scope of the user's service manager (systemd-run(1))
  [[ -n $wg_runtime_dir && -S $wg_runtime_dir/systemd/private ]] && tool systemd-run || return 1
  leave_groups
  local variable kept=" ${wg_passed[*]} " unset=()
  # They lead to the service manager, which starts programs outside.
  for variable in XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS; do [[ $kept == *" $variable "* ]] || unset+=(-u "$variable"); done
  wg_scope=(/usr/bin/env "XDG_RUNTIME_DIR=$wg_runtime_dir" "$REPLY" --user --scope --quiet --collect)
  wg_scope+=(-p "TasksMax=$wg_pids" -p "MemoryMax=$wg_memory" -p MemorySwapMax=0)
  [[ -z $wg_cpus ]] || wg_scope+=(-p "CPUQuota=$wg_cpu_percent%")
  wg_scope+=(--)
  ((${#unset[@]} == 0)) || wg_scope+=(/usr/bin/env "${unset[@]}")
}

wg_read=bounds.sh  # all of it
