#!/usr/bin/env bash
# Makes the files of a release: hack/dist.sh [OPTION...]. See usage() below.

set -euo pipefail
readonly CALLED_FROM=$PWD
cd "$(dirname "$0")/.."

. hack/sbom.sh

readonly SOURCE=https://github.com/trishanku-org/trishanku
readonly PROGRAMS=(gitcd trishanku)
readonly MAINTAINER='Trishanku <trishanku@users.noreply.github.com>'
# The namespace of signatures, so that a release signature is invalid for other uses.
readonly NAMESPACE=trishanku-release
# The test compresses less, since that takes most of its time.
readonly LEVEL=${DIST_COMPRESSION_LEVEL:-6}

usage() {
  cat <<EOF
Usage: hack/dist.sh [OPTION...]

Writes the files of a release for this machine's architecture, and prints only their folder on
standard output:

  trishanku-linux-ARCH.tar.gz      programs, man pages, completions, examples, for install.sh
  gitcd_VERSION_ARCH.deb           gitcd, with a systemd unit
  trishanku_VERSION_ARCH.deb       trishanku, also as a plugin of kubectl
  trishanku-linux-ARCH.spdx.json   SBOM
  install.sh
  SHA256SUMS                       of all these files
  SHA256SUMS.sig                   with --sign

  --programs DIR  use the programs in DIR instead of building them with cargo
  --sign KEY      sign SHA256SUMS with an SSH key (\`ssh-keygen -Y sign\`)
  --output DIR    folder of the files (default: target/dist)

The same programs give the same files on the same distribution: all times are the commit's. Paths
of the checkout and of Cargo's folder are remapped in the programs that this script builds.

The programs are linked against this machine's C library, and run with it and newer ones. Build on
the oldest distribution that has to run them.
EOF
}

say() { printf 'dist: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# ---- Programs ----------------------------------------------------------------

build() {
  local cargo_home=${CARGO_HOME:-$HOME/.cargo} separator=$'\x1f' program other
  [[ $cargo_home != *' '* ]] || die "the path of Cargo's folder has a space, which CFLAGS cannot have: $cargo_home"
  say 'building the programs'
  programs=$target/dist-build/release
  # Remaps source paths, which panics and backtraces contain. Links all libraries but the C library statically, even if this
  # machine has shared ones. A separate target folder, because other flags would rebuild everything.
  CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$cargo_home=/cargo$separator--remap-path-prefix=$target=target$separator--remap-path-prefix=$PWD=." \
    CFLAGS="${CFLAGS:-} -ffile-prefix-map=$cargo_home=/cargo" \
    LIBZ_SYS_STATIC=1 LIBGIT2_NO_PKG_CONFIG=1 CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/dist-build \
    cargo build --release --locked --package gitcd --package trishanku --bins >&2
  for program in "${PROGRAMS[@]}"; do
    other=$(objdump -p "$programs/$program" | awk '$1 == "NEEDED" && $2 !~ /^(lib(c|m|gcc_s)|ld-linux.*)\.so/ { print $2 }')
    [[ -z $other ]] || die "$program needs $other, which it should contain"
  done
}

# Copies the programs without debug information; names of functions stay, for backtraces.
strip_programs() {
  local name
  mkdir -p "$scratch/bin"
  for name in "${PROGRAMS[@]}"; do
    [[ -f $programs/$name ]] || die "there is no program $programs/$name"
    install -m 755 "$programs/$name" "$scratch/bin/$name"
    strip --strip-debug "$scratch/bin/$name"
    if ((is_built)) && grep -qaF -e "$PWD/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$scratch/bin/$name"; then
      die "$name has paths of this machine"
    fi
  done
}

# ---- Texts -------------------------------------------------------------------

make_texts() {
  local name bin=$scratch/bin
  mkdir -p "$scratch/man" "$scratch/completions"
  for name in "${PROGRAMS[@]}"; do
    "$bin/$name" man "$scratch/man"
    "$bin/$name" completion bash >"$scratch/completions/$name.bash"
    "$bin/$name" completion zsh >"$scratch/completions/_$name"
    "$bin/$name" completion fish >"$scratch/completions/$name.fish"
  done
  notices >"$scratch/NOTICES.txt"
}

# Prints the licences of all libraries in the programs, each text once.
notices() {
  local name version licence folder file key texts=$scratch/licences
  mkdir -p "$texts"
  printf 'The programs contain these libraries. Their licences follow.\n\n'
  components trishanku | awk -F'|' '$1 == "cargo" && $6 != "" { print $2 "|" $3 "|" $4 }' | LC_ALL=C sort -u >"$scratch/crates"
  while IFS='|' read -r name version licence; do
    folder=$(compgen -G "${CARGO_HOME:-$HOME/.cargo}/registry/src/*/$name-$version" | head -n 1) || :
    [[ -d $folder ]] || die "the source of $name $version is not in Cargo's folder: run \`cargo fetch --locked\`"
    # C libraries within the crates, such as libgit2, have their own.
    find "$folder" -type f \( -iname 'LICEN[CS]E*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) \
      -not -iname '*.rs' -not -iname '*.py' | LC_ALL=C sort >"$scratch/found"
    printf '%s %s: %s%s\n' "$name" "$version" "$licence" "$([[ -s $scratch/found ]] || echo ' (no licence text in its package)')"
    while IFS= read -r file; do
      key=$(sha256sum <"$file" | cut -d' ' -f1)
      [[ -f $texts/$key ]] || cp "$file" "$texts/$key"
      printf '%s %s (%s)\n' "$name" "$version" "${file#"$folder/"}" >>"$texts/$key.of"
    done <"$scratch/found"
  done <"$scratch/crates"
  printf 'the standard library of Rust: MIT OR Apache-2.0\n'
  for file in "$texts"/*.of; do
    printf '\n%s\n' '--------------------------------------------------------------------------------'
    LC_ALL=C sort -u "$file"
    printf '\n'
    cat "${file%.of}"
  done
}

# ---- Archive -----------------------------------------------------------------

# Sets what archives record of files: the commit's time and readable modes.
settle() { # FOLDER
  chmod -R u=rwX,go=rX "$1"
  find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

make_archive() {
  local root=$scratch/archive
  mkdir -p "$root"
  cp -R "$scratch/bin/." "$root/"
  cp -R "$scratch/man" "$scratch/completions" "$scratch/NOTICES.txt" LICENSE deploy/control-plane "$root/"
  cp "$new/$archive.spdx.json" "$root/trishanku.spdx.json"
  settle "$root"
  (cd "$root" && find . -mindepth 1 -printf '%P\0' | LC_ALL=C sort -z |
    tar --create --no-recursion --null --files-from=- --owner=0 --group=0 --numeric-owner --format=gnu) |
    gzip --no-name "-$LEVEL" >"$new/$archive.tar.gz"
}

# ---- Debian packages ---------------------------------------------------------

# Prints the packages of the shared libraries that a program needs.
depends() { # FILE
  local library package oldest
  oldest=$(objdump -T "$1" | sed -n 's/.*GLIBC_\([0-9][0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | while read -r library; do
    package=$(dpkg-query --search "$library" "$(readlink -f "$library")" "/usr$library" 2>/dev/null |
      sed -n '1s/^\([^ ,:]*\).*/\1/p')
    [[ -n $package ]] || die "no package of this machine has $library"
    if [[ $package == libc6 ]]; then echo "libc6 (>= $oldest)"; else echo "$package"; fi
  done | LC_ALL=C sort -u | paste -sd, | sed 's/,/, /g'
}

# Puts what every package has: a program, its man pages, completions, licences.
put_common() { # NAME ROOT
  local name=$1 root=$2
  install -D -m 755 -t "$root/usr/bin" "$scratch/bin/$name"
  install -D -m 644 -t "$root/usr/share/man/man1" "$scratch/man/$name".1 "$scratch/man/$name"-*.1
  find "$root/usr/share/man" -type f -exec gzip --no-name {} +
  install -D -m 644 "$scratch/completions/$name.bash" "$root/usr/share/bash-completion/completions/$name"
  install -D -m 644 -t "$root/usr/share/zsh/vendor-completions" "$scratch/completions/_$name"
  install -D -m 644 -t "$root/usr/share/fish/vendor_completions.d" "$scratch/completions/$name.fish"
  install -D -m 644 LICENSE "$root/usr/share/doc/$name/copyright"
  install -D -m 644 -t "$root/usr/share/doc/$name" "$scratch/NOTICES.txt"
  gzip --no-name "$root/usr/share/doc/$name/NOTICES.txt"
}

make_package() { # NAME DESCRIPTION DEPENDS RECOMMENDS
  local name=$1 root=$scratch/deb/$1 libraries script size
  put_common "$name" "$root"
  mkdir -p "$root/DEBIAN"
  if [[ $name == gitcd ]]; then
    mkdir -p "$root/usr/lib/systemd/system"
    sed 's|/usr/local/bin/|/usr/bin/|g' deploy/control-plane/gitcd.service >"$root/usr/lib/systemd/system/gitcd.service"
    install -D -m 644 -t "$root/etc/gitcd" deploy/packages/gitcd.yaml
    install -D -m 644 -t "$root/usr/share/gitcd/control-plane" deploy/control-plane/*.yaml
    echo /etc/gitcd/gitcd.yaml >"$root/DEBIAN/conffiles"
    for script in postinst prerm postrm; do install -m 755 "deploy/packages/gitcd.$script" "$root/DEBIAN/$script"; done
  else
    ln -s trishanku "$root/usr/bin/kubectl-trishanku"
  fi
  libraries=$(depends "$root/usr/bin/$name")
  # Without folders, whose sizes differ between file systems.
  size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n + 0 }')
  cat >"$root/DEBIAN/control" <<EOF
Package: $name
Version: $deb_version
Architecture: $architecture
Maintainer: $MAINTAINER
Section: admin
Priority: optional
Installed-Size: $size
Depends: $libraries${3:+, $3}
Recommends: $4
Homepage: $SOURCE
Description: $2
EOF
  settle "$root"
  dpkg-deb --root-owner-group -Zgzip "-z$LEVEL" --build "$root" "$new/${name}_${deb_version//\~/.}_$architecture.deb" >/dev/null
}

make_packages() {
  if ! command -v dpkg-deb >/dev/null; then
    say 'no Debian packages: this machine has no dpkg-deb'
    return
  fi
  make_package gitcd 'etcd server whose store is a Git branch
 Serves the etcd v3 API. Each write is a commit of a Git repository.' '' 'git, openssh-client'
  make_package trishanku 'headless Kubernetes, and the history of a cluster
 Runs Kubernetes controllers on Git branches of their own. Shows who changed
 what, and undoes changes of a cluster whose store is gitcd.' "gitcd (= $deb_version), git" 'openssh-client'
}

# ---- Run ---------------------------------------------------------------------

main() {
  local flag
  programs='' sign='' target=${CARGO_TARGET_DIR:-target} output=''
  while (($#)); do
    case $1 in
      -h | --help)
        usage
        return
        ;;
      --programs | --sign | --output)
        (($# > 1)) || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      --programs=* | --sign=* | --output=*)
        flag=${1%%=*}
        printf -v "${flag#--}" %s "${1#*=}"
        ;;
      *) die "unknown argument '$1'; see hack/dist.sh --help" ;;
    esac
    shift
  done
  [[ $(uname -s) == Linux ]] || die 'releases are for Linux: run this on Linux'
  case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) die "unknown architecture $(uname -m); known are: x86_64 aarch64" ;;
  esac
  for flag in programs sign output; do
    # Relative to the caller's folder.
    [[ -z ${!flag} || ${!flag} == /* ]] || printf -v "$flag" %s "$CALLED_FROM/${!flag}"
  done
  [[ -z $sign || -f $sign ]] || die "there is no key $sign"
  revision=$(git rev-parse HEAD) || die 'files of a release are those of a commit: run this in a checkout with Git'
  if [[ -n $sign && -n $(git status --porcelain --untracked-files=no) ]]; then die 'there are changes that are not committed: commit them, or leave --sign out'; fi
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
  # Before the version that it precedes.
  deb_version=${version/-/\~}
  export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
  created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
  mkdir -p "$target" "${output:=$target/dist}"
  target=$(cd "$target" && pwd)
  output=$(cd "$output" && pwd)
  # Files of an earlier release are replaced; any others are not touched.
  own=$(printf '%s\n' SHA256SUMS SHA256SUMS.sig && sed 's/^[^ ]*  //' "$output/SHA256SUMS" 2>/dev/null) || :
  foreign=$(ls -A "$output" | grep -vxF "$own" | head -n 3) || :
  [[ -z $foreign ]] || die "$output contains files that are not of a release: ${foreign//$'\n'/, }; use --output with an empty folder"
  is_built=0
  if [[ -z $programs ]]; then
    build
    is_built=1
  fi
  scratch=$(mktemp -d) new=$(mktemp -d "$output.XXXXXX")
  trap 'rm -rf "$scratch" "$new"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  archive=trishanku-linux-$architecture
  # Libraries of the distribution are not in these files.
  sources=()
  strip_programs
  make_texts
  sbom trishanku "$archive-$version" APPLICATION >"$new/$archive.spdx.json"
  make_archive
  make_packages
  install -m 755 install.sh "$new/install.sh"
  (cd "$new" && LC_ALL=C sha256sum -- * >"$scratch/sums" && mv "$scratch/sums" SHA256SUMS)
  if [[ -n $sign ]]; then ssh-keygen -q -Y sign -f "$sign" -n "$NAMESPACE" "$new/SHA256SUMS"; fi
  # Only whole releases get there.
  rm -f "$output"/*
  mv "$new"/* "$output/"
  (cd "$output" && du -m -- * | awk '{ printf "dist: %4d MiB  %s\n", $1, $2 }') >&2
  printf '%s\n' "$output"
}

main "$@"
