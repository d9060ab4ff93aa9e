#!/usr/bin/env bash
# Sees to it that this machine has what a node of the cluster tests is made of (e2e/src/nodes): hack/node.sh
#
# Installs what is missing from the distribution's packages, if that is allowed. Nothing that it installs is started or enabled here.
set -euo pipefail

say() { printf 'node: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

[[ $(uname -s) == Linux ]] || die "a node runs on Linux alone; with a container engine: TRISHANKU_E2E_CLUSTER=kind"
[[ $(id -u) == 0 ]] || die "a node needs root, for namespaces, mounts and control groups: run this as root"

has_plugins() {
  local folder
  for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
    [[ -x $folder/ptp && -x $folder/host-local && -x $folder/portmap ]] && return 0
  done
  return 1
}

packages=()
for pair in unshare:util-linux nsenter:util-linux ip:iproute2 iptables:iptables conntrack:conntrack containerd:containerd runc:runc git:git; do
  command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
has_plugins || packages+=(containernetworking-plugins)
((${#packages[@]})) || exit 0

command -v apt-get >/dev/null ||
  die "this machine lacks what these packages of Debian have; install them: ${packages[*]}"
say "installing ${packages[*]}"
# A service that a package brings would be started at once otherwise, where there is somebody to start it.
policy=/usr/sbin/policy-rc.d
made=0
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  made=1
fi
clean_up() { ((!made)) || rm -f "$policy"; }
trap clean_up EXIT
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${packages[@]}"; } >&2 ||
  die "they cannot be installed: install them, and try again"
