# What the scripts of the cases are made of. They run in an empty folder of their own, with the variable ENDPOINT set.
# What a script writes to standard output is its transcript: "$" begins a command, "|" its output,
# "!" its error output; "=" is its status unless that is 0.

readonly PATIENCE=30 # seconds

set -euo pipefail

# A script that fails leaves nothing that runs.
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

# Every call of etcdctl goes to the transcript, unless quietly comes before it.
etcdctl() { told etcdctl "$@"; }

quietly() {
  address "$@"
  "${addressed[@]}"
}

# Sets addressed to the command with the server's address, unless it has one. (etcdctl takes one of the two only.)
address() {
  case " $* " in
    *' --endpoints='*) addressed=(env "$@") ;;
    *) addressed=(env ETCDCTL_ENDPOINTS="$ENDPOINT" "$@") ;;
  esac
}

told() {
  local status=0
  print_command "$@"
  quietly "$@" >out 2>err || status=$?
  print_outputs out err "$status"
}

# Prints the output, which is no text, as numbers.
told_in_hex() {
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

# Starts a command in the background, with lines written by `write` as its input; finish_after ends it.
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

# Waits until the background command has written so many lines.
await_lines() { # LINES
  await has_lines "$1"
}

has_lines() { [[ $(wc -l <bg.out) -ge $1 ]]; }

# Waits until the command has written so many lines and ends it.
finish_after() { # LINES
  await_lines "$1"
  kill -TERM "$pid"
  finish
}

# Waits for the end of the background command.
finish() {
  local status=0
  exec 9>&-
  wait "$pid" || status=$?
  print_outputs bg.out bg.err "$status"
}

# Starts a command beside the background one; its output goes to a file. Sets the variable aside to its process.
# shellcheck disable=SC2034 # scripts use it
aside() { # FILE COMMAND...
  local file=$1
  address "${@:2}"
  "${addressed[@]}" >"$file" &
  aside=$!
}

# A new etcd is told only after a while of which version its storage is.
is_of_this_version() { quietly etcdctl endpoint status -w json | grep -q '"storageVersion":"3.6.0"'; }

# Waits until a command succeeds.
await() {
  local deadline=$((SECONDS + PATIENCE))
  until "$@"; do
    [[ $SECONDS -lt $deadline ]] || fail "in vain: $*; $(cat bg.out bg.err)"
    sleep 0.02
  done
}
