# Runs the cases of a test script, and reports them as the test runner does. To be sourced.
#
# The caller sets `scratch`, a folder of its own, and `part`, a part of the names of the cases to run (all if empty).

passed=0 failed=0

try() { # CASE
  local status started=$SECONDS
  [[ $1 == *$part* ]] || return 0
  # Not in a condition, in which a failed command does not end the case.
  set +e
  (
    set -euo pipefail
    shopt -s inherit_errexit
    "$1"
  ) >"$scratch/output" 2>&1
  status=$?
  set -e
  if ((status == 0)); then
    passed=$((passed + 1))
    printf 'test %s ... ok (%d s)\n' "$1" "$((SECONDS - started))"
    grep '^time to' "$scratch/output" || :
  else
    failed=$((failed + 1))
    printf 'test %s ... FAILED\n' "$1"
    cat "$scratch/output"
    [[ -z ${TRISHANKU_TEST_REPORT:-} ]] || printf 'failed: %s %s\n' "${0##*/}" "$1" >>"$TRISHANKU_TEST_REPORT"
  fi
}

# Prints the totals, and exits with 1 if a case failed or none was run.
totals() {
  local result=ok
  ((passed + failed)) || { echo "no case has '$part' in its name" >&2 && exit 1; }
  ((failed == 0)) || result=FAILED
  printf '\ntest result: %s. %d passed; %d failed; 0 ignored; 0 measured; 0 filtered out\n' "$result" "$passed" "$failed"
  ((failed == 0))
}
