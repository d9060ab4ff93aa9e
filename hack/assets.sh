#!/usr/bin/env bash
# Finds, downloads or builds the etcd and Kubernetes programs that tests and
# `make up` run, and prints the folder that holds them. See usage() below.

set -euo pipefail

readonly DEFAULT_NAMES=(etcd etcdctl etcdutl kube-apiserver kubectl kube-controller-manager kube-scheduler)
readonly ON_DEMAND_NAMES=(kubelet kube-proxy)
readonly GO_MINOR_WANTED=26 # of Go 1, as the go lines of the two go.mod files say
readonly PROGRESS_SECONDS=15

HACK_DIR=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly HACK_DIR

usage() {
  cat <<EOF
Usage: hack/assets.sh [NAME...]
       hack/assets.sh --list | --help

Prints, as its only line on standard output, the absolute folder that holds the
named programs (default: ${DEFAULT_NAMES[*]}).
Progress goes to standard error. --list shows every known name and its version.

Looks, in this order, at:
  1. \$TRISHANKU_ASSETS, \$KUBEBUILDER_ASSETS: taken as it is if it holds all of them
  2. the cache, \${XDG_CACHE_HOME:-~/.cache}/trishanku/assets/, shared by all checkouts
  3. the official releases, checksums verified (linux only)
  4. Go 1.$GO_MINOR_WANTED or later: built from the modules that hack/etcd and hack/kube pin

Environment:
  TRISHANKU_ASSETS_DOWNLOAD=0   never download a release
  TRISHANKU_ASSETS_KUBE_URL     mirror of https://dl.k8s.io
  TRISHANKU_ASSETS_ETCD_URL     mirror of https://github.com/etcd-io/etcd/releases/download
EOF
}

say() { printf 'assets: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# ---- Names and versions ------------------------------------------------------

# The go.mod files are the only place that states a version.
required_version() { # GO_MOD MODULE
  local line word previous=
  while read -r line; do
    for word in $line; do
      if [[ $previous == "$2" && $line != *'=>'* ]]; then
        printf '%s\n' "$word"
        return
      fi
      previous=$word
    done
  done <"$1"
  die "$1 does not require $2"
}

is_etcd() { [[ $1 == etcd || $1 == etcdctl || $1 == etcdutl ]]; }

version_of() {
  if is_etcd "$1"; then printf '%s\n' "$ETCD_VERSION"; else printf '%s\n' "$KUBE_VERSION"; fi
}

is_known() {
  local known
  for known in "${DEFAULT_NAMES[@]}" "${ON_DEMAND_NAMES[@]}"; do
    [[ $1 == "$known" ]] && return 0
  done
  return 1
}

list() {
  local name
  for name in "${DEFAULT_NAMES[@]}" "${ON_DEMAND_NAMES[@]}"; do
    printf '%-24s %s\n' "$name" "$(version_of "$name")"
  done
}

host_os() {
  case $(uname -s) in
    Linux) echo linux ;;
    Darwin) echo darwin ;;
    *) die "no binaries for the operating system $(uname -s)" ;;
  esac
}

host_arch() {
  case $(uname -m) in
    x86_64 | amd64) echo amd64 ;;
    aarch64 | arm64) echo arm64 ;;
    ppc64le) echo ppc64le ;;
    s390x) echo s390x ;;
    *) die "no binaries for the processor $(uname -m)" ;;
  esac
}

cache_root() {
  # The XDG specification says to ignore a relative path.
  if [[ ${XDG_CACHE_HOME:-} == /* ]]; then
    printf '%s\n' "$XDG_CACHE_HOME"
  elif [[ ${HOME:-} == /* ]]; then
    printf '%s\n' "$HOME/.cache"
  else
    die 'set HOME or XDG_CACHE_HOME to an absolute folder: the binaries are cached there'
  fi
}

# ---- 1. Environment ----------------------------------------------------------

# Prints the folder if VARIABLE names one that holds everything wanted.
folder_from_environment() { # VARIABLE
  local folder=${!1:-} name lacking=
  [[ -n $folder ]] || return 1
  for name in "${wanted[@]}"; do
    [[ -f $folder/$name && -x $folder/$name ]] || lacking+=" $name"
  done
  if [[ -n $lacking ]]; then
    say "\$$1 ($folder) is not used, it lacks:$lacking"
    say "  unset $1, or set it to a folder that has them; going on as if it were unset"
    return 1
  fi
  (cd -- "$folder" && pwd)
}

# ---- 2. Cache ----------------------------------------------------------------

# Prints the rest of the line of FILE whose last word is NAME.
line_for() { # FILE NAME
  local line
  [[ -r $1 ]] || return 1
  while read -r line; do
    if [[ ${line##* } == "$2" ]]; then
      printf '%s\n' "${line% *}"
      return
    fi
  done <"$1"
  return 1
}

# Replaces the line of NAME in FILE; readers see the old file or the new one.
set_line_for() { # FILE NAME TEXT
  local line next
  next=$(mktemp "$cache/.tmp.XXXXXX") || return 1
  {
    if [[ -r $1 ]]; then
      while read -r line; do
        [[ ${line##* } == "$2" ]] || printf '%s\n' "$line"
      done <"$1"
    fi
    printf '%s  %s\n' "$3" "$2"
  } >"$next" && chmod 0644 "$next" && mv -f "$next" "$1"
}

sha256_of() {
  local sum
  sum=$(sha256sum <"$1")
  printf '%s\n' "${sum%% *}"
}

# Hashing all binaries takes longer than a test that needs one. A file whose
# size, inode and time of last change are those seen when its hash was last
# verified is not hashed again; any write, copy or replacement changes them.
is_cached() { # NAME
  local file=$cache/$1 sum seen now
  [[ -f $file && -x $file ]] || return 1
  sum=$(line_for "$cache/SHA256SUMS" "$1") || return 1
  sum=${sum%% *}
  now=$(stat -c '%s %i %.9Z' "$file") || return 1
  seen=$(line_for "$cache/.verified" "$1") || seen=
  [[ ${seen% } == "$sum $now" ]] && return 0
  [[ $(sha256_of "$file") == "$sum" ]] || return 1
  set_line_for "$cache/.verified" "$1" "$sum $now" 2>/dev/null || : # a cache may be read-only
}

all_cached() {
  local name
  for name in "${wanted[@]}"; do
    is_cached "$name" || return 1
  done
}

# Puts a finished file into the cache. The sum follows the file: a run that dies
# between the two leaves a file without a matching sum, which is rebuilt.
publish() { # NAME FILE
  local sum
  chmod 0755 "$2" && check_version "$1" "$2" && sum=$(sha256_of "$2") &&
    mv -f "$2" "$cache/$1" && set_line_for "$cache/SHA256SUMS" "$1" "$sum" &&
    set_line_for "$cache/.verified" "$1" "$sum $(stat -c '%s %i %.9Z' "$cache/$1")"
}

# A component with a wrong version refuses its peers, or misreports itself.
check_version() { # NAME FILE
  local reported want
  want=$(version_of "$1")
  case $1 in
    etcdctl | etcdutl) reported=$("$2" version 2>&1) || : ;;
    kubectl) reported=$(KUBECONFIG=/dev/null "$2" version --client 2>&1) || : ;;
    *) reported=$("$2" --version 2>&1) || : ;;
  esac
  reported=${reported//$'\n'/ }
  if [[ " $reported " != *" $want "* ]]; then
    say "$1: reports '${reported:0:200}' instead of version $want: not used"
    return 1
  fi
}

# Returns 0 with the lock held, or 1 when another run has meanwhile put
# everything wanted into the cache.
lock_cache() {
  exec 9>"$cache/.lock"
  if ! command -v flock >/dev/null; then
    # Renames keep every file intact even then; two runs may do the same work.
    say 'no flock program: going on without a lock'
    return 0
  fi
  flock -n 9 && return 0
  say "another run is filling $cache: waiting for it"
  until flock -w 2 9; do
    all_cached && return 1
  done
}

# ---- 3. Official releases ----------------------------------------------------

fetch() { # URL FILE
  curl --fail --silent --show-error --location --connect-timeout 4 \
    --speed-limit 10000 --speed-time 20 --retry 2 --output "$2" "$1" 9>&-
}

# Asks every needed host at once, so that a machine without a network, or with
# one that drops packets, loses at most five seconds.
probe_hosts() {
  local name url pid etcd_pid='' kube_pid='' reachable=
  etcd_reachable=0 kube_reachable=0
  [[ ${TRISHANKU_ASSETS_DOWNLOAD:-1} != 0 && $os == linux ]] || return 0
  if ! command -v curl >/dev/null; then
    say 'no curl program: nothing is downloaded'
    return 0
  fi
  for name in "${missing[@]}"; do
    if is_etcd "$name"; then
      [[ -z $etcd_pid ]] || continue
      url=$etcd_release/SHA256SUMS
    else
      [[ -z $kube_pid ]] || continue
      url=$kube_release/$name.sha256
    fi
    curl --fail --silent --location --connect-timeout 4 --max-time 5 \
      --output /dev/null "$url" 9>&- &
    pid=$!
    if is_etcd "$name"; then etcd_pid=$pid; else kube_pid=$pid; fi
  done
  if [[ -n $etcd_pid ]] && wait "$etcd_pid"; then etcd_reachable=1 reachable+=' etcd'; fi
  if [[ -n $kube_pid ]] && wait "$kube_pid"; then kube_reachable=1 reachable+=' Kubernetes'; fi
  say "official releases within reach:${reachable:- none}"
}

verify() { # FILE SUM
  [[ $2 =~ ^[0-9a-f]{64}$ && $(sha256_of "$1") == "$2" ]] && return 0
  say "${1##*/}: the download does not match its published checksum"
  return 1
}

download_kube() { # NAME
  local sum
  fetch "$kube_release/$1.sha256" "$temporary/$1.sha256" &&
    fetch "$kube_release/$1" "$temporary/$1" || return 1
  read -r sum _ <"$temporary/$1.sha256" || [[ -n ${sum:-} ]] || return 1
  verify "$temporary/$1" "$sum"
}

download_etcd() { # NAME
  local folder=etcd-v$ETCD_VERSION-$os-$arch sum
  # One archive holds all three programs.
  if [[ ! -f $temporary/$folder.tar.gz.good ]]; then
    fetch "$etcd_release/SHA256SUMS" "$temporary/etcd.sums" &&
      fetch "$etcd_release/$folder.tar.gz" "$temporary/$folder.tar.gz" || return 1
    sum=$(line_for "$temporary/etcd.sums" "$folder.tar.gz") || return 1
    verify "$temporary/$folder.tar.gz" "${sum%% *}" || return 1
    : >"$temporary/$folder.tar.gz.good"
  fi
  tar -xzf "$temporary/$folder.tar.gz" -C "$temporary" --strip-components=1 \
    --no-same-owner "$folder/$1"
}

download() { # NAME
  local started=$SECONDS
  if is_etcd "$1"; then
    ((etcd_reachable)) || return 1
    download_etcd "$1"
  else
    ((kube_reachable)) || return 1
    download_kube "$1"
  fi || {
    rm -f "$temporary/$1"
    say "$1: no verified download to be had"
    return 1
  }
  publish "$1" "$temporary/$1" || return 1
  say "$1: downloaded and verified, $((SECONDS - started)) s"
}

# ---- 4. Go modules -----------------------------------------------------------

# GOFLAGS is set, not emptied: an empty one lets `go env -w GOFLAGS=…` through.
# Everything else that would change what is built is fixed here too.
run_go() { # FOLDER ARGUMENT...
  cd -- "$HACK_DIR/$1" || return 1
  shift
  exec env GOFLAGS=-mod=readonly GOWORK=off GO111MODULE=on CGO_ENABLED=0 \
    GOOS="$os" GOARCH="$arch" GOEXPERIMENT= go "$@"
}

# Sets go_problem to the reason why Go cannot be used, or to nothing. Runs inside
# the module, so that Go can switch to a newer toolchain.
check_go() {
  local version
  go_problem=
  if ! command -v go >/dev/null; then
    go_problem='there is no go program in PATH'
  elif ! version=$(run_go kube env GOVERSION 2>&1 9>&-); then
    go_problem="the go program in PATH does not work here: ${version//$'\n'/ }"
  elif ! [[ $version =~ ^go1\.([0-9]+) ]]; then
    go_problem="the go program in PATH has an unknown version, '$version'"
  elif ((BASH_REMATCH[1] < GO_MINOR_WANTED)); then
    go_problem="the go program in PATH is too old ($version)"
  fi
}

link_flags() { # NAME
  local package flags='-s -w' minor=${KUBE_VERSION#v*.}
  if ! is_etcd "$1"; then # etcd's version is a constant in its source
    for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
      flags+=" -X $package.gitVersion=$KUBE_VERSION -X $package.gitMajor=1"
      flags+=" -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
      flags+=" -X $package.gitCommit="
    done
  fi
  printf '%s\n' "$flags"
}

build() { # NAME
  local name=$1 started=$SECONDS module package tags log=$temporary/$1.log status=0
  case $name in
    etcd) module=etcd package=go.etcd.io/etcd/server/v3 tags= ;;
    etcdctl) module=etcd package=go.etcd.io/etcd/etcdctl/v3 tags= ;;
    etcdutl) module=etcd package=go.etcd.io/etcd/etcdutl/v3 tags= ;;
    *) module=kube package=k8s.io/kubernetes/cmd/$name tags=selinux,notest,grpcnotrace ;;
  esac
  say "$name: building $(version_of "$name") from Go modules"
  # Tags and flags are those of the official builds.
  (run_go "$module" build -trimpath -buildvcs=false -tags="$tags" \
    -ldflags "$(link_flags "$name")" -o "$temporary/$name" "$package") >"$log" 2>&1 9>&- &
  builder=$!
  # The sleep inherits no open file: a caller that reads this script's output to
  # the end would otherwise wait for the sleep.
  (
    while sleep "$PROGRESS_SECONDS" <&- >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
      say "$name: still building, $((SECONDS - started)) s"
    done
  ) 9>&- &
  ticker=$!
  wait "$builder" || status=$?
  builder=''
  stop_children
  if ((status != 0)); then
    say "$name: the build failed; its last lines:"
    tail -n 20 "$log" >&2
    return 1
  fi
  publish "$name" "$temporary/$name" || return 1
  say "$name: built, $((SECONDS - started)) s"
}

# ---- Run ---------------------------------------------------------------------

stop_children() {
  local pid
  for pid in $ticker $builder; do
    kill "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
  done
  ticker='' builder=''
}

clean_up() {
  stop_children
  [[ -z $temporary ]] || rm -rf "$temporary"
}

give_up() { # NAME...
  local offer=''
  if [[ $os == linux && ${TRISHANKU_ASSETS_DOWNLOAD:-1} == 0 ]]; then
    offer='unset TRISHANKU_ASSETS_DOWNLOAD, which is 0, and '
  fi
  say "cannot get: $*"
  if [[ -n $go_problem ]]; then say "not built from Go modules: $go_problem"; fi
  say 'do one of these:'
  if [[ -n $go_problem ]]; then
    say "  - install Go 1.$GO_MINOR_WANTED or later and put its go program in PATH"
  else
    say '  - see above why Go could not build it; a first build needs Go modules, from the network or GOPROXY'
  fi
  say "  - set TRISHANKU_ASSETS (or KUBEBUILDER_ASSETS) to a folder with: ${wanted[*]}"
  if [[ $os == linux ]]; then
    say "  - ${offer}install curl and tar, and let this machine reach $kube_release and $etcd_release"
  fi
  exit 1
}

# Adds everything in `missing` to the cache. The lock is held.
fill_cache() {
  local name failed=()
  rm -rf "$cache"/.tmp.* # of killed runs: the lock excludes a running one
  temporary=$(mktemp -d "$cache/.tmp.XXXXXX")
  probe_hosts
  go_problem='' go_checked=0
  for name in "${missing[@]}"; do
    download "$name" && continue
    if ((!go_checked)); then
      check_go
      go_checked=1
    fi
    if [[ -n $go_problem ]] || ! build "$name"; then failed+=("$name"); fi
  done
  if ((${#failed[@]})); then give_up "${failed[@]}"; fi
}

main() {
  local name variable folder
  KUBE_VERSION=$(required_version "$HACK_DIR/kube/go.mod" k8s.io/kubernetes)
  ETCD_VERSION=$(required_version "$HACK_DIR/etcd/go.mod" go.etcd.io/etcd/server/v3)
  ETCD_VERSION=${ETCD_VERSION#v}
  readonly KUBE_VERSION ETCD_VERSION

  wanted=()
  for name in "$@"; do
    case $name in
      -h | --help)
        usage
        return
        ;;
      --list)
        list
        return
        ;;
    esac
    if ! is_known "$name"; then
      say "unknown name '$name'; known are: ${DEFAULT_NAMES[*]} ${ON_DEMAND_NAMES[*]}"
      exit 2
    fi
    [[ " ${wanted[*]-} " == *" $name "* ]] || wanted+=("$name")
  done
  ((${#wanted[@]})) || wanted=("${DEFAULT_NAMES[@]}")

  for variable in TRISHANKU_ASSETS KUBEBUILDER_ASSETS; do
    if folder=$(folder_from_environment "$variable"); then
      printf '%s\n' "$folder"
      return
    fi
  done

  os=$(host_os)
  arch=$(host_arch)
  cache=$(cache_root)/trishanku/assets/$KUBE_VERSION-$ETCD_VERSION-$os-$arch
  if all_cached; then
    printf '%s\n' "$cache"
    return
  fi

  kube_release=${TRISHANKU_ASSETS_KUBE_URL:-https://dl.k8s.io}/$KUBE_VERSION/bin/$os/$arch
  etcd_release=${TRISHANKU_ASSETS_ETCD_URL:-https://github.com/etcd-io/etcd/releases/download}/v$ETCD_VERSION
  temporary='' builder='' ticker=''
  trap clean_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM

  mkdir -p "$cache" || die "cannot make the cache folder $cache: set XDG_CACHE_HOME to a writable one"
  if lock_cache; then
    missing=()
    for name in "${wanted[@]}"; do
      is_cached "$name" && continue
      if [[ -e $cache/$name ]]; then
        say "$name: the cached file is damaged (its checksum is not the one recorded): made again"
      fi
      missing+=("$name")
    done
    if ((${#missing[@]})); then fill_cache; fi
  fi
  printf '%s\n' "$cache"
}

main "$@"
