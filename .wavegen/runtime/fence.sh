# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# What every wrapper does before its fence is built: options, places, environment. prepare() at the end calls most of it.
# Sourced by every wrapper but yolo's, after the other files, which hold what this one calls; the wrapper itself holds what is
# so in its own shell alone.
wg_mounts=() wg_late=() wg_groups=() wg_scope=() wg_memory=0
wg_marker='' wg_unended=''

die() { # what is wrong, what to do
  ((${#wg_groups[@]} == 0)) || leave_groups
  printf 'wavegen: error: %s (%s)\n' "$1" "$2" >&2
  exit 125
}

# The machine cannot hold the fence: refuse, or do what `fallback: warn` asks for.
cannot() { # what is wrong, what to do
  if [[ $wg_fallback != warn || -n $wg_print ]] || ! hopeless; then die "$1" "$2"; fi
  printf 'wavegen: error: %s (%s)\n' "$1" "$2" >&2
  printf '\033[1;31mwavegen: NOT SANDBOXED: fallback: warn runs the command without any fence\033[0m\n' >&2
  if [[ -n $wg_persona ]]; then
    # An agent then has the settings by which it fences itself, and is no program that a command could have put there.
    [[ -n $wg_exec ]] || wg_command=("${wg_command[@]/%\/settings.fenced.json//settings.json}")
    [[ -n $wg_exec ]] || wg_command[2]=bare
    bare
  fi
  builtin cd -- "$wg_start" || exit 125
  PATH=$wg_path
  report_unfenced
  exec -- "${wg_command[@]}"
}

# A persona's command without any fence: from the project's root, as settings name paths from there, and with no variable
# but those that it would have inside. Names only are taken away: values would show in the process list.
bare() {
  local wg_setting
  [[ -n $wg_exec && $wg_start == "$wg_project"/* ]] || wg_start=$wg_project
  builtin cd -- "$wg_start" || exit 125
  declare -g +x -- "${wg_names[@]}" SHLVL OLDPWD || die 'the environment cannot be cleaned' 'start with fewer variables: env -i'
  export -- "${wg_passed[@]}"
  for wg_setting in "${wg_bare[@]}"; do export "${wg_setting?}"; done
  PATH=$wg_path
  export HOME PATH
  report_unfenced
  exec -- "${wg_command[@]}"
}

physical() { # the path without symlinks, into REPLY; fails where there is nothing
  local path=$1 link hops=0
  if [[ -d $path ]]; then
    [[ -x $path ]] || return 1
    builtin cd -P -- "$path" || return 1
    REPLY=$PWD
    [[ $REPLY != //* ]] || REPLY=/${REPLY##/}
    return 0
  fi
  while [[ -L $path ]]; do
    ((++hops < 40)) || return 1
    link=$(readlink -- "$path") || return 1
    if [[ $link == /* ]]; then path=$link; else path=${path%/*}/$link; fi
  done
  [[ -e $path ]] || return 1
  builtin cd -P -- "${path%/*}/" || return 1
  REPLY=${PWD%/}/${path##*/}
}

ours() { # whether a path is one that the command could have written in an earlier session
  local place
  for place in "$wg_project" "$wg_state" "${wg_writable[@]}"; do
    [[ $1/ != "$place"/* ]] || return 0
  done
  return 1
}

tool() { # a program, into REPLY: the system's, else one of the caller's PATH that no command could have put there
  local directory IFS=:
  for directory in $PATH $wg_path; do
    if tool_in "$directory" "$1"; then return 0; fi
  done
  return 1
}

system_tool() {
  local directory IFS=:
  for directory in $PATH; do
    if tool_in "$directory" "$1" && { [[ -z $wg_with_paths ]] || ! denied; }; then return 0; fi
  done
  return 1
}

tool_in() {
  [[ $1 == /* && -f $1/$2 && -x $1/$2 ]] && ! ours "$1" || return 1
  if [[ ! -L $1/$2 && ! -L $1 ]]; then REPLY=$1/$2; return 0; fi
  physical "$1/$2" && ! ours "$REPLY"
}

# --- the report

# Whether the command was started is told to whoever asks for it by `--report FD`, as no status can: the command's own may be
# any. One word and a line's end: `started`, by the shim, which then becomes the command; or `unfenced`, by who runs it without
# a fence. Nothing, where it was never started. The command itself gets no descriptor of it.
take_report() { # the number that the caller gave
  [[ $1 == [1-9]* && $1 != *[!0-9]* && ${#1} -lt 8 && $1 -gt 2 && -e /proc/self/fd/$1 ]] || usage '--report needs the number of an open descriptor above 2'
  wg_told=$1
}

keep_report() { # out of the way of the numbers that are used here
  local given=$wg_told
  exec {wg_told}>&"$given" {given}>&- || die 'the report cannot be written' 'open the descriptor for writing, and raise the limit of open files: ulimit -n'
}

report_unfenced() { # the last thing before such a command
  [[ -n $wg_told ]] || return 0
  if ! printf 'unfenced\n' >&"$wg_told" || ! exec {wg_told}>&-; then die 'the report cannot be written' 'open the descriptor for writing'; fi
}

# --- environment

# A shell cannot unset names that are no identifiers; env can. Names only: values would show in the process list.
drop_odd_names() {
  local name odd=() IFS='='
  mapfile -d '' -t wg_names </proc/self/environ || die '/proc/self/environ cannot be read' 'mount /proc'
  wg_names=("${wg_names[@]%%=*}")
  [[ =${wg_names[*]} == *[!A-Za-z0-9_=]* || =${wg_names[*]}= == *=[0-9=]* ]] || return 0
  for name in "${wg_names[@]}"; do
    [[ $name != *[!A-Za-z0-9_]* && $name == [A-Za-z_]* ]] || odd+=(-u "$name")
  done
  PATH=$wg_path
  exec /usr/bin/env "${odd[@]}" "$BASH" -p -- "$0" "$@"
}

# Done before bwrap starts: --clearenv would leave the host's variables in /proc/1/environ inside.
clean_environment() {
  declare -g +x -- "${wg_names[@]}" SHLVL OLDPWD PWD || die 'the environment cannot be cleaned' 'start with fewer variables: env -i'
  export -- "${wg_passed[@]}"
  local directory path=$wg_path shell=$BASH IFS=:
  if [[ :$path: == *:[!/]* ]]; then
    # An empty or relative entry is the working directory.
    path=
    for directory in $wg_path; do [[ $directory != /* ]] || path+=${path:+:}$directory; done
  fi
  if [[ $shell == "$wg_home"/* ]]; then shell=/bin/sh; fi
  wg_variables=(--setenv HOME "$wg_home" --setenv PATH "${path:-/usr/local/bin:/usr/bin:/bin}" --setenv SHELL "$shell" --unsetenv _)
}

token_of_gh() {
  local config=${GH_CONFIG_DIR:-${XDG_CONFIG_HOME:-$wg_home/.config}/gh}
  if [[ -n ${GH_TOKEN-} || ! -f $config/hosts.yml ]] || ! tool gh; then return 0; fi
  # Not in the project, whose files could tell a version manager what gh is.
  builtin cd / || return 0
  GH_TOKEN=$("$REPLY" auth token 2>/dev/null </dev/null) || GH_TOKEN=
}

note_missing() { # a variable without which an agent cannot log in; said once
  local said=${wg_state%/*}/.noted-$1
  [[ -z ${!1-} && ! -e $said ]] || return 0
  printf 'wavegen: note: %s is not set; log in inside, or set it on the host (said once)\n' "$1" >&2
  [[ ! -d $wg_state ]] || : >"$said"
}

# --- start

open_descriptors() { # 0, 1 and 2, where the caller closed them: a pipe of ours must not become one of them
  [[ -e /proc/self/fd/0 ]] || exec </dev/null
  [[ -e /proc/self/fd/1 ]] || exec >/dev/null
  [[ -e /proc/self/fd/2 ]] || exec 2>/dev/null
  # All of the host can be reached from an open directory.
  if [[ -d /proc/self/fd/0 || -d /proc/self/fd/1 || -d /proc/self/fd/2 ]]; then die 'input or output is a directory' 'redirect it to a file, or not at all'; fi
}

close_descriptors() {
  local fd
  set +f
  for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    [[ $fd == "$wg_told" ]] || ((fd < 3)) || exec {fd}>&-
  done
  set -f
  # A file as input could be opened again for writing, by /proc/self/fd/0, wherever it lies.
  [[ ! -f /proc/self/fd/0 ]] || exec < <(exec cat)
}

mark_entry() { # what changes from now on is this session's
  [[ -d $wg_state ]] || (umask 077 && mkdir -p -- "$wg_state") || die "$wg_state cannot be created" 'make room there'
  wg_marker=${wg_state%/*}/entered-$$-${EPOCHREALTIME//[!0-9]/}
  : >"$wg_marker" || die "$wg_marker cannot be written" 'make room there'
}

usage() {
  local last='[--] [COMMAND [ARGUMENT...]]' print='--print'
  # Of agents --print is an option, too.
  [[ -z $wg_persona ]] || last='[--adapter NAME] [--] [WORD-FOR-THE-AGENT...] | --exec COMMAND...' print='--print-fence'
  die "$1" "usage: $wg_shell [--project DIR] [$print] [--report FD]${wg_contained:+ [--artifacts DIR] [--output DIR]}${wg_proxied:+ [--connect-to NAME:PORT:ADDRESS:PORT]} $last"
}

# Of a persona: the first of its programs that is inside, with the caller's words behind its own.
as_persona() {
  local i=0 count words=() names=''
  while ((i < ${#wg_agents[@]})); do
    names+=${names:+, }${wg_agents[i]} count=${wg_agents[i + 1]}
    [[ -n $wg_adapter && $wg_adapter != "${wg_agents[i]}" ]] || words+=("${wg_agents[@]:i + 1:count + 2}")
    ((i += count + 3))
  done
  ((${#wg_agents[@]})) || die "persona $wg_persona has no adapter, and with it no program" 'name one in the manifest, or start a command with --exec'
  ((${#words[@]})) || die "persona $wg_persona has no adapter $wg_adapter" "its adapters: $names"
  wg_command=(/bin/sh .wavegen/runtime/agent.sh fenced "${words[@]}" 0 "$@")
}

# The wrapper's own options, into variables of main or unfenced; what follows them is the command, or what the agent is given.
take_options() {
  local wg_arguments=("$@")
  wg_asked='' wg_project='' wg_state='' wg_private='' wg_start=$PWD wg_bwrap='' wg_adapter='' wg_exec='' wg_told=''
  while (($#)); do
    case $1 in
      --project=* | --report=* | --connect-to=* | --adapter=* | --artifacts=* | --output=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      --project) [[ -n ${2-} ]] || usage '--project needs a directory'; wg_asked=$2; shift 2 ;;
      --print-fence) wg_print=1; shift ;;
      --print)
        if [[ -n $wg_persona ]]; then
          [[ -z $wg_exec ]] || usage "unknown option $1"
          break
        fi
        wg_print=1
        shift
        ;;
      --report) take_report "${2-}"; shift 2 ;;
      --connect-to)
        [[ -n $wg_proxied ]] || usage "unknown option $1"
        (($# > 1)) || usage '--connect-to needs NAME:PORT:ADDRESS:PORT'
        wg_elsewhere+=(--connect-to "$2")
        shift 2
        ;;
      --artifacts | --output)
        [[ -n $wg_contained ]] || usage "$1 is for containers"
        [[ -n ${2-} ]] || usage "$1 needs a directory"
        if [[ $1 == --artifacts ]]; then wg_artifacts=$2; else wg_output=$2; fi
        shift 2
        ;;
      --exec) wg_exec=1; shift ;;
      --adapter)
        [[ -n $wg_persona ]] || usage "unknown option $1"
        [[ -n ${2-} ]] || usage '--adapter needs a name'
        wg_adapter=$2
        shift 2
        ;;
      --) shift; break ;;
      -*) [[ -n $wg_persona && -z $wg_exec ]] || usage "unknown option $1"; break ;;
      *) break ;;
    esac
  done
  wg_command=("$@")
  drop_odd_names "${wg_arguments[@]}"
  [[ -z $wg_told ]] || keep_report
  if [[ -t 0 ]] && ((${#wg_command[@]} == 0)); then wg_interactive=1; fi
  if [[ -n $wg_persona && -z $wg_exec ]]; then
    as_persona "${wg_command[@]}"
  elif ((${#wg_command[@]} == 0)); then
    wg_command=(bash)
  fi
}

# From the wrapper's words to what is mounted where: words for bwrap, in wg_mounts and, for what comes last, wg_late.
prepare() {
  local wg_place
  open_descriptors
  take_options "$@"
  find_places
  if [[ -n $wg_private_home && ! -d $wg_private/home ]]; then
    # Without settings zsh asks a newcomer what they are to be.
    (umask 077 && mkdir -p -- "$wg_private/home" && : >"$wg_private/home/.zshrc") || die "$wg_private/home cannot be created" 'make room there, or set home: tmpfs'
  fi
  if [[ -n $wg_with_paths ]]; then
    wg_writable=("$wg_project" "$wg_kept")
    written_by_any
    for wg_place in "${REPLIES[@]}"; do may_write "$wg_place"; done
  fi
  system
  places
  settle
  guards
  [[ -z $wg_with_paths ]] || deny_all
  mount_places
  if [[ -n $wg_with_paths ]]; then
    drop_masked
  elif [[ $wg_kept != "$wg_home"/* ]]; then
    # Logins of other shells; in the home they are below the private one.
    hidden "$wg_kept"
  fi
}

look_for_logins() {
  local wg_name
  for wg_name in "${wg_noted[@]}"; do
    if [[ $wg_name == GH_TOKEN ]]; then token_of_gh; else note_missing "$wg_name"; fi
  done
}

# Where the command starts, into REPLY: in the project wherever the caller stands in it; elsewhere is not there, or not the
# command's business.
start_directory() {
  REPLY=$wg_project
  # An agent's settings name paths from there.
  [[ $wg_start != "$wg_project"/* || ( -n $wg_persona && -z $wg_exec ) ]] || REPLY=$wg_start
}

wg_read=fence.sh  # all of it
