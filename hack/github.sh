#!/usr/bin/env bash
# Gets what the contract tests of GitHubRepository need, and prints the folder that has it: hack/github.sh
#
#   FOLDER/prism        the mock and validating proxy (needs Node.js)
#   FOLDER/github.json  what is spoken to of GitHub's published OpenAPI description
#
# Versions are those of hack/github/package-lock.json. Everything is kept in ${XDG_CACHE_HOME:-~/.cache}/trishanku/github.
# Where there is no Node.js, it is installed from the distribution's packages if that is allowed.
set -euo pipefail
cd "$(dirname "$0")/github"

say() { printf 'github: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  say 'there is no Node.js: trying to install it'
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || die 'cannot: install Node.js 18 or later with npm, and try again'
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends nodejs npm; } >&2 ||
    die 'it cannot be installed: install Node.js 18 or later with npm, and try again'
fi

key=$(cat package-lock.json select.mjs | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/github
folder=$cache/$key
if [[ ! -f $folder/github.json ]]; then
  mkdir -p "$cache"
  made=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$made"' EXIT
  cp package.json package-lock.json "$made"
  say 'getting the mock and the description'
  # No script of any package is run.
  (cd "$made" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) || die 'npm ci failed'
  described=$made/node_modules/@octokit/openapi
  node select.mjs "$described/generated/api.github.com.json" >"$made/github.json.new"
  # It is large, and read no more.
  rm -rf "$described"
  ln -s node_modules/.bin/prism "$made/prism"
  mv "$made/github.json.new" "$made/github.json"
  # Somebody else may have been faster.
  mv -T "$made" "$folder" 2>/dev/null || [[ -f $folder/github.json ]] || die "cannot write $folder"
fi
printf '%s\n' "$folder"
