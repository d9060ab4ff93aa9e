#!/usr/bin/env bash
# Installs the programs that a node of the cluster tests needs (e2e/src/nodes): hack/node.sh [--check]
#
# Installs missing packages of the distribution, without starting or enabling their services.
# With --check, installs nothing, and fails with the reason if a node cannot run on this machine.
set -euo pipefail

say() { printf 'node: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# Other kinds of nodes contain all programs.
[[ ${TRISHANKU_E2E_CLUSTER:-host} == host ]] || exit 0

[[ $(uname -s) == Linux ]] || die "a node runs only on Linux; with a container engine, set TRISHANKU_E2E_CLUSTER=kind"
[[ $(id -u) == 0 ]] || die "a node needs root for namespaces, mounts and control groups: run this as root"

has_plugins() {
  local folder
  for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
    [[ -x $folder/ptp && -x $folder/host-local && -x $folder/portmap ]] && return 0
  done
  return 1
}

check_groups() {
  local root=/sys/fs/cgroup controller folder hierarchies=()
  if [[ -e $root/cgroup.controllers ]]; then
    hierarchies=("$root")
    for controller in cpu cpuset memory pids; do
      # The node enables controllers in the same way.
      grep -qw "$controller" "$root/cgroup.subtree_control" || { echo "+$controller" >"$root/cgroup.subtree_control"; } 2>/dev/null ||
        die "cannot enable the cgroup controller $controller, which a node needs"
    done
  else
    for controller in cpu cpuset memory pids; do
      [[ -d $root/$controller ]] || die "the cgroup controller $controller, which a node needs, is missing in $root"
    done
    for folder in "$root"/*; do
      if [[ -e $folder/cgroup.procs && ! -L $folder ]]; then hierarchies+=("$folder"); fi
    done
  fi
  for folder in "${hierarchies[@]}"; do
    { mkdir "$folder/trishanku-check-$$" && rmdir "$folder/trishanku-check-$$"; } 2>/dev/null ||
      die "cannot create a control group in $folder, which a node needs"
  done
}

# Mounts an overlay as a container runtime does, in namespaces like those of a node.
check_namespaces() {
  local said
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  [[ $(stat -f -c %T "$scratch") != overlayfs ]] ||
    die "$(dirname "$scratch") is on overlayfs, on which containers cannot run: set TMPDIR to a folder on a volume"
  mkdir "$scratch"/{lower,upper,work,merged}
  said=$(unshare --mount --net --pid --ipc --uts --fork --kill-child --mount-proc --propagation private -- \
    sh -c 'cd "$0" && mount -t tmpfs tmpfs /run && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged' \
    "$scratch" 2>&1) || die "a node needs mount namespaces and overlayfs, which do not work here: ${said:-no reason given}"
}

packages=()
for pair in unshare:util-linux nsenter:util-linux ip:iproute2 iptables:iptables conntrack:conntrack containerd:containerd runc:runc git:git ssh:openssh-client; do
  command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
has_plugins || packages+=(containernetworking-plugins)
# Images need CA certificates.
[[ -f /etc/ssl/certs/ca-certificates.crt || -f /etc/pki/tls/certs/ca-bundle.crt ]] || packages+=(ca-certificates)
((!${#packages[@]})) || command -v apt-get >/dev/null ||
  die "programs are missing; install what these Debian packages contain: ${packages[*]}"

case ${1:-} in
  --check)
    check_groups
    check_namespaces
    ;;
  '')
    ((!${#packages[@]})) || "$(dirname "$0")/apt.sh" "${packages[@]}" || die "cannot install ${packages[*]}: install them, and try again"
    ;;
  *) die "unknown argument '$1'; known is: --check" ;;
esac
