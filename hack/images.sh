#!/usr/bin/env bash
# Builds container images without a registry: hack/images.sh [OPTION...] [NAME...]. See usage() below.

set -euo pipefail
cd "$(dirname "$0")/.."

. hack/sbom.sh

readonly OWN=(gitcd manager trishanku)
readonly TEST=(pause kube-apiserver kube-controller-manager kube-scheduler etcd)
readonly SOURCE=https://github.com/trishanku-org/trishanku
readonly NOBODY=65532
# Paths of the CA certificates on common distributions.
readonly CERTIFICATES=(/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt)

usage() {
  cat <<EOF
Usage: hack/images.sh [OPTION...] [NAME...]

Builds images and writes each to an archive, NAME.tar, that \`docker load\`, \`podman load\`,
\`ctr image import\` and \`kind load image-archive\` accept. Prints only the folder of the archives on
standard output.

NAMEs: ${OWN[*]} (the default), and for tests on a node without
a registry ${TEST[*]}, under their official names;
\`test\` stands for all of the latter.

  --programs DIR   use the programs in DIR instead of building them with cargo
  --registry NAME  prefix of the image names (default: ghcr.io/trishanku-org)
  --tag TAG        tag of the images (default: the version of the workspace)
  --output DIR     folder of the archives (default: target/images)
  --builder NAME   buildah, podman or docker (default: the first that works)

If a builder is missing, or git, ssh or CA certificates, which the images need, root installs them
with apt-get.

The programs are linked against this machine's C library, so the images contain this library and
all others that \`ldd\` names: build them on a distribution that you would run in production. Each
image has an SBOM (SPDX, JSON): /usr/share/sbom/NAME.spdx.json, also beside its archive.
EOF
}

say() { printf 'images: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# ---- Builders ----------------------------------------------------------------

works() { # BUILDER
  command -v "$1" >/dev/null || return 1
  case $1 in
    # The program is of no use without its daemon.
    docker) docker info >/dev/null 2>&1 ;;
    podman) podman info >/dev/null 2>&1 ;;
    *) : ;;
  esac
}

choose_builder() {
  local candidate
  if [[ -n $builder ]]; then
    case $builder in buildah | podman | docker) ;; *) die "unknown builder '$builder'; known are: buildah podman docker" ;; esac
    works "$builder" || die "$builder does not work here: see \`$builder info\`, or leave --builder out"
    return
  fi
  for candidate in podman docker buildah; do
    if works "$candidate"; then
      builder=$candidate
      return
    fi
  done
  can_install || die 'no image builder found: install buildah, podman or docker'
  hack/apt.sh buildah || die 'cannot install buildah with apt-get: install buildah, podman or docker'
  builder=buildah
}

can_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

# Installs the programs and files that the images copy from this machine. If one is still missing, the image that needs it fails.
get_missing() { # NAME...
  local name packages=()
  for name; do
    is_own "$name" || continue
    [[ -f ${CERTIFICATES[0]} || -f ${CERTIFICATES[1]} ]] || packages+=(ca-certificates)
    [[ $name == gitcd ]] || continue
    command -v git >/dev/null || packages+=(git)
    command -v ssh >/dev/null || packages+=(openssh-client)
  done
  ((${#packages[@]})) && can_install || return 0
  hack/apt.sh "${packages[@]}" || say "cannot install ${packages[*]}"
}

# Images are stored below the scratch folder and removed with it, so the user's own storage stays unchanged.
buildah_here() { command buildah --storage-driver vfs --root "$scratch/storage" --runroot "$scratch/run" "$@"; }

assemble() { # CONTEXT REFERENCE ARCHIVE LABEL...
  local context=$1 reference=$2 archive=$3 label labels=()
  shift 3
  for label; do labels+=(--label "$label"); done
  rm -f "$archive.new"
  case $builder in
    buildah)
      buildah_here bud --quiet --isolation chroot --format docker "${labels[@]}" -t "$reference" -f "$context/Containerfile" "$context" >/dev/null
      buildah_here push --quiet "$reference" "docker-archive:$archive.new:$reference"
      buildah_here rmi "$reference" >/dev/null
      ;;
    podman)
      podman build --quiet --format docker "${labels[@]}" -t "$reference" -f "$context/Containerfile" "$context" >/dev/null
      podman save --quiet --format docker-archive -o "$archive.new" "$reference"
      ;;
    docker)
      docker build --quiet "${labels[@]}" -t "$reference" -f "$context/Containerfile" "$context" >/dev/null
      docker save -o "$archive.new" "$reference"
      ;;
  esac
}

# ---- Contents of the images --------------------------------------------------

# Copies a program to a path in the image, and its shared libraries to where the loader looks for them.
put_program() { # ROOT FILE PATH
  local root=$1 file=$2 path=$3 library
  [[ -f $file ]] || die "there is no program $file"
  install -D -m 0755 "$file" "$root$path"
  # Debug information is most of the file; a program without any stays unchanged.
  strip --strip-debug "$root$path" 2>/dev/null || :
  sources+=("$file")
  while read -r library; do
    [[ -e $root$library ]] && continue
    install -D -m 0755 "$(readlink -f "$library")" "$root$library"
    sources+=("$library")
  done < <(ldd "$file" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }')
}

put_text() { # ROOT PATH TEXT
  mkdir -p "$(dirname "$1$2")"
  printf '%s\n' "$3" >"$1$2"
}

# Writes what programs expect of any system: user names, host name resolution, CA certificates.
put_base() { # ROOT
  local root=$1 certificates
  put_text "$root" /etc/passwd "nobody:x:$NOBODY:$NOBODY::/nonexistent:/nonexistent"
  put_text "$root" /etc/group "nobody:x:$NOBODY:"
  put_text "$root" /etc/nsswitch.conf 'hosts: files dns'
  for certificates in "${CERTIFICATES[@]}" ''; do
    [[ -n $certificates ]] || die 'this machine has no CA certificates: install ca-certificates'
    if [[ -f $certificates ]]; then
      install -D -m 0644 "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
      sources+=("$certificates")
      break
    fi
  done
}

put_git() { # ROOT
  local root=$1 folder
  command -v git >/dev/null || die 'this machine has no git, which the image of gitcd needs: install git'
  folder=$(git --exec-path)
  put_program "$root" "$(readlink -f "$(command -v git)")" /usr/bin/git
  mkdir -p "$root/usr/lib/git-core" "$root/usr/share/git-core/templates"
  ln -s ../../bin/git "$root/usr/lib/git-core/git"
  put_program "$root" "$folder/git-remote-http" /usr/lib/git-core/git-remote-http
  ln -s git-remote-http "$root/usr/lib/git-core/git-remote-https"
  command -v ssh >/dev/null || die 'this machine has no ssh, which the image of gitcd needs: install openssh-client'
  put_program "$root" "$(readlink -f "$(command -v ssh)")" /usr/bin/ssh
}

put_programs() { # NAME ROOT
  local name=$1 root=$2 assets
  case $name in
    gitcd)
      put_base "$root"
      put_program "$root" "$programs/gitcd" /usr/bin/gitcd
      put_git "$root"
      ;;
    manager)
      put_base "$root"
      put_program "$root" "$programs/manager" /manager
      ;;
    trishanku)
      put_base "$root"
      put_program "$root" "$programs/trishanku" /usr/bin/trishanku
      put_program "$root" "$programs/gitcd" /usr/bin/gitcd
      ln -s trishanku "$root/usr/bin/kubectl-trishanku"
      ;;
    pause)
      mkdir -p "$root/usr/local/bin"
      cc -Os -static -s -Wall -Werror -o "$root/usr/local/bin/pause" deploy/images/test/pause.c ||
        die 'the C compiler cannot link statically: install the static C library (libc6-dev)'
      ;;
    etcd)
      assets=$(hack/assets.sh etcd etcdctl)
      put_program "$root" "$assets/etcd" /usr/local/bin/etcd
      put_program "$root" "$assets/etcdctl" /usr/local/bin/etcdctl
      ;;
    *)
      assets=$(hack/assets.sh "$name")
      put_program "$root" "$assets/$name" "/usr/local/bin/$name"
      ;;
  esac
  # Caches the libraries that are outside of the loader's default paths.
  if [[ -e $root/etc/passwd ]] && command -v ldconfig >/dev/null; then
    mkdir -p "$root/etc"
    cat /etc/ld.so.conf.d/*.conf 2>/dev/null >"$root/etc/ld.so.conf" || :
    ldconfig -r "$root" -X 2>/dev/null
    rm -rf "$root/etc/ld.so.conf" "$root/var"
  fi
}

reference_of() { # NAME
  local versions
  case $1 in
    pause) printf 'registry.k8s.io/pause:3.10.1\n' ;;
    etcd) printf 'registry.k8s.io/etcd:%s\n' "$(sed -n 's|.*registry.k8s.io/etcd:\([^"]*\)".*|\1|p' crates/heaven-plan/src/plan/place.rs)" ;;
    kube-*)
      versions=$(hack/assets.sh --list)
      printf 'registry.k8s.io/%s:%s\n' "$1" "$(awk -v name="$1" '$1 == name { print $2 }' <<<"$versions")"
      ;;
    *) printf '%s/%s:%s\n' "$registry" "$1" "$tag" ;;
  esac
}

# ---- Run ---------------------------------------------------------------------

is_own() { [[ " ${OWN[*]} " == *" $1 "* ]]; }

make_image() { # NAME
  local name=$1 context=$scratch/$1 reference key labels=() archive=$output/$1.tar started=$SECONDS
  sources=()
  reference=$(reference_of "$name")
  mkdir -p "$context/root"
  put_programs "$name" "$context/root"
  if is_own "$name"; then
    cp "deploy/images/$name/Containerfile" "$context/Containerfile"
    labels=("org.opencontainers.image.version=$tag" "org.opencontainers.image.revision=$revision"
      "org.opencontainers.image.created=$created" "org.opencontainers.image.source=$SOURCE"
      org.opencontainers.image.licenses=Apache-2.0 org.opencontainers.image.vendor=Trishanku)
    mkdir -p "$context/root/usr/share/sbom"
    sbom "$name" "$reference" CONTAINER >"$context/root/usr/share/sbom/$name.spdx.json"
  else
    { cat deploy/images/test/Containerfile && printf 'ENTRYPOINT ["/usr/local/bin/%s"]\n' "$name"; } >"$context/Containerfile"
  fi
  # All users may read the files, whatever the umask of the build.
  chmod -R u=rwX,go=rX "$context/root"
  # An unchanged image is not built again.
  key=$({ cd "$context" && find . -type f -print0 | sort -z | xargs -0 sha256sum && find . -type l -printf '%p %l\n' | sort &&
    printf '%s\n' "$reference" "${labels[@]}"; } | sha256sum | cut -d' ' -f1)
  if [[ -f $archive && $(cat "$archive.key" 2>/dev/null) == "$key" ]]; then
    say "$reference: unchanged"
    return
  fi
  rm -f "$archive.key"
  assemble "$context" "$reference" "$archive" "${labels[@]}"
  if is_own "$name"; then cp "$context/root/usr/share/sbom/$name.spdx.json" "$output/$name.spdx.json"; fi
  mv -f "$archive.new" "$archive"
  printf '%s\n' "$key" >"$archive.key"
  say "$reference: $(du -m "$archive" | cut -f1) MiB, $((SECONDS - started)) s"
}

clean_up() {
  # Files of images in the storage may belong to other users.
  rm -rf "$scratch"
}

main() {
  local flag name wanted=()
  builder='' programs='' registry=ghcr.io/trishanku-org
  tag=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
  output=${CARGO_TARGET_DIR:-target}/images
  while (($#)); do
    case $1 in
      -h | --help)
        usage
        return
        ;;
      --programs | --registry | --tag | --output | --builder)
        (($# > 1)) || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      --programs=* | --registry=* | --tag=* | --output=* | --builder=*)
        flag=${1%%=*}
        printf -v "${flag#--}" %s "${1#*=}"
        ;;
      test) wanted+=("${TEST[@]}") ;;
      *)
        [[ " ${OWN[*]} ${TEST[*]} " == *" $1 "* ]] || die "unknown name '$1'; known are: ${OWN[*]} test ${TEST[*]}"
        wanted+=("$1")
        ;;
    esac
    shift
  done
  ((${#wanted[@]})) || wanted=("${OWN[@]}")
  [[ $(uname -s) == Linux ]] || die 'images are for Linux, with programs that are built there: run this on Linux'

  choose_builder
  get_missing "${wanted[@]}"
  revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
  created=$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || date -u +%FT%TZ)
  for name in "${wanted[@]}"; do
    if is_own "$name" && [[ -z $programs ]]; then
      say 'building the programs'
      cargo build --release --locked --package gitcd --package trishanku-manager --package trishanku --bins >&2
      programs=${CARGO_TARGET_DIR:-target}/release
    fi
  done
  mkdir -p "$output"
  output=$(cd "$output" && pwd)
  scratch=$(mktemp -d "$output/.scratch.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  for name in "${wanted[@]}"; do make_image "$name"; done
  printf '%s\n' "$output"
}

main "$@"
