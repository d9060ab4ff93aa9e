#!/usr/bin/env bash
# Makes the files of a release and installs them on a Debian base system: hack/dist-test.sh [PROGRAMS [PART]]
#
# PROGRAMS: folder of prebuilt programs (default: build them). PART: run only the cases whose names contain it. --check: exit
# with 0 if this machine can run the test. Needs Linux, root and apt-get. The system has Git, and neither a toolchain nor a
# network; it runs in namespaces of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

. hack/cases.sh

readonly SIGNER=release@example.org

say() { printf 'dist-test: %s\n' "$*" >&2; }

scratch=$(mktemp -d)
clean_up() {
  umount --recursive "$scratch"/*/root 2>/dev/null || :
  rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- Cases -------------------------------------------------------------------

the_same_programs_make_the_same_files() {
  (
    umask 077
    export TZ=Asia/Kolkata LC_ALL=C
    # Another file system, if programs can be run there.
    if cp /bin/true /dev/shm/dist-test-$$ && /dev/shm/dist-test-$$; then export TMPDIR=/dev/shm; fi 2>/dev/null
    rm -f /dev/shm/dist-test-$$
    hack/dist.sh --programs "$programs" --output "$scratch/again" >/dev/null
  )
  (cd "$dist" && sha256sum -- *.tar.gz *.deb *.json) >"$scratch/first"
  (cd "$scratch/again" && sha256sum -- *.tar.gz *.deb *.json) >"$scratch/second"
  diff "$scratch/first" "$scratch/second"
}

every_command_has_a_man_page() {
  local program command
  mkdir -p "$scratch/files"
  tar -xzf "$dist"/trishanku-linux-*.tar.gz -C "$scratch/files"
  for program in gitcd trishanku; do
    "$scratch/files/$program" --help |
      awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on && $1 != "help" && /^  [a-z]/ { print $1 }' >"$scratch/commands"
    (($(wc -l <"$scratch/commands") > 10))
    while read -r command; do
      [[ -s $scratch/files/man/$program-$command.1 ]] || { echo "no page for $program $command" && return 1; }
    done <"$scratch/commands"
  done
}

the_licences_of_libraries_are_there() {
  mkdir -p "$scratch/licences"
  tar -xzf "$dist"/trishanku-linux-*.tar.gz -C "$scratch/licences" NOTICES.txt trishanku.spdx.json
  cd "$scratch/licences"
  # libgit2 and its exception; crates with and without a text.
  grep -q 'GNU GENERAL PUBLIC LICENSE' NOTICES.txt
  grep -q 'unlimited permission to link the compiled' NOTICES.txt
  grep -q '^tokio [0-9.]*: MIT$' NOTICES.txt
  grep -q 'libgit2/COPYING' NOTICES.txt
  grep -q '"name": "tokio"' trishanku.spdx.json
  if grep -q 'pkg:deb' trishanku.spdx.json; then echo 'the SBOM has a package of this machine' && return 1; fi
}

# Runs install.sh, which must fail with a text and install nothing.
is_refused() { # TEXT OPTION...
  local text=$1 output
  shift
  if output=$(sh "$dist/install.sh" --prefix "$scratch/refused" "$@" 2>&1); then
    echo "not refused: $*"
    return 1
  fi
  [[ $output == *"$text"* ]] || { echo "refused with: $output" && return 1; }
  [[ -z $(find "$scratch/refused" -type f 2>/dev/null) ]] || { echo "something was installed: $*" && return 1; }
}

what_was_changed_or_not_signed_is_refused() {
  local copy=$scratch/copy archive other=$scratch/other
  archive=$(basename "$dist"/trishanku-linux-*.tar.gz)
  sh "$dist/install.sh" --from "$dist" --signers "$scratch/signers" --prefix "$scratch/signed" 2>"$scratch/said"
  grep "signed by $SIGNER" "$scratch/said"
  cp -R "$dist" "$copy"
  printf x >>"$copy/$archive"
  is_refused "the SHA-256 of $archive is not the one in SHA256SUMS" --from "$copy"
  # An attacker changes the sums, too.
  (cd "$copy" && sha256sum -- "$archive" >SHA256SUMS)
  is_refused 'the signature of SHA256SUMS is wrong' --from "$copy" --signers "$scratch/signers"
  rm "$copy/SHA256SUMS.sig"
  ssh-keygen -q -t ed25519 -N '' -C '' -f "$other"
  ssh-keygen -q -Y sign -f "$other" -n trishanku-release "$copy/SHA256SUMS"
  is_refused 'was not signed by a key of' --from "$copy" --signers "$scratch/signers"
  rm "$copy/SHA256SUMS.sig"
  # A signature for another use.
  ssh-keygen -q -Y sign -f "$scratch/key" -n git "$copy/SHA256SUMS"
  is_refused 'the signature of SHA256SUMS is wrong' --from "$copy" --signers "$scratch/signers"
  rm "$copy/SHA256SUMS.sig"
  is_refused 'does not exist' --from "$copy" --signers "$scratch/signers"
  is_refused 'does not exist' --from "$scratch/nowhere"
  is_refused 'cannot read the signers file' --from "$dist" --signers "$scratch/missing"
  is_refused "unknown argument '--frm'" --frm "$dist"
  is_refused '--signers needs a value' --from "$dist" --signers ''
  is_refused 'not v9.9.9' --from "$dist" --version v9.9.9
}

# Runs commands on the machine without a toolchain.
on() { # MACHINE COMMANDS
  unshare --mount --pid --net --ipc --uts --fork --kill-child bash -c '
    set -euo pipefail
    root=$1/root
    mkdir -p "$root/dist" "$root/assets"
    mount --bind "$1/root" "$root"
    mount --bind -o ro "$2" "$root/dist"
    mount --bind -o ro "$3" "$root/assets"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || :
    ip link set lo up
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euo pipefail -c "$4"
  ' - "$1" "$dist" "$assets" "$2"
}

machine() { # NAME
  mkdir -p "$scratch/$1/root"
  tar -xf "$scratch/base.tar" -C "$scratch/$1/root"
  # An installer of Debian writes it.
  printf '127.0.0.1 localhost\n' >"$scratch/$1/root/etc/hosts"
  printf '%s\n' "$scratch/$1"
}

# The commands of "A headless cluster" in docs/install.md, and checks of their results, as the current user.
tour='
  set -eu
  started=$(date +%s%N)
  trishanku up --assets /assets --detach | tee up.log
  echo "time to the first cluster: $((($(date +%s%N) - started) / 1000000)) ms"
  grep -q "^Ready in" up.log
  trishanku demo --keep >demo.log
  grep -q "All 3 pods had a node at the desk" demo.log
  trishanku kubectl get pods
  trishanku log -p deploy/demo | grep -q "replicas"
  trishanku status
  trishanku down
  trishanku delete --yes
'

the_archive_installs_and_a_cluster_comes_up_without_a_toolchain() {
  local at
  at=$(machine archive)
  on "$at" "
    if command -v cargo || command -v go || command -v cc; then exit 1; fi
    useradd --create-home you
    find /usr/local -type f -o -type l >/tmp/before
    sh /dist/install.sh --from /dist
    su - you -c 'export KUBEBUILDER_ASSETS=/assets; $tour'
    # A repository is made with Git.
    su - you -c 'mkdir none && ln -s /usr/bin/env none/ && ! PATH=none /usr/local/bin/trishanku up --assets /assets 2>error && grep \"install Git\" error'
    # A second run is an upgrade; nothing is left after --uninstall.
    echo bin/of-an-older-release >>/usr/local/share/trishanku/installed
    touch /usr/local/bin/of-an-older-release
    (umask 077 && sh /dist/install.sh --from /dist)
    [ ! -e /usr/local/bin/of-an-older-release ]
    su you -c 'gitcd version && man=/usr/local/share/man/man1/gitcd-serve.1 && [ -r \$man ]'
    sh /dist/install.sh --uninstall
    diff /tmp/before <(find /usr/local -type f -o -type l)
    su you -c 'cd && sh /dist/install.sh --from /dist && .local/bin/trishanku --version'
    # A folder in the way; paths with spaces; links of others.
    mkdir -p '/tmp/a b/bin/gitcd'
    if sh /dist/install.sh --from /dist --prefix '/tmp/a b' 2>error; then exit 1; fi
    grep 'is a folder; remove it first' error
    [ -z \"\$(find '/tmp/a b' -type f)\" ]
    rmdir '/tmp/a b/bin/gitcd'
    ln -s /etc/passwd '/tmp/a b/bin/gitcd.new'
    sh /dist/install.sh --from /dist --prefix '/tmp/a b' --version $version
    '/tmp/a b/bin/gitcd' version
    grep '^root:' /etc/passwd
  "
}

the_packages_install_and_their_service_keeps_its_data() {
  local at
  at=$(machine packages)
  on "$at" "
    dpkg -i /dist/gitcd_*.deb /dist/trishanku_*.deb
    useradd --create-home you
    su - you -c 'export KUBEBUILDER_ASSETS=/assets; $tour'
    export GITCD_CONFIG=/etc/gitcd/gitcd.yaml
    gitcd init
    gitcd serve --config=/etc/gitcd/gitcd.yaml 2>/tmp/log &
    timeout 60 sh -c 'until gitcd health 2>/dev/null; do sleep 0.2; done' || { cat /tmp/log; exit 1; }
    kill \$!
    wait \$!
    [ -f /usr/lib/systemd/system/gitcd.service ]
    [ -f /usr/share/man/man1/gitcd-serve.1.gz ]
    grep -q 'ExecStart=/usr/bin/gitcd serve' /usr/lib/systemd/system/gitcd.service
    dpkg --purge trishanku gitcd
    [ ! -e /usr/bin/gitcd ]
    [ ! -e /etc/gitcd/gitcd.yaml ]
    [ -d /var/lib/gitcd/store.git ]
  "
}

# With a record of the calls in place of systemd, which runs in no namespace.
an_upgrade_keeps_the_configuration_and_restarts_the_service_once() {
  local at old=$scratch/old
  at=$(machine upgrade)
  dpkg-deb --raw-extract "$dist"/gitcd_*.deb "$old"
  sed -i 's/^Version: .*/Version: 0.0.9/' "$old/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone --build "$old" "$at/root/old.deb" >/dev/null
  on "$at" "
    mkdir -p /run/systemd/system
    for name in systemctl deb-systemd-invoke; do
      printf '#!/bin/sh\necho \$(basename \$0) \"\$@\" >>/calls\n' >/usr/local/bin/\$name
      chmod 755 /usr/local/bin/\$name
    done
    dpkg -i /old.deb
    diff /calls <(echo systemctl --system daemon-reload)
    echo '# edited' >>/etc/gitcd/gitcd.yaml
    rm /calls
    dpkg -i /dist/gitcd_*.deb </dev/null
    grep '# edited' /etc/gitcd/gitcd.yaml
    [ \"\$(grep -c 'deb-systemd-invoke restart gitcd.service' /calls)\" = 1 ]
    if grep stop /calls; then exit 1; fi
    dpkg --remove gitcd
    grep 'deb-systemd-invoke stop gitcd.service' /calls
    [ -f /etc/gitcd/gitcd.yaml ]
  "
}

# ---- Run ---------------------------------------------------------------------

if [[ ${1:-} == --check ]]; then
  [[ $(uname -s) == Linux && $(id -u) == 0 ]] || { echo 'It needs Linux and root.' && exit 1; }
  command -v apt-get >/dev/null || { echo 'It needs apt-get, for a Debian base system.' && exit 1; }
  unshare --mount --pid --net --ipc --uts --fork true || { echo 'It needs namespaces.' && exit 1; }
  exit
fi

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
assets=$(hack/assets.sh)
command -v mmdebstrap >/dev/null || hack/apt.sh mmdebstrap
command -v ssh-keygen >/dev/null || hack/apt.sh openssh-client
ssh-keygen -q -t ed25519 -N '' -C '' -f "$scratch/key"
# The same key signs commits under another name, as in files that Git uses.
printf '%s namespaces="%s" %s\n' me@example.org git "$(cat "$scratch/key.pub")" \
  "$SIGNER" trishanku-release "$(cat "$scratch/key.pub")" >"$scratch/signers"
programs=${1:-} part=${2:-}
export DIST_COMPRESSION_LEVEL=1
say 'making the files of a release'
if [[ -n $programs ]]; then
  # Another build may replace them meanwhile.
  mkdir "$scratch/programs"
  cp -- "$programs"/{gitcd,trishanku} "$scratch/programs/"
  programs=$scratch/programs
fi
dist=$(hack/dist.sh ${programs:+--programs "$programs"} --output "$scratch/dist")
# As the workflow of a release does; --sign refuses changes that are not committed.
ssh-keygen -q -Y sign -f "$scratch/key" -n trishanku-release "$dist/SHA256SUMS"
programs=${programs:-${CARGO_TARGET_DIR:-target}/dist-build/release}
# The base has no package manager but dpkg. `useradd` and `su` are for an ordinary user.
say 'making a Debian base system with Git'
mmdebstrap --quiet --variant=essential --include=git,passwd "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$scratch/base.tar"

try the_same_programs_make_the_same_files
try every_command_has_a_man_page
try the_licences_of_libraries_are_there
try what_was_changed_or_not_signed_is_refused
try the_archive_installs_and_a_cluster_comes_up_without_a_toolchain
try the_packages_install_and_their_service_keeps_its_data
try an_upgrade_keeps_the_configuration_and_restarts_the_service_once
totals
