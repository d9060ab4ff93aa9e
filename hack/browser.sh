#!/usr/bin/env bash
# Installs what the tests of the web page need to drive a browser, and prints the path of Chromium and the folder of the npm
# packages, a line each: hack/browser.sh [--check]
#
# Chromium and Node.js are packages of the distribution; root installs them if they are missing. The npm packages are those of
# hack/browser/package-lock.json, in ${XDG_CACHE_HOME:-~/.cache}/trishanku/browser.
# With --check, installs nothing. Exits with status 3 and the reason if a part is missing, or cannot be installed.
#
# Environment: CHROMIUM, another Chromium than that of the distribution
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

readonly MISSING=3 NODE=18

say() { printf 'browser: %s\n' "$*" >&2; }

missing() {
  say "$*"
  exit "$MISSING"
}

install=1
case ${1:-} in
  --check) install= ;;
  '') ;;
  *)
    say "unknown argument '$1'; known is: --check"
    exit 2
    ;;
esac

chromium=${CHROMIUM:-chromium}
[[ -z ${CHROMIUM:-} ]] || command -v "$chromium" >/dev/null || missing "there is no program $chromium: correct or unset CHROMIUM"
packages=()
# Without recommended packages, Chromium has no font of its own.
command -v "$chromium" >/dev/null || packages+=(chromium fonts-liberation)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
if ((${#packages[@]})); then
  [[ -n $install ]] || missing "not installed: ${packages[*]}; run hack/browser.sh"
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null ||
    missing "not installed: ${packages[*]}; install what these Debian packages contain, or run this as root on Debian"
  "$here/apt.sh" "${packages[@]}" || missing "cannot install ${packages[*]} with apt-get: install them, and try again"
fi
(($(node -p 'parseInt(process.versions.node)') >= NODE)) || missing "Node.js $(node --version) is too old: install version $NODE or later"

key=$(sha256sum <"$here/browser/package-lock.json" | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/browser
folder=$cache/$key
if [[ ! -d $folder/node_modules ]]; then
  [[ -n $install ]] || missing "the npm packages are not in $folder; run hack/browser.sh"
  mkdir -p "$cache"
  made=$(mktemp -d "$cache/.new.XXXXXX")
  trap 'rm -rf "$made"' EXIT
  cp "$here/browser/package.json" "$here/browser/package-lock.json" "$made"
  say 'installing the npm packages'
  # Without install scripts of packages.
  (cd "$made" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retry-maxtimeout=10000 >&2) ||
    missing 'npm ci failed: the npm registry may be out of reach'
  # Another run may have been faster.
  mv -T "$made" "$folder" 2>/dev/null || [[ -d $folder/node_modules ]] || {
    say "cannot write $folder"
    exit 1
  }
fi
printf '%s\n' "$(command -v "$chromium")" "$folder"
