#!/usr/bin/env bash
# Builds Kubernetes' sample-controller, an unmodified third-party controller, and prints the folder with the program and its
# CustomResourceDefinition. It is built from its Go module once, and cached.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
version="$(sed -n 's/^require k8s.io\/sample-controller //p' "$here/sample-controller/go.mod")"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trishanku/sample-controller/$version"
if [[ ! -x "$cache/sample-controller" || ! -f "$cache/crd.yaml" ]]; then
  command -v go >/dev/null || { echo "sample-controller.sh: Go is missing, so the sample controller cannot be built; install Go 1.26 or later" >&2; exit 1; }
  mkdir -p "$cache"
  export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
  cd "$here/sample-controller"
  go build -mod=readonly -trimpath -ldflags "-s -w" -o "$cache/sample-controller.$$" k8s.io/sample-controller
  cp "$(go list -mod=readonly -m -f '{{.Dir}}' k8s.io/sample-controller)/artifacts/examples/crd.yaml" "$cache/crd.yaml.$$"
  chmod u+w "$cache/crd.yaml.$$"
  mv "$cache/crd.yaml.$$" "$cache/crd.yaml"
  # The program last, so that it exists only together with crd.yaml.
  mv "$cache/sample-controller.$$" "$cache/sample-controller"
fi
echo "$cache"
