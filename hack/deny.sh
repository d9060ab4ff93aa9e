#!/usr/bin/env bash
# Checks licences, bans and sources with cargo-deny, which it installs if it is missing.
# Advisories are checked if their database can be reached over the network.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-deny >/dev/null || {
  echo "installing cargo-deny (once, about two minutes)" >&2
  cargo install --locked --quiet --debug cargo-deny
}
cargo deny --log-level error check licenses bans sources
if timeout 30 git ls-remote https://github.com/RustSec/advisory-db >/dev/null 2>&1; then
  cargo deny check advisories
else
  echo "advisories not checked: their database cannot be reached" >&2
fi
