#!/usr/bin/env bash
# Kubernetes' sample controller, which knows nothing of Trishanku: prints the folder with the program and its CustomResourceDefinition.
# It is built from its Go module once, into the cache.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
version="$(sed -n 's/^require k8s.io\/sample-controller //p' "$here/sample-controller/go.mod")"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/sample-controller/$version"
if [[ ! -x "$cache/sample-controller" || ! -f "$cache/crd.yaml" ]]; then
  command -v go >/dev/null || { echo "sample-controller.sh: no Go to build the sample controller with; install Go 1.26 or later" >&2; exit 1; }
  mkdir -p "$cache"
  export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
  cd "$here/sample-controller"
  go build -mod=readonly -trimpath -ldflags "-s -w" -o "$cache/sample-controller.$$" k8s.io/sample-controller
  cp "$(go list -mod=readonly -m -f '{{.Dir}}' k8s.io/sample-controller)/artifacts/examples/crd.yaml" "$cache/crd.yaml.$$"
  chmod u+w "$cache/crd.yaml.$$"
  mv "$cache/crd.yaml.$$" "$cache/crd.yaml"
  # Last, so that who finds it finds both.
  mv "$cache/sample-controller.$$" "$cache/sample-controller"
fi
echo "$cache"
