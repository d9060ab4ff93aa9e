#!/usr/bin/env bash
# Installs an SSH server for the tests, without starting it: each test starts its own on a loopback port.
set -euo pipefail
for program in /usr/sbin/sshd /usr/local/sbin/sshd /usr/lib/ssh/sshd; do
  if [[ -x $program ]] && command -v ssh >/dev/null && command -v ssh-keygen >/dev/null; then exit 0; fi
done
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo 'sshd: not installed, so remotes over SSH are tested only with a fake ssh; install openssh-server and openssh-client to run all tests' >&2
  exit 0
fi
exec "$(dirname "$0")/apt.sh" openssh-server openssh-client
