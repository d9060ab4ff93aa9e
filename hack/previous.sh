#!/usr/bin/env bash
# Builds the manager as it was at a commit: prints the folder with the program. For tests of what an upgrade from there does.
set -euo pipefail
cd "$(dirname "$0")/.."

commit="$(git rev-parse --verify --quiet "${1:-}^{commit}")" || {
  echo "previous.sh: '${1:-}' is no commit here; give one, for example hack/previous.sh HEAD~20" >&2
  exit 2
}
# A build of its own: cargo would take the same files for the programs of both.
folder="${CARGO_TARGET_DIR:-$PWD/target}/previous"
source="$folder/source"
mkdir -p "$folder"
# Only the files: a work tree would stay registered here.
rm -rf "$source"
mkdir -p "$source"
git archive "$commit" | tar -x -m -C "$source"
echo "previous.sh: building the manager of $(git log -1 --format='%h, %cs' "$commit")" >&2
CARGO_TARGET_DIR="$folder/build" cargo build --locked --manifest-path "$source/Cargo.toml" --package trishanku-manager --bin manager >&2
echo "$folder/build/debug"
