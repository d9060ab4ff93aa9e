#!/usr/bin/env bash
# Sees to it that this machine has an SSH server for the tests. They start it themselves, on a loopback port of their own; nobody else does.
set -euo pipefail
for program in /usr/sbin/sshd /usr/local/sbin/sshd /usr/lib/ssh/sshd; do
  if [[ -x $program ]] && command -v ssh >/dev/null && command -v ssh-keygen >/dev/null; then exit 0; fi
done
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo 'sshd: there is none, so remotes over SSH are tested with a stand-in only; install openssh-server and openssh-client for the rest' >&2
  exit 0
fi
exec "$(dirname "$0")/apt.sh" openssh-server openssh-client
