# shellcheck shell=bash disable=SC2154,SC2034  # the wrapper and the other files set and use wg_ variables
#
# A persona from which the manifest takes the fence: loudly, and with the environment that it would have inside. Sourced by
# such wrappers, after the other files.

unfenced() {
  local wg_red=$'\033[1;31m' wg_plain=$'\033[0m' wg_interactive='' wg_print=''
  take_options "$@"
  [[ -t 2 && -z ${NO_COLOR-} ]] || wg_red='' wg_plain=''
  find_project
  printf '%swavegen: %s: NOT SANDBOXED: %s%s\n' "$wg_red" "$wg_shell" "$wg_why" "$wg_plain" >&2
  [[ -n $wg_exec ]] || wg_command[2]=bare
  if [[ -n $wg_print ]]; then
    printf '%q\n' "${wg_command[@]}"
    exit 0
  fi
  bare
}
wg_read=unfenced.sh  # all of it
