#!/usr/bin/env bash
# Runs the fuzz targets of gitcd one after the other: hack/fuzz.sh [TARGET...]
#
#   SECONDS_EACH  time for each target (60)
#   JOBS          processes for each target (1)
#
# A crate contains libFuzzer, and flags of the pinned stable toolchain add the instrumentation that it needs. So this
# requires neither nightly nor cargo-fuzz, only a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/../gitcd/fuzz"
targets=("$@")
[ $# -gt 0 ] || targets=(path json journal backup pack request)

host="$(rustc -vV | sed -n 's/^host: //p')"
coverage="-Cpasses=sancov-module"
for argument in sanitizer-coverage-{level=4,inline-8bit-counters,pc-table,trace-compares} simplifycfg-branch-fold-threshold=0; do
  coverage+=" -Cllvm-args=-$argument"
done
# With an explicit target, build scripts and macros are not instrumented; they could not be linked otherwise.
RUSTFLAGS="$coverage ${RUSTFLAGS:-}" cargo build --release --locked --target "$host"

failed=()
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" "artifacts/$target"
  echo "=== $target: ${SECONDS_EACH:-60} s"
  # A snapshot of etcd has pages of 4 KiB.
  [ "$target" = backup ] && max_len=32768 || max_len=8192
  # A target needs little memory and time: an input that exceeds these limits is a finding.
  "target/$host/release/$target" -max_total_time="${SECONDS_EACH:-60}" -fork="${JOBS:-0}" -timeout=10 -rss_limit_mb=1024 \
    -max_len=$max_len -print_final_stats=1 -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target" ||
    failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "findings in: ${failed[*]}; their inputs are in gitcd/fuzz/artifacts/, copy them to seeds/ to make them tests" >&2
  exit 1
fi
