#!/usr/bin/env bash
# Builds Helm from its Go module once, caches it, and prints the path of the program. Its version is that of hack/helm/go.mod.
# Usage: hack/helm.sh           builds it if it is not cached (two minutes of two cores; needs Go)
#        hack/helm.sh --cached  builds nothing: fails if it is not cached
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
version="$(sed -n 's/^require helm.sh\/helm\/v4 //p' "$here/helm/go.mod")"
program="${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/helm/$version/helm"
if [[ ! -x "$program" ]]; then
  [[ ${1-} != --cached ]] || { echo "helm.sh: Helm $version is not cached in $program" >&2; exit 1; }
  command -v go >/dev/null || { echo "helm.sh: Go is missing, so Helm cannot be built; install Go 1.26 or later" >&2; exit 1; }
  echo "helm.sh: building Helm $version from its Go module" >&2
  mkdir -p "${program%/*}"
  export GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0
  go build -C "$here/helm" -trimpath -buildvcs=false -ldflags "-s -w" -o "$program.$$" helm.sh/helm/v4/cmd/helm
  mv "$program.$$" "$program"
fi
echo "$program"
