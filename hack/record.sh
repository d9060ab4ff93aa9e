#!/usr/bin/env bash
# Records the terminal sessions in docs/images from real runs: hack/record.sh [SESSION...] (names in hack/record/, default: all)
#
# A session is a bash script of `show COMMAND` lines. Its commands run in an empty home of their own; the recording keeps
# their output with its times, without long pauses. hack/record/svg.awk draws it.
#
# Environment: PROGRAMS, the folder of trishanku and gitcd (default: target/release)
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z ${RECORD_HOME:-} ]]; then
  programs=$(realpath "${PROGRAMS:-target/release}")
  assets=$(hack/assets.sh kube-apiserver kubectl kube-controller-manager kube-scheduler)
  # Nothing of this user's environment is in a recording.
  exec env -i HOME=/tmp/demo RECORD_HOME=/tmp/demo PATH="$programs:$assets:$PATH" KUBEBUILDER_ASSETS="$assets" \
    LC_ALL=C.UTF-8 TZ=UTC CLICOLOR_FORCE=1 "$PWD/hack/record.sh" "$@"
fi

# Appends what it reads to the recording, each line with the time in microseconds. A command starts with \001.
record() {
  local line kind
  while IFS= read -r line; do
    kind=o
    if [[ $line == $'\001'* ]]; then kind=p; fi
    printf '%s\t%s\t%s\n' "${EPOCHREALTIME/./}" "$kind" "${line#$'\001'}" >>"$recording"
  done
}

# Runs a command as if it was typed.
show() {
  printf '\001%s\n' "$1" >&"$terminal"
  eval "$1" >&"$terminal" 2>&1
}

# Like `show`, for a command that runs beside the next ones until the session ends.
show_beside() {
  printf '\001%s &\n' "$1" >&"$terminal"
  eval "exec $1" >&"$terminal" 2>&1 &
}

# Waits until a line of output matches.
until_shown() {
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    if cut -f3 "$recording" | grep -qE -- "$1"; then return; fi
    sleep 0.1
  done
  echo "error: the session never showed \"$1\":" >&2
  cut -f3 "$recording" >&2
  return 1
}

# Removes what a session left: its cluster and its home.
clean() {
  [[ -d $HOME ]] || return 0
  trishanku down >/dev/null 2>&1 || :
  rm -rf "$HOME"
}

if [[ -e $HOME ]]; then
  echo "error: $HOME exists; remove it first" >&2
  exit 1
fi
recording=$(mktemp)
trap 'clean; rm -f "$recording"' EXIT
sessions=("$@")
if ((${#sessions[@]} == 0)); then sessions=(headless push); fi
for session in "${sessions[@]}"; do
  script=$PWD/hack/record/$session.sh
  mkdir -p "$HOME"
  git config --global user.name Asha
  git config --global user.email asha@example.org
  git config --global color.ui always
  : >"$recording"
  (
    trap 'kill $(jobs -p) 2>/dev/null || :' EXIT
    exec {terminal}> >(record)
    recorder=$!
    cd "$HOME"
    # shellcheck source=/dev/null
    . "$script"
    # The recorder ends when nothing can write to it.
    trishanku down >/dev/null 2>&1
    exec {terminal}>&-
    wait "$recorder"
  )
  clean
  field() { sed -n "s/^# $1: //p" "$script"; }
  LC_ALL=C awk -v title="$(field Title)" -v about="$(field Description)" -v rows="$(field Rows)" \
    -f hack/record/svg.awk "$recording" >"docs/images/$session.svg"
  echo "docs/images/$session.svg"
done
