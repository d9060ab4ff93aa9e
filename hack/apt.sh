#!/usr/bin/env bash
# Installs packages of Debian, and starts nothing that they bring: hack/apt.sh PACKAGE... (as root)
set -euo pipefail

say() { printf 'apt: %s\n' "$*" >&2; }

# Machines that have just been started often update themselves, and hold the lock meanwhile.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" 9<&- >&2; }

update() {
  local pause
  for pause in 5 20 0; do
    # Otherwise a list that could not be got counts as success.
    apt update -o APT::Update::Error-Mode=any && return
    sleep "$pause"
  done
  return 1
}

say "installing $*"
# One at a time: the first to end would take the policy away from the others.
exec 9<"$0"
flock 9
# A service that a package brings would be started at once otherwise, where there is somebody to start it.
policy=/usr/sbin/policy-rc.d
made=0
clean_up() { ((!made)) || rm -f "$policy"; }
trap clean_up EXIT
if [[ ! -e $policy ]]; then
  made=1
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
update || say 'the lists of packages cannot be brought up to date: trying with those that are here'
apt install --yes --no-install-recommends "$@"
