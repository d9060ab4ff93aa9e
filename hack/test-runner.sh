#!/usr/bin/env bash
# Runs one test binary for cargo, and repeats failed tests once: hack/test-runner.sh BINARY [ARGUMENT...]
#
# hack/test.sh sets it as cargo's runner. Appends a line to the file $TRISHANKU_TEST_REPORT for each test that failed or
# passed only when it was repeated: `failed: BINARY TEST` or `flaky: BINARY TEST`. The binary's last line,
# `test result: …`, is printed with the counts after the repetition. Exits with 0 if no test failed twice.
#
#   TEST_BINARY_TIMEOUT  a binary that runs longer than this is killed, and fails (25m)
#   TEST_CLAIMS          a folder: a binary runs only if it has no entry there, and gets one
#   TEST_RETRIES         no test of a binary is repeated if more than this many failed (10); 0 repeats none
set -uo pipefail

readonly AT_MOST=${TEST_RETRIES:-10}
binary=$1
shift
# Without the hash that cargo appends.
name=$(basename -- "$binary")
name=${name%-????????????????}

# Documentation tests: rustdoc reports on them. Without a runner of cargo, it would set this variable for them.
case $binary in
  */deps/* | */examples/*) ;;
  *) RUSTDOC_DOCTEST_BIN_PATH=$binary exec "$binary" "$@" ;;
esac

# Several lanes of hack/test.sh go through the same binaries.
if [[ -n ${TEST_CLAIMS:-} ]]; then
  claim=$TEST_CLAIMS/$(basename -- "$binary")
  if mkdir -- "$claim" 2>/dev/null; then
    # Not for what the tests start.
    unset TEST_CLAIMS
  elif [[ -d $claim ]]; then
    echo "$name: runs in the other lane"
    exit 0
  else
    echo "$name: cannot be claimed in $TEST_CLAIMS" >&2
    exit 1
  fi
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

report() { [[ -z ${TRISHANKU_TEST_REPORT:-} ]] || printf '%s: %s %s\n' "$1" "$name" "$2" >>"$TRISHANKU_TEST_REPORT"; }

run() { # ARGUMENT...
  if command -v timeout >/dev/null; then
    timeout --foreground --kill-after=10 "${TEST_BINARY_TIMEOUT:-25m}" "$binary" "$@"
  else
    "$binary" "$@"
  fi
}

# Passes the output through, except for the last line with a result, which is written to the file `result` for the caller. A test
# may print such a line itself; it is indented, so that it is not counted. The file `failed` has the names of failed tests,
# `passed` the number of passed tests. Not in awk, since some versions read a pipe in blocks and delay the output by minutes.
watch() { # FOLDER
  local line held='' blank=0 passed=0 names=()
  while IFS= read -r line || [[ -n $line ]]; do
    if [[ -n $held ]]; then
      if [[ -z $line ]]; then
        ((++blank))
        continue
      fi
      printf ' %s\n' "$held"
      for ((; blank > 0; blank--)); do echo; done
      held=''
    fi
    case $line in
      'test result: '*)
        held=$line
        continue
        ;;
      failures:) names=() ;;
      '    '[!\ ]*) names+=("${line#    }") ;;
      'test '*' ... ok') ((++passed)) ;;
    esac
    printf '%s\n' "$line"
  done
  echo "$passed" >"$1/passed"
  if [[ -n $held ]]; then echo "$held" >"$1/result"; fi
  if [[ $held == 'test result: FAILED'* ]]; then printf '%s\n' ${names[@]+"${names[@]}"} >"$1/failed"; else : >"$1/failed"; fi
}

# Prints how long the binary took, and how much time of processors: what mostly waits can run beside something else.
print_resources() {
  local user system
  # Not in a pipe, whose processes have no children. The second line is for children: `0m1.234s 0m0.567s`.
  times >"$folder/times"
  read -r user system < <(tail -n 1 "$folder/times")
  awk -v name="$name" -v took="$SECONDS" -v user="$user" -v kernel="$system" '
    function seconds(text,   part) { split(text, part, /[ms]/); return part[1] * 60 + part[2] }
    BEGIN { printf "%s took %d s, and %.0f s of processors\n", name, took, seconds(user) + seconds(kernel) }'
}

run "$@" | watch "$folder"
status=${PIPESTATUS[0]}

result=$(cat "$folder/result" 2>/dev/null) || result=
print_resources
if ((status == 0)); then
  [[ -z $result ]] || printf '%s\n' "$result"
  exit 0
fi

mapfile -t failed < <(grep . "$folder/failed")
if [[ -z $result || ${#failed[@]} == 0 ]]; then
  case $status in
    124 | 137) why="the binary ran longer than ${TEST_BINARY_TIMEOUT:-25m} and was killed" ;;
    *) if [[ -n $result ]]; then
      why="the binary exited with status $status although no test failed"
    else
      why="the binary exited with status $status before its tests were done"
    fi ;;
  esac
  report failed "($why)"
  printf '\n%s: %s\n' "$name" "$why"
  printf '\ntest result: FAILED. %d passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n' "$(cat "$folder/passed")"
  exit "$status"
fi

# The arguments without filters (names of tests).
flags=()
takes_value=
for argument; do
  if [[ -n $takes_value || $argument == -* ]]; then flags+=("$argument"); fi
  takes_value=
  case $argument in
    --skip | --test-threads | --format | --color | --logfile | --shuffle-seed | -Z) takes_value=1 ;;
  esac
done

lasting=() flaky=()
if ((${#failed[@]} > AT_MOST)); then
  lasting=("${failed[@]}")
else
  for test in "${failed[@]}"; do
    printf '\nrepeating %s %s\n' "$name" "$test"
    mkdir "$folder/again"
    run ${flags[@]+"${flags[@]}"} --exact "$test" | watch "$folder/again"
    again=${PIPESTATUS[0]}
    # A filter that matches no test also exits with 0.
    if ((again == 0)) && grep -q '^test result: ok\. [1-9]' "$folder/again/result" 2>/dev/null; then
      flaky+=("$test")
    else
      lasting+=("$test")
    fi
    rm -rf "$folder/again"
  done
fi
for test in ${flaky[@]+"${flaky[@]}"}; do
  report flaky "$test"
  printf '%s: %s failed, and passed when it was repeated\n' "$name" "$test"
done
for test in ${lasting[@]+"${lasting[@]}"}; do report failed "$test"; done

awk -v moved="${#flaky[@]}" -v left="${#lasting[@]}" '{
  for (i = 2; i <= NF; i++) {
    if ($i ~ /^passed/) $(i - 1) += moved
    if ($i ~ /^failed/) $(i - 1) -= moved
  }
  if (!left) sub(/FAILED/, "ok")
  print "\n" $0
}' "$folder/result"
((${#lasting[@]} == 0)) || exit "$status"
