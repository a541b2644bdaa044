# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# A persona from which the manifest takes the fence: loudly, with the environment that it would have inside, and with
# settings by which its agent fences itself where it can. Sourced by such wrappers, after the other files.

unfenced() {
  local wg_arguments=("$@") wg_red=$'\033[1;31m' wg_plain=$'\033[0m'
  wg_asked='' wg_start=$PWD wg_adapter='' wg_exec='' wg_told='' wg_print=''
  while (($#)); do
    case $1 in
      --project=* | --report=* | --adapter=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      --project) [[ -n ${2-} ]] || usage '--project needs a directory'; wg_asked=$2; shift 2 ;;
      --adapter) [[ -n ${2-} ]] || usage '--adapter needs a name'; wg_adapter=$2; shift 2 ;;
      --exec) wg_exec=1; shift ;;
      --print-fence) wg_print=1; shift ;;
      --report) take_report "${2-}"; shift 2 ;;
      --) shift; break ;;
      -*) [[ -z $wg_exec ]] || usage "unknown option $1"; break ;;
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
  if [[ -n $wg_print ]]; then
    printf '%q\n' "${wg_command[@]}"
    exit 0
  fi
  bare
}
wg_read=unfenced.sh  # all of it
