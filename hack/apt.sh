#!/usr/bin/env bash
# Installs Debian packages without starting their services: hack/apt.sh PACKAGE... (as root)
set -euo pipefail

say() { printf 'apt: %s\n' "$*" >&2; }

# A machine that has just booted often updates itself, and holds the lock meanwhile.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" 9<&- >&2; }

update() {
  local pause
  for pause in 5 20 0; do
    # By default, a list that cannot be downloaded is not an error.
    apt update -o APT::Update::Error-Mode=any && return
    sleep "$pause"
  done
  return 1
}

say "installing $*"
# One run at a time: the first one to exit would remove the policy that the others need.
exec 9<"$0"
flock 9
# Without this policy, installing a package starts its services if the machine has an init system.
policy=/usr/sbin/policy-rc.d
made=0
clean_up() { ((!made)) || rm -f "$policy"; }
trap clean_up EXIT
if [[ ! -e $policy ]]; then
  made=1
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
update || say 'cannot update the package lists: continuing with the present ones'
apt install --yes --no-install-recommends "$@"
