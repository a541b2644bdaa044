# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# A persona from which the manifest takes the fence: loudly, with the environment that it would have inside, and with
# settings by which its agent fences itself where it can. Sourced by such wrappers, after the other files.

unfenced() {
  local wg_arguments=("$@") wg_red=$'\033[1;31m' wg_plain=$'\033[0m'
  wg_asked='' wg_start=$PWD wg_adapter='' wg_exec='' wg_told=''
  while (($#)); do
    case $1 in
      --project) (($# > 1)) || die '--project needs a directory' "usage: $wg_shell --project DIR"; wg_asked=$2; shift 2 ;;
      --adapter) (($# > 1)) || die '--adapter needs a name' "usage: $wg_shell --adapter NAME"; wg_adapter=$2; shift 2 ;;
      --exec) wg_exec=1; shift ;;
      --report) take_report "${2-}"; shift 2 ;;
      --) shift; break ;;
      *) break ;;
    esac
  done
  drop_odd_names "${wg_arguments[@]}"
  [[ -z $wg_told ]] || keep_report
  [[ -t 2 && -z ${NO_COLOR-} ]] || wg_red='' wg_plain=''
  find_project
  printf '%swavegen: %s: NOT SANDBOXED: %s%s\n' "$wg_red" "$wg_shell" "$wg_why" "$wg_plain" >&2
  if [[ -n $wg_exec ]]; then wg_command=("$@"); else as_persona "$@"; fi
  [[ -n $wg_exec ]] || wg_command[2]=bare
  ((${#wg_command[@]})) || wg_command=(bash)
  bare
}
wg_read=unfenced.sh  # all of it
