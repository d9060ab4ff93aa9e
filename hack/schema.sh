#!/usr/bin/env bash
# Generates gitcd's merge schema of the built-in kinds of Kubernetes: hack/schema.sh [--check]
#
#   --check  compares the existing table instead of replacing it; passes with a message on standard
#            error if Go, or the module that contains the OpenAPI, is not available
#
# The OpenAPI is that of the Kubernetes version in hack/kube/go.mod.
set -euo pipefail
cd "$(dirname "$0")"
readonly TABLE=../gitcd/crates/merge/src/schema/kubernetes.json

die() {
  echo "schema: $*" >&2
  exit 1
}

check=0
case ${1:-} in
  '') ;;
  --check) check=1 ;;
  *) die "unknown argument '$1'; usage: hack/schema.sh [--check]" ;;
esac

unavailable() {
  ((!check)) || { echo "schema: not checked: $*" >&2 && exit 0; }
  die "$*"
}

command -v go >/dev/null || unavailable 'no go program in PATH'
export GOFLAGS=-mod=readonly GOWORK=off GO111MODULE=on CGO_ENABLED=0
module=$(cd kube && go mod download -json k8s.io/kubernetes) || unavailable "cannot download the module k8s.io/kubernetes: $module"
field() { sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",\{0,1\}\$/\1/p" <<<"$module"; }
version=$(field Version)
openapi=$(field Dir)/api/openapi-spec
[[ -n $version && -f $openapi/swagger.json ]] || die "the module k8s.io/kubernetes does not contain $openapi"

# Beside the table, so that the last step is a rename.
made=$(mktemp "$TABLE.XXXXXX")
trap 'rm -f "$made"' EXIT
(cd schema && exec go run . "$version" "$openapi") >"$made"
if ((check)); then
  cmp -s "$made" "$TABLE" || {
    diff "$TABLE" "$made" >&2 || :
    die "the table differs from that of Kubernetes $version: run \`make schema\`"
  }
else
  chmod 0644 "$made"
  mv -f "$made" "$TABLE"
fi
