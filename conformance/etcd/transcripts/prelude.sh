# Functions for the scripts of the cases. Each script runs in an empty folder of its own, with the variable ENDPOINT set.
# The standard output of a script is its transcript: "$" starts a command, "|" a line of its output, "!" a line of its
# error output; "=" is its exit status unless that is 0.

readonly PATIENCE=30 # seconds

set -euo pipefail

# Kills background processes, so that a script that fails leaves none behind.
clean_up() {
  local processes
  processes=$(jobs -pr)
  # shellcheck disable=SC2086 # a list
  [[ -z $processes ]] || kill $processes 2>/dev/null || :
}
trap clean_up EXIT

fail() {
  printf '%s\n' "$*" >&2
  exit 99
}

# Every call of etcdctl is recorded in the transcript, unless it is prefixed with quietly.
etcdctl() { prints etcdctl "$@"; }

quietly() {
  address "$@"
  "${addressed[@]}"
}

# Sets addressed to the command, with ENDPOINT in the environment unless the command has --endpoints: etcdctl rejects both.
address() {
  case " $* " in
    *' --endpoints='*) addressed=(env "$@") ;;
    *) addressed=(env ETCDCTL_ENDPOINTS="$ENDPOINT" "$@") ;;
  esac
}

prints() {
  local status=0
  print_command "$@"
  quietly "$@" >out 2>err || status=$?
  print_outputs out err "$status"
}

# Like `prints`, with the output, which is binary, in hexadecimal.
prints_in_hex() {
  local status=0
  print_command "$@"
  quietly "$@" >out 2>err || status=$?
  od -An -v -tx1 out >hex
  print_outputs hex err "$status"
}

print_command() { printf '$ %s\n' "$*"; }

print_outputs() { # OUT ERR STATUS
  sed -e 's/^/| /' -e 's/ $//' "$1"
  sed -e 's/^/! /' -e 's/ $//' "$2"
  if [[ $3 -ne 0 ]]; then printf '= %d\n' "$3"; fi
}

# Sets the variable lease to the id of a new lease.
# shellcheck disable=SC2034 # scripts use it
grant() { # TTL_SECONDS
  lease=$(quietly etcdctl lease grant "$1" | cut -d' ' -f2)
}

# Starts a command in the background. Its input is what `write` writes; `finish` or `finish_after` ends it.
background() {
  print_command "$@" '&'
  rm -f bg.in
  mkfifo bg.in
  : >bg.out
  address "$@"
  "${addressed[@]}" <bg.in >bg.out 2>bg.err &
  pid=$!
  exec 9>bg.in
}

write() {
  printf '> %s\n' "$*"
  printf '%s\n' "$*" >&9
}

# Waits until the background command has printed LINES lines.
await_lines() { # LINES
  await has_lines "$1"
}

has_lines() { [[ $(wc -l <bg.out) -ge $1 ]]; }

# Waits until the background command has printed LINES lines, and terminates it.
finish_after() { # LINES
  await_lines "$1"
  kill -TERM "$pid"
  finish
}

# Closes the input of the background command, waits for its exit, and prints its output.
finish() {
  local status=0
  exec 9>&-
  wait "$pid" || status=$?
  print_outputs bg.out bg.err "$status"
}

# Starts a second command in the background, with its output in FILE. Sets the variable aside to its process id.
# shellcheck disable=SC2034 # scripts use it
aside() { # FILE COMMAND...
  local file=$1
  address "${@:2}"
  "${addressed[@]}" >"$file" &
  aside=$!
}

# Succeeds once the server reports storage version 3.6.0: a new etcd sets it only after a while, as it does the cluster's version.
# It compares both with those that it should have every five seconds, so a script has that long from here.
is_of_this_version() { quietly etcdctl endpoint status -w json | grep -q '"storageVersion":"3.6.0"'; }

# Waits until a command succeeds.
await() {
  local deadline=$((SECONDS + PATIENCE))
  until "$@"; do
    [[ $SECONDS -lt $deadline ]] || fail "timed out waiting for: $*; $(cat bg.out bg.err)"
    sleep 0.02
  done
}
