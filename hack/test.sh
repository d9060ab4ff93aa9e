#!/usr/bin/env bash
# Runs all tests of the workspace, also after failures: hack/test.sh [ARGUMENT...] (arguments of cargo test)
#
# A test binary that fails does not keep the others from running, and a failed test is repeated once (hack/test-runner.sh).
# At the end, prints the tests that failed, the tests that passed only when they were repeated, and the totals. Fails if a
# test failed twice or if something does not compile.
#
# Environment: TEST_RETRIES, TEST_BINARY_TIMEOUT (see hack/test-runner.sh), and
#   TRISHANKU_TEST_REPORT  the file to append failed and flaky tests to; then the caller prints the totals
set -uo pipefail
cd "$(dirname "$0")/.." || exit

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
caller_reports=${TRISHANKU_TEST_REPORT:-}
export TRISHANKU_TEST_REPORT=${TRISHANKU_TEST_REPORT:-$folder/report}
touch "$TRISHANKU_TEST_REPORT"
before=$(grep -c '^failed: ' "$TRISHANKU_TEST_REPORT")

# cargo prints no colours to a pipe by default.
if [[ -t 2 ]]; then export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always}; fi
"${CARGO:-cargo}" test --workspace --locked --no-fail-fast \
  --config "target.'cfg(all())'.runner=['$PWD/hack/test-runner.sh']" "$@" 2>&1 | tee "$folder/log"
status=${PIPESTATUS[0]}

# rustdoc runs documentation tests without the runner.
sed -n 's/^.*doctest failed, to rerun pass `\(.*\)`.*$/failed: documentation tests \1/p' "$folder/log" >>"$TRISHANKU_TEST_REPORT"
if ((status != 0)) && (($(grep -c '^failed: ' "$TRISHANKU_TEST_REPORT") == before)); then
  echo "failed: step cargo test (status $status, without a failed test: see what it printed)" >>"$TRISHANKU_TEST_REPORT"
fi
[[ -n $caller_reports ]] || hack/totals.sh "$folder/log" "$TRISHANKU_TEST_REPORT" || ((status != 0)) || status=1
exit "$status"
