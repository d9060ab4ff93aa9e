#!/usr/bin/env bash
# Runs all tests of the workspace, also after failures: hack/test.sh [ARGUMENT...] (arguments of cargo test)
#
# A test binary that fails does not keep the others from running, and a failed test is repeated once (hack/test-runner.sh).
# Without arguments, the test binaries run in two lanes: each starts the next one that no lane has started, the second lane those
# first that mostly wait. The output of the second lane follows at the end.
# Then prints the tests that failed, the tests that passed only when they were repeated, and the totals. Fails if a
# test failed twice or if something does not compile.
#
# Environment: TEST_RETRIES, TEST_BINARY_TIMEOUT (see hack/test-runner.sh), GOGC (400) for Kubernetes' programs and etcd, and
#   TEST_FIRST             the test binaries with which the second lane starts; empty for one lane
#   TRISHANKU_TEST_REPORT  the file to append failed and flaky tests to; then the caller prints the totals
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# These start several kube-apiservers each, and wait for them and for what people and faults do to them.
first=()
if (($# == 0)) && (($(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) > 1)); then
  read -ra first <<<"${TEST_FIRST-headless processes resilience control_plane}"
fi

folder=$(mktemp -d)
second_group=
clean_up() {
  if [[ -n $second_group ]]; then kill -- "-$second_group" 2>/dev/null; fi
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
caller_reports=${TRISHANKU_TEST_REPORT:-}
export TRISHANKU_TEST_REPORT=${TRISHANKU_TEST_REPORT:-$folder/report}
touch "$TRISHANKU_TEST_REPORT"
before=$(grep -c '^failed: ' "$TRISHANKU_TEST_REPORT")

# Kubernetes' programs spend a fifth of their start on garbage collection: here, memory is cheaper than time.
export GOGC=${GOGC:-400}

# cargo prints no colours to a pipe by default.
if [[ -t 2 ]]; then export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}; fi

run() { # ARGUMENT...
  "${CARGO:-cargo}" test --workspace --locked --no-fail-fast \
    --config "target.'cfg(all())'.runner=['$PWD/hack/test-runner.sh']" "$@" 2>&1
}

# Runs the binaries of the second lane. The documentation tests are run by the first one.
second_lane() {
  local status=0
  run "${first[@]/#/--test=}" || status=$?
  run --tests || status=$?
  return "$status"
}

status=0
unset TEST_CLAIMS
if ((${#first[@]} > 0)); then
  # Now, so that no test waits for a compiler.
  run --no-run | tee "$folder/log"
  status=${PIPESTATUS[0]}
fi
if ((status == 0 && ${#first[@]} > 0)); then
  export TEST_CLAIMS=$folder/claims
  mkdir "$TEST_CLAIMS"
  # A process group of its own, so that all of it can be ended.
  set -m
  # Without a terminal: what reads from one in the background is stopped, and never ends.
  GIT_TERMINAL_PROMPT=0 second_lane </dev/null >"$folder/second" 2>&1 &
  second_group=$!
  set +m
fi
if ((status == 0)); then
  run "$@" | tee -a "$folder/log"
  status=${PIPESTATUS[0]}
fi
if [[ -n $second_group ]]; then
  printf '\nWaiting for the second lane\n'
  wait "$second_group"
  second_status=$?
  second_group=
  ((status != 0)) || status=$second_status
  tee -a "$folder/log" <"$folder/second"
fi

# rustdoc runs documentation tests without the runner.
sed -n 's/^.*doctest failed, to rerun pass `\(.*\)`.*$/failed: documentation tests \1/p' "$folder/log" >>"$TRISHANKU_TEST_REPORT"
if ((status != 0)) && (($(grep -c '^failed: ' "$TRISHANKU_TEST_REPORT") == before)); then
  echo "failed: step cargo test (status $status, without a failed test: see what it printed)" >>"$TRISHANKU_TEST_REPORT"
fi
[[ -n $caller_reports ]] || hack/totals.sh "$folder/log" "$TRISHANKU_TEST_REPORT" || ((status != 0)) || status=1
exit "$status"
