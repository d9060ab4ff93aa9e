#!/usr/bin/env bash
# Sees to it that this machine has what a node of the cluster tests is made of (e2e/src/nodes): hack/node.sh [--check]
#
# Installs what is missing from the distribution's packages, if that is allowed. Nothing that it installs is started or enabled here.
# With --check it installs nothing, and fails with the reason if a node cannot run here.
set -euo pipefail

say() { printf 'node: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# Nodes of other kinds bring all of it themselves.
[[ ${TRISHANKU_E2E_CLUSTER:-host} == host ]] || exit 0

[[ $(uname -s) == Linux ]] || die "a node runs on Linux alone; with a container engine: TRISHANKU_E2E_CLUSTER=kind"
[[ $(id -u) == 0 ]] || die "a node needs root, for namespaces, mounts and control groups: run this as root"

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
      # A node does the same.
      grep -qw "$controller" "$root/cgroup.subtree_control" || { echo "+$controller" >"$root/cgroup.subtree_control"; } 2>/dev/null ||
        die "the controller $controller of control groups cannot be used: a node needs it"
    done
  else
    for controller in cpu cpuset memory pids; do
      [[ -d $root/$controller ]] || die "there is no controller $controller of control groups in $root: a node needs it"
    done
    for folder in "$root"/*; do
      if [[ -e $folder/cgroup.procs && ! -L $folder ]]; then hierarchies+=("$folder"); fi
    done
  fi
  for folder in "${hierarchies[@]}"; do
    { mkdir "$folder/trishanku-check-$$" && rmdir "$folder/trishanku-check-$$"; } 2>/dev/null ||
      die "no control group can be made in $folder: a node needs one"
  done
}

# Mounts one file system on another one as containers do, in namespaces like those of a node.
check_namespaces() {
  local said
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  [[ $(stat -f -c %T "$scratch") != overlayfs ]] ||
    die "$(dirname "$scratch") is on overlayfs, on which containers cannot be: set TMPDIR to a folder on a volume"
  mkdir "$scratch"/{lower,upper,work,merged}
  said=$(unshare --mount --net --pid --ipc --uts --fork --kill-child --mount-proc --propagation private -- \
    sh -c 'cd "$0" && mount -t tmpfs tmpfs /run && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged' \
    "$scratch" 2>&1) || die "a node needs namespaces with mounts of their own, and overlayfs: ${said:-they cannot be made}"
}

packages=()
for pair in unshare:util-linux nsenter:util-linux ip:iproute2 iptables:iptables conntrack:conntrack containerd:containerd runc:runc git:git ssh:openssh-client; do
  command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
has_plugins || packages+=(containernetworking-plugins)
# They go into images.
[[ -f /etc/ssl/certs/ca-certificates.crt || -f /etc/pki/tls/certs/ca-bundle.crt ]] || packages+=(ca-certificates)
((!${#packages[@]})) || command -v apt-get >/dev/null ||
  die "this machine lacks what these packages of Debian have; install them: ${packages[*]}"

case ${1:-} in
  --check)
    check_groups
    check_namespaces
    ;;
  '')
    ((!${#packages[@]})) || "$(dirname "$0")/apt.sh" "${packages[@]}" || die "they cannot be installed: install them, and try again"
    ;;
  *) die "unknown argument '$1'; known is: --check" ;;
esac
