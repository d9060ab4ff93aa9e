#!/usr/bin/env bash
# Downloads what the contract tests of GitHubRepository need, and prints its folder: hack/github.sh
#
#   FOLDER/prism        the mock and validating proxy (needs Node.js)
#   FOLDER/github.json  the part of GitHub's published OpenAPI description that the controller uses
#
# Versions are those of hack/github/package-lock.json. The cache is ${XDG_CACHE_HOME:-~/.cache}/trishanku/github.
# If Node.js is missing, root installs it from the distribution's packages.
set -euo pipefail
cd "$(dirname "$0")/github"

say() { printf 'github: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  say 'Node.js or npm is missing: installing them'
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || die 'Node.js or npm is missing and cannot be installed without root and apt-get: install Node.js 18 or later with npm, and try again'
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends nodejs npm; } >&2 ||
    die 'cannot install Node.js and npm with apt-get: install Node.js 18 or later with npm, and try again'
fi

key=$(cat package-lock.json select.mjs | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/github
folder=$cache/$key
if [[ ! -f $folder/github.json ]]; then
  mkdir -p "$cache"
  made=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$made"' EXIT
  cp package.json package-lock.json "$made"
  say 'downloading the mock server and the OpenAPI description'
  # Without install scripts of packages.
  (cd "$made" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) || die 'npm ci failed'
  described=$made/node_modules/@octokit/openapi
  node select.mjs "$described/generated/api.github.com.json" >"$made/github.json.new"
  # It is large and not needed anymore.
  rm -rf "$described"
  ln -s node_modules/.bin/prism "$made/prism"
  mv "$made/github.json.new" "$made/github.json"
  # Another run may have been faster.
  mv -T "$made" "$folder" 2>/dev/null || [[ -f $folder/github.json ]] || die "cannot write $folder"
fi
printf '%s\n' "$folder"
