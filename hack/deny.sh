#!/usr/bin/env bash
# Checks licences, bans, sources and advisories of all locked packages with cargo-deny, which it installs if it is missing.
#
# Usage: hack/deny.sh                      checks everything
#        hack/deny.sh --update [CHECKOUT]  refreshes hack/advisory-db from a checkout of the RustSec database, or from the network
#
# Advisories come from the RustSec database. If its host cannot be reached, they come from hack/advisory-db, an extract of it.
# ADVISORIES_MAX_AGE_DAYS=N fails the check if it had to use an extract older than N days.
set -euo pipefail
cd "$(dirname "$0")/.."

upstream=https://github.com/RustSec/advisory-db
extract=hack/advisory-db
manifests=(Cargo.toml)
[ ! -e gitcd/fuzz/Cargo.lock ] || manifests+=(gitcd/fuzz/Cargo.toml)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Prints the names of all locked packages but our own.
locked() {
  awk -F'"' '/^name/ { name = $2 } /^source/ { print name }' "${manifests[@]/%toml/lock}" | LC_ALL=C sort -u
}
say() { echo "advisories: $*" >&2; }
fail() { say "$*"; exit 1; }

update() { # [CHECKOUT]
  local from=$tmp/upstream new=$tmp/extract commit wanted
  # A checkout is relative to the caller's folder.
  if (($#)); then from=$(cd "$OLDPWD" && cd "$1" && pwd); else git clone --quiet --depth=1 "$upstream" "$from"; fi
  commit=$(git -C "$from" rev-parse HEAD)
  mkdir "$new"
  locked >"$new/packages"
  git -C "$from" ls-tree -d --name-only "$commit" crates/ | LC_ALL=C sort >"$tmp/known"
  mapfile -t wanted < <(sed 's,^,crates/,' "$new/packages" | LC_ALL=C comm -12 - "$tmp/known")
  git -C "$from" archive "$commit" LICENSE.txt "${wanted[@]}" | tar -x -C "$new"
  {
    echo "repository: $upstream"
    echo "commit: $commit"
    echo "committed: $(TZ=UTC git -C "$from" show -s --format=%cd --date=format-local:%F "$commit")"
    echo "taken: $(date -u +%F)"
  } >"$new/source"
  rm -rf "$extract"
  mv "$new" "$extract"
  say "$extract has $(find "$extract/crates" -type f | wc -l) advisories on ${#wanted[@]} of $(wc -l <"$extract/packages") packages"
}

# Whether the database's host answers, whatever it answers: then a failure to read the database is an error.
is_reachable() {
  local status=0
  curl --silent --max-time 30 --output /dev/null "$upstream" || status=$?
  case $status in
    # The name or the proxy's is unknown, the host does not accept the connection, the time is over, the proxy refuses.
    5 | 6 | 7 | 28 | 56 | 97) return 1 ;;
    # There is no curl.
    127) return 1 ;;
  esac
}

# Makes git, which cargo-deny runs, clone the extract instead of the database.
use_extract() {
  local committed age missing
  committed=$(sed -n 's/^committed: //p' "$extract/source")
  age=$((($(date -u +%s) - $(date -u -d "$committed" +%s)) / 86400))
  missing=$(locked | LC_ALL=C comm -23 - "$extract/packages" | paste -sd' ')
  [ -z "$missing" ] || say "not covered, because they are newer than the extract: $missing"
  if ((age > 7)); then
    say "checked against an extract of $committed, $age days old; refresh it with hack/deny.sh --update"
  fi
  if ((age > ${ADVISORIES_MAX_AGE_DAYS:-age})); then
    fail "the extract is older than ADVISORIES_MAX_AGE_DAYS=$ADVISORIES_MAX_AGE_DAYS"
  fi
  git init --quiet --template= --initial-branch=main "$tmp/repository"
  cp -R "$extract/crates" "$tmp/repository"
  git -C "$tmp/repository" add --all
  git -C "$tmp/repository" -c user.name=deny -c user.email=deny@localhost -c commit.gpgSign=false commit --quiet -m "$committed"
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$tmp/repository.insteadOf" GIT_CONFIG_VALUE_0=$upstream
  export ADVISORY_DBS=$tmp/databases
}

if [ "${1:-}" = --update ]; then
  update "${@:2}"
  exit
fi
command -v cargo-deny >/dev/null || {
  echo "installing cargo-deny (once, about two minutes)" >&2
  cargo install --locked --quiet --debug cargo-deny
}
cargo deny --locked --log-level error check licenses bans sources
allow=()
if ! is_reachable; then
  use_extract
  # Which versions are yanked is known only online.
  allow=(--allow yanked --allow index-failure --allow index-cache-load-failure)
fi
for manifest in "${manifests[@]}"; do
  cargo deny --manifest-path "$manifest" --config deny.toml --locked check "${allow[@]}" advisories
done
