#!/usr/bin/env bash
# Measures a move from etcd to gitcd and back: hack/bench-migrate.sh GITCD
#
# 100,000 keys of 1 KiB; a client writes until etcd refuses that. Prints the seconds of each step, and compares all keys at the
# end. KUBEBUILDER_ASSETS names the folder with etcd, etcdctl and etcdutl.
set -euo pipefail
: "${1:?GITCD}" "${KUBEBUILDER_ASSETS:?the folder with etcd, etcdctl and etcdutl}"
gitcd=$(realpath "$1")
export PATH=$KUBEBUILDER_ASSETS:$PATH

folder=$(mktemp -d)
server=
clean_up() {
  if [[ -n $server ]]; then kill "$server" 2>/dev/null || :; fi
  wait
  rm -rf "$folder"
}
trap clean_up EXIT
cd "$folder"
# Ports below those of outgoing connections.
url=http://127.0.0.1:$((20000 + RANDOM % 10000))
export ETCDCTL_ENDPOINTS=$url

stop() {
  kill "$server"
  wait "$server" || :
  server=
}

start_etcd() { # DATA
  etcd --data-dir "$1" --listen-client-urls "$url" --advertise-client-urls "$url" --listen-peer-urls http://127.0.0.1:0 \
    --log-level error >etcd.log 2>&1 &
  server=$!
  until etcdctl endpoint health >/dev/null 2>&1; do sleep 0.1; done
}

# Prints how long a command took.
timed() { # NAME COMMAND...
  local name=$1 started=$EPOCHREALTIME
  shift
  "$@" >>steps.log 2>&1 || { cat steps.log >&2; return 1; }
  printf '%-40s %6.2f s\n' "$name" "$(bc <<<"$EPOCHREALTIME - $started")"
}

content() {
  etcdctl get '' --prefix --write-out=json |
    python3 -c 'import hashlib, json, sys
found = json.load(sys.stdin)
pairs = json.dumps(found["kvs"], sort_keys=True).encode()
print("revision", found["header"]["revision"], "keys", len(found["kvs"]), "hash", hashlib.sha256(pairs).hexdigest()[:16])'
}

start_etcd first
value=$(head -c 760 /dev/urandom | base64 -w0)
for transaction in {0..999}; do
  {
    echo
    for key in {0..99}; do echo "put /registry/pods/ns-$((transaction % 50))/pod-$transaction-$key $transaction-$key-$value"; done
    printf '\n\n'
  } | etcdctl txn >/dev/null
done
(
  number=0
  while etcdctl put "/registry/load/$((number++ % 100))" "$number" >/dev/null 2>&1; do :; done
  echo "a client wrote $number times until it was refused"
) &
import=("$gitcd" migrate import --endpoints "$url" --repo "$folder/repo.git" --key-prefixes=/registry)
timed 'import' "${import[@]}"
cut_over=$EPOCHREALTIME
timed 'cut-over' "${import[@]}" --cut-over
stop
"$gitcd" serve --repo "$folder/repo.git" --key-prefixes=/registry --listen-urls "$url" 2>serve.log &
server=$!
until etcdctl put /registry/first 1 >/dev/null 2>&1; do sleep 0.02; done
printf '%-40s %6.2f s\n' 'from the cut-over to the first write' "$(bc <<<"$EPOCHREALTIME - $cut_over")"
timed 'export' "$gitcd" migrate export exported --endpoints "$url"
before=$(content)
stop
timed 'etcdutl snapshot restore' etcdutl snapshot restore exported --data-dir second
start_etcd second
after=$(content)
echo "gitcd: $before"
echo "etcd:  $after"
[[ $before == "$after" ]]
