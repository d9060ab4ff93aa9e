#!/usr/bin/env bash
# Builds the manager of an earlier commit for tests of an upgrade, and prints the folder with the program: hack/previous.sh COMMIT
set -euo pipefail
cd "$(dirname "$0")/.."

commit="$(git rev-parse --verify --quiet "${1:-}^{commit}")" || {
  echo "previous.sh: '${1:-}' is not a commit of this repository; usage: hack/previous.sh COMMIT, for example hack/previous.sh HEAD~20" >&2
  exit 2
}
# A separate target folder: cargo would use the same files for the programs of both commits.
folder="${CARGO_TARGET_DIR:-$PWD/target}/previous"
source="$folder/source"
mkdir -p "$folder"
# Only the files: a Git worktree would stay registered in this repository.
rm -rf "$source"
mkdir -p "$source"
git archive "$commit" | tar -x -m -C "$source"
echo "previous.sh: building the manager of $(git log -1 --format='%h, %cs' "$commit")" >&2
CARGO_TARGET_DIR="$folder/build" cargo build --locked --manifest-path "$source/Cargo.toml" --package trishanku-manager --bin manager >&2
echo "$folder/build/debug"
