#!/usr/bin/env bash
# Sums up the results of all test runners: hack/totals.sh LOG REPORT
#
# LOG has their output, with a line `test result: …` for each binary. REPORT has a line `failed: …` for each failed test, and
# `flaky: …` for each that passed only when it was repeated. A line `failed: step …` stands for a step that failed without
# a failed test, for example because something does not compile: it counts as one failure. Prints the lines of REPORT and
# one line of totals. Exits with 1 if anything failed.
set -euo pipefail

awk '
  FILENAME == ARGV[1] {
    lines[++count] = $0
    if ($1 == "failed:") listed++
    if ($1 == "failed:" && $2 == "step") steps++
    next
  }
  /^test result: / {
    for (i = 2; i <= NF; i++) {
      if ($i ~ /^passed/) passed += $(i - 1)
      if ($i ~ /^failed/) failed += $(i - 1)
      if ($i ~ /^ignored/) skipped += $(i - 1)
    }
  }
  END {
    failed += steps
    print ""
    for (i = 1; i <= count; i++) print lines[i]
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed + listed > 0
  }' "$2" "$1"
