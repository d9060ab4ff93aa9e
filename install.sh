#!/bin/sh
# Installs gitcd and trishanku from the archive of a release: install.sh [OPTION...]. See usage() below.
set -eu
unset CDPATH
# All users may run the programs.
umask 022

RELEASES=https://github.com/trishanku-org/trishanku/releases
# As hack/dist.sh signs.
NAMESPACE=trishanku-release

usage() {
  cat <<END
Usage: install.sh [OPTION...]

Installs gitcd and trishanku with their man pages and completions. Verifies the archive against
SHA256SUMS first. With --signers, also verifies the signature of SHA256SUMS.

  --version TAG    release to install (default: the newest); with --from, refuses any other
  --from SOURCE    folder or URL with the files of a release (default: GitHub)
  --prefix DIR     where to install (default: /usr/local for root, ~/.local for others)
  --signers FILE   keys that may sign releases, in the format of \`ssh-keygen\` (ALLOWED SIGNERS)
  --uninstall      remove what install.sh installed to the prefix; data stays

Needs tar, gzip and sha256sum; for URLs curl; for signatures ssh-keygen.
END
}

say() { printf 'install: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

get() { # NAME
  case $from in
    *://*)
      has curl || die 'curl is needed to download; install it, or download the files and give their folder with --from'
      # No redirection leaves TLS.
      case $from in http://*) protocols='=http,https' ;; *) protocols='=https' ;; esac
      curl --fail --silent --show-error --location --proto "$protocols" --output "$scratch/$1" "$from/$1" ||
        die "cannot download $from/$1"
      ;;
    *)
      [ -f "$from/$1" ] ||
        die "$from/$1 does not exist: --from needs the folder or URL of a release's files; nothing was installed"
      cp "$from/$1" "$scratch/$1"
      ;;
  esac
}

# Checks the signature of the sums, then the sum of the archive.
verify() {
  if [ -n "$signers" ]; then verify_signature; fi
  grep "  $archive\$" "$scratch/SHA256SUMS" >"$scratch/sum" || die "SHA256SUMS does not list $archive: nothing was installed"
  (cd "$scratch" && sha256sum -c sum >/dev/null 2>&1) ||
    die "the SHA-256 of $archive is not the one in SHA256SUMS: nothing was installed"
}

# The key may be listed under several names, for other uses, too; `ssh-keygen` finds only the first line.
verify_signature() {
  has ssh-keygen || die 'ssh-keygen is needed to check signatures; install openssh-client'
  get SHA256SUMS.sig
  ssh-keygen -Y find-principals -s "$scratch/SHA256SUMS.sig" -f "$signers" >/dev/null 2>"$scratch/error" ||
    die "SHA256SUMS was not signed by a key of $signers ($(cat "$scratch/error")): nothing was installed"
  awk '!/^[[:space:]]*(#|$)/ { n = split($1, names, ","); for (i = 1; i <= n; i++) print names[i] }' "$signers" |
    sort -u >"$scratch/principals"
  while IFS= read -r signer; do
    if ssh-keygen -q -Y verify -f "$signers" -I "$signer" -n "$NAMESPACE" -s "$scratch/SHA256SUMS.sig" \
      <"$scratch/SHA256SUMS" >/dev/null 2>"$scratch/error"; then
      say "signed by $signer"
      return
    fi
  done <"$scratch/principals"
  die "the signature of SHA256SUMS is wrong ($(cat "$scratch/error")): nothing was installed"
}

# ---- Files: all are copied beside their places first, so that little can fail once the first one is in place.

# Copies a file to a temporary name beside its place. Others may be able to write there, so the name is not predictable.
stage() { # MODE FILE PATH
  mkdir -p "$prefix/${3%/*}"
  [ ! -d "$prefix/$3" ] || die "$prefix/$3 is a folder; remove it first"
  staged=$(mktemp "$prefix/$3.XXXXXX")
  printf '%s\t%s\n' "$staged" "$3" >>"$scratch/staged"
  cp "$2" "$staged"
  chmod "$1" "$staged"
}

stage_all() {
  for name in gitcd trishanku; do
    stage 755 "$name" "bin/$name"
    stage 644 "completions/$name.bash" "share/bash-completion/completions/$name"
    stage 644 "completions/_$name" "share/zsh/site-functions/_$name"
    stage 644 "completions/$name.fish" "share/fish/vendor_completions.d/$name.fish"
  done
  for page in man/*; do stage 644 "$page" "share/man/man1/${page#man/}"; done
  for file in control-plane/* LICENSE NOTICES.txt trishanku.spdx.json; do stage 644 "$file" "share/trishanku/$file"; done
  # kubectl finds its plugins by such names.
  [ ! -d "$prefix/bin/kubectl-trishanku" ] || die "$prefix/bin/kubectl-trishanku is a folder; remove it first"
}

# Records what is installed, so that --uninstall finds it.
record() { # FILE
  installed=$(mktemp "$list.XXXXXX")
  cp "$1" "$installed"
  chmod 644 "$installed"
  mv -f "$installed" "$list"
}

# Moves the staged files to their places, each atomically, and removes those that this release no longer contains.
put_in_place() {
  tab=$(printf '\t')
  { cut -f 2 "$scratch/staged" && echo bin/kubectl-trishanku; } >"$scratch/new"
  : >"$scratch/old"
  if [ -f "$list" ]; then cp "$list" "$scratch/old"; fi
  sort -u "$scratch/new" "$scratch/old" >"$scratch/both"
  record "$scratch/both"
  while IFS="$tab" read -r staged path; do mv -f "$staged" "$prefix/$path"; done <"$scratch/staged"
  # `ln` fails if another one makes this name meanwhile.
  link=$(mktemp -u "$prefix/bin/kubectl-trishanku.XXXXXX")
  ln -s trishanku "$link"
  mv -f "$link" "$prefix/bin/kubectl-trishanku"
  grep -Fvx -f "$scratch/new" "$scratch/old" >"$scratch/gone" || :
  while IFS= read -r path; do rm -f "$prefix/$path"; done <"$scratch/gone"
  record "$scratch/new"
}

uninstall() {
  [ -f "$list" ] || die "install.sh has installed nothing to $prefix"
  while IFS= read -r path; do rm -f "$prefix/$path"; done <"$list"
  rm -f "$list"
  rmdir "$prefix/share/trishanku/control-plane" "$prefix/share/trishanku" 2>/dev/null || :
  say "removed gitcd and trishanku from $prefix; repositories and clusters stay"
}

clean_up() {
  tab=$(printf '\t')
  if [ -f "$scratch/staged" ]; then
    while IFS="$tab" read -r staged _; do rm -f "$staged"; done <"$scratch/staged"
  fi
  rm -rf "$scratch"
}

main() {
  version='' from='' prefix='' signers='' is_uninstall=''
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help)
        usage
        exit
        ;;
      --uninstall) is_uninstall=1 ;;
      --version | --from | --prefix | --signers)
        [ -n "${2:-}" ] || die "$1 needs a value"
        case $1 in
          --version) version=$2 ;;
          --from) from=$2 ;;
          --prefix) prefix=$2 ;;
          --signers) signers=$2 ;;
        esac
        shift
        ;;
      *) die "unknown argument '$1'; see install.sh --help" ;;
    esac
    shift
  done
  if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
  fi
  list=$prefix/share/trishanku/installed
  if [ -n "$is_uninstall" ]; then
    uninstall
    exit
  fi
  [ "$(uname -s)" = Linux ] || die "cannot install on $(uname -s): releases are for Linux"
  case $(uname -m) in
    x86_64 | amd64) archive=trishanku-linux-amd64.tar.gz ;;
    aarch64 | arm64) archive=trishanku-linux-arm64.tar.gz ;;
    *) die "releases do not support $(uname -m); supported: x86_64, aarch64" ;;
  esac
  [ -z "$signers" ] || [ -f "$signers" ] || die "cannot read the signers file $signers: it does not exist"
  if [ -z "$from" ]; then
    if [ -n "$version" ]; then from=$RELEASES/download/$version; else from=$RELEASES/latest/download; fi
  fi

  for name in tar gzip sha256sum; do has "$name" || die "$name is needed; install it"; done
  scratch=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  get SHA256SUMS
  get "$archive"
  verify
  { mkdir -p "$prefix/share/trishanku" 2>/dev/null && [ -w "$prefix/share/trishanku" ]; } ||
    die "cannot write to $prefix: run install.sh as root, or choose another --prefix"
  mkdir "$scratch/files"
  # Relative to where it was called.
  prefix=$(cd "$prefix" && pwd)
  list=$prefix/share/trishanku/installed
  tar -xzf "$scratch/$archive" -C "$scratch/files"
  cd "$scratch/files"
  # A machine with an older C library keeps what it has.
  found=$(./gitcd version 2>"$scratch/error") ||
    die "cannot run gitcd on this machine: $(cat "$scratch/error"): nothing was installed (if $scratch is mounted noexec, set TMPDIR)"
  case $found in
    "gitcd ${version#v} "*) ;;
    *) [ -z "$version" ] || die "the archive has $found, not $version: nothing was installed" ;;
  esac
  stage_all
  put_in_place

  say "installed $found in $prefix/bin"
  case :$PATH: in *":$prefix/bin:"*) ;; *) say "add it to PATH: export PATH=\"$prefix/bin:\$PATH\"" ;; esac
  [ -n "$signers" ] || say 'the signature was not checked: --signers names the keys that you trust'
}

main "$@"
