#!/bin/sh
# Installs gitcd and trishanku from the archive of a release: install.sh [OPTION...]. See usage() below.
set -eu

RELEASES=https://github.com/trishanku-org/trishanku/releases
# As hack/dist.sh signs.
NAMESPACE=trishanku-release

usage() {
  cat <<END
Usage: install.sh [OPTION...]

Installs gitcd and trishanku with their man pages and completions. Checks the SHA-256 of the
archive first, and the signature of these sums if you name the keys that you trust.

  --version TAG    release to install (default: the newest)
  --from PLACE     folder or URL with the files of a release, instead of GitHub
  --prefix DIR     where to install (default: /usr/local for root, ~/.local for others)
  --signers FILE   keys that may sign releases, in the format of \`ssh-keygen\` (ALLOWED SIGNERS)
  --uninstall      remove what install.sh installed to the prefix; data stays

Needs tar, gzip and sha256sum; for URLs curl or wget; for signatures ssh-keygen.
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
      if has curl; then
        curl --fail --silent --show-error --location --proto '=https,http' --output "$scratch/$1" "$from/$1"
      elif has wget; then
        wget --quiet --output-document="$scratch/$1" "$from/$1"
      else
        die 'curl or wget is needed to download; install one, or download the files and give their folder with --from'
      fi || die "cannot download $from/$1"
      ;;
    *) cp "$from/$1" "$scratch/$1" 2>/dev/null || die "there is no $from/$1" ;;
  esac
}

# Checks the signature of the sums, then the sum of the archive.
verify() {
  if [ -n "$signers" ]; then
    has ssh-keygen || die 'ssh-keygen is needed to check signatures; install openssh-client'
    get SHA256SUMS.sig
    # Of several names of a key, any will do.
    signer=$(ssh-keygen -Y find-principals -s "$scratch/SHA256SUMS.sig" -f "$signers" 2>/dev/null | head -n 1)
    [ -n "$signer" ] || die "SHA256SUMS was not signed by a key of $signers: nothing was installed"
    ssh-keygen -q -Y verify -f "$signers" -I "$signer" -n "$NAMESPACE" -s "$scratch/SHA256SUMS.sig" \
      <"$scratch/SHA256SUMS" >/dev/null 2>&1 || die 'the signature of SHA256SUMS is wrong: nothing was installed'
    say "signed by $signer"
  fi
  grep "  $archive\$" "$scratch/SHA256SUMS" >"$scratch/sum" || die "SHA256SUMS does not list $archive: nothing was installed"
  (cd "$scratch" && sha256sum -c sum >/dev/null 2>&1) ||
    die "the SHA-256 of $archive is not the one in SHA256SUMS: nothing was installed"
}

# Replaces a file at once, also that of a running program, and records it.
put() { # MODE FILE PATH
  mkdir -p "$prefix/${3%/*}"
  cp "$2" "$prefix/$3.new"
  chmod "$1" "$prefix/$3.new"
  mv -f "$prefix/$3.new" "$prefix/$3"
  printf '%s\n' "$3" >>"$scratch/list"
}

uninstall() {
  [ -f "$list" ] || die "install.sh has installed nothing to $prefix"
  while IFS= read -r path; do rm -f "$prefix/$path"; done <"$list"
  rm -f "$list"
  rmdir "$prefix/share/trishanku/control-plane" "$prefix/share/trishanku" 2>/dev/null || :
  say "removed gitcd and trishanku from $prefix; repositories and clusters stay"
}

install_files() {
  for name in gitcd trishanku; do
    put 755 "$name" "bin/$name"
    put 644 "completions/$name.bash" "share/bash-completion/completions/$name"
    put 644 "completions/_$name" "share/zsh/site-functions/_$name"
    put 644 "completions/$name.fish" "share/fish/vendor_completions.d/$name.fish"
  done
  # kubectl finds its plugins by such names.
  ln -sf trishanku "$prefix/bin/kubectl-trishanku"
  printf 'bin/kubectl-trishanku\n' >>"$scratch/list"
  for page in man/*; do put 644 "$page" "share/man/man1/${page#man/}"; done
  for file in control-plane/* LICENSE NOTICES.txt trishanku.spdx.json; do put 644 "$file" "share/trishanku/$file"; done
  # What an older release had, and this one has not.
  if [ -f "$list" ]; then
    grep -Fvx -f "$scratch/list" "$list" >"$scratch/old" || :
    while IFS= read -r path; do rm -f "$prefix/$path"; done <"$scratch/old"
  fi
  cp "$scratch/list" "$list"
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
        [ $# -gt 1 ] || die "$1 needs a value"
        case $1 in
          --version) version=$2 ;;
          --from) from=${2%/} ;;
          --prefix) prefix=${2%/} ;;
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
  [ "$(uname -s)" = Linux ] || die 'there are programs for Linux only'
  case $(uname -m) in
    x86_64 | amd64) archive=trishanku-linux-amd64.tar.gz ;;
    aarch64 | arm64) archive=trishanku-linux-arm64.tar.gz ;;
    *) die "there are no programs for $(uname -m); known are: x86_64 aarch64" ;;
  esac
  [ -z "$signers" ] || [ -f "$signers" ] || die "there is no file $signers"
  if [ -z "$from" ]; then
    if [ -n "$version" ]; then from=$RELEASES/download/$version; else from=$RELEASES/latest/download; fi
  fi

  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  get SHA256SUMS
  get "$archive"
  verify
  mkdir -p "$prefix" "$scratch/files" || die "cannot write to $prefix: run as root, or give another --prefix"
  # Relative to where it was called.
  prefix=$(cd "$prefix" && pwd) list=$prefix/share/trishanku/installed
  tar -xzf "$scratch/$archive" -C "$scratch/files"
  cd "$scratch/files"
  # A machine with an older C library keeps what it has.
  ./gitcd version >/dev/null 2>"$scratch/error" || die "the programs do not run here: $(cat "$scratch/error")"
  install_files

  say "$("$prefix/bin/gitcd" version) is in $prefix/bin"
  case :$PATH: in *":$prefix/bin:"*) ;; *) say "add it to PATH: export PATH=\"$prefix/bin:\$PATH\"" ;; esac
  [ -n "$signers" ] || say 'the signature was not checked: --signers names the keys that you trust'
}

main "$@"
