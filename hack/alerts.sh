#!/usr/bin/env bash
# Tests deploy/monitoring: the rules with promtool, their names against the metrics and the runbook, and some of the alerts with a
# real Prometheus and servers that are broken: hack/alerts.sh [--write | PROGRAMS [PART]]
#
# PROGRAMS: folder of gitcd (default: target/debug). PART: run only the cases whose names contain it. --write: only writes prometheusrule.yaml from rules.yaml. Installs the
# package `prometheus` if promtool is missing (Debian, root).
set -euo pipefail
cd "$(dirname "$0")/.."

. hack/cases.sh

readonly FOLDER=deploy/monitoring

# The same rules, for the Prometheus operator.
custom_resource() {
  cat <<EOF
# Made from rules.yaml by \`hack/alerts.sh --write\`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: trishanku
  labels:
    app.kubernetes.io/part-of: trishanku
spec:
EOF
  sed '/^ *#/d; s/^/  /' "$FOLDER/rules.yaml"
}

if [[ ${1:-} == --write ]]; then
  custom_resource >"$FOLDER/prometheusrule.yaml"
  exit
fi

# ---- Cases -------------------------------------------------------------------

the_rules_pass_their_unit_tests() {
  promtool check rules "$FOLDER/rules.yaml"
  promtool test rules "$FOLDER/tests.yaml"
  local alert
  for alert in $(alerts); do
    grep -qx -- "- name: $alert fires" "$FOLDER/tests.yaml"
    grep -qx -- "- name: $alert does not fire" "$FOLDER/tests.yaml"
  done
}

the_custom_resource_has_the_same_rules() {
  diff <(custom_resource) "$FOLDER/prometheusrule.yaml"
}

every_alert_is_in_the_runbook() {
  diff <(alerts | sort) <(sed -n 's/^## \(\(Gitcd\|Trishanku\).*\)/\1/p' docs/alerts.md | sort)
  local alert
  for alert in $(alerts); do grep -q "docs/alerts.md#${alert,,}\$" "$FOLDER/rules.yaml"; done
}

# Rules and dashboards use only metrics and labels that the programs serve.
all_metrics_exist() {
  local name missing=0
  sed -n 's/^| `\([a-z_]*\)` | .*/\1/p' docs/reference/metrics.md | sort >"$scratch/known"
  (($(wc -l <"$scratch/known") > 100))
  {
    sed -n '/^ *- alert/,/^ *for:/p' "$FOLDER/rules.yaml"
    sed -n 's/.*"\(expr\|query\)": "\(.*\)",*$/\2/p' "$FOLDER"/dashboards/*.json
  } | grep -oE '\b(gitcd|etcd|grpc|process|os|controller_runtime|workqueue|leader_election|rest_client|cache)_[a-z_]+[a-z]' |
    sed 's/_bucket$//' | sort -u >"$scratch/used"
  (($(wc -l <"$scratch/used") > 40))
  while read -r name; do
    # Labels of etcd's metrics begin in the same way.
    [[ $name != grpc_method && $name != grpc_code ]] || continue
    grep -qx "$name" "$scratch/known" || { echo "no program serves $name" && missing=1; }
  done <"$scratch/used"
  return "$missing"
}

# ---- Servers that are broken ---------------------------------------------------

# Below those of other tests, and of outgoing connections.
port=11100
next_port() { port=$((port + 1)); }

# Starts a gitcd with a repository of its own, and adds it to what Prometheus scrapes.
serve() { # NAME FLAG...
  local name=$1
  shift
  next_port
  [[ -d $scratch/$name.git ]] || "$programs/gitcd" init --repo "$scratch/$name.git" >/dev/null
  "$programs/gitcd" serve --repo "$scratch/$name.git" --listen-urls "http://127.0.0.1:$port" "$@" >"$scratch/$name.log" 2>&1 &
  server=$!
  started+=("$server")
  printf '  - {targets: ["127.0.0.1:%s"], labels: {instance: %s}}\n' "$port" "$name" >>"$scratch/targets"
  wait_for "$name" curl -sf "http://127.0.0.1:$port/health"
}

wait_for() { # WHAT COMMAND...
  local what=$1 deadline=$((SECONDS + 120))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { echo "timed out: $what" && return 1; }
    sleep 0.2
  done
}

put() { # KEY BYTES
  local value
  value=$(head -c "$2" /dev/urandom | base64 -w0)
  curl -s "http://127.0.0.1:$port/v3/kv/put" -d "{\"key\":\"$(printf %s "$1" | base64 -w0)\",\"value\":\"$value\"}" >/dev/null
}

is_firing() { # ALERT INSTANCE
  has_data "ALERTS{alertname=\"$1\",alertstate=\"firing\",instance=\"$2\"}"
}

broken_servers_fire_their_alerts() {
  local number server line
  # Not local: the trap runs after the function, too.
  started=()
  trap 'kill "${started[@]}" 2>/dev/null || :; wait || :' EXIT
  : >"$scratch/targets"

  serve full --quota-backend-bytes=20000
  for number in {1..30}; do put "/full/$number" 1000; done
  curl -s "http://127.0.0.1:$port/v3/kv/range" -d '{"key": "AA==", "range_end": "AA=="}' >/dev/null

  "$programs/gitcd" init --repo "$scratch/alone.git" >/dev/null
  git -C "$scratch/alone.git" remote add up "$scratch/nowhere.git"
  serve alone --remote-names=up --pull-ticker-duration=1s

  serve down
  kill -9 "$server"

  serve locked
  # As a Git that was killed leaves it.
  touch "$scratch/locked.git/refs/heads/main.lock"
  put /locked/a 10

  serve crowded --max-connections=10
  # Watches: idle connections would be closed.
  for number in {1..8}; do
    curl -sN "http://127.0.0.1:$port/v3/watch" -d '{"create_request": {"key": "AA=="}}' >/dev/null &
    started+=($!)
  done

  serve rejecting --key-prefixes=/registry
  git clone -q "$scratch/rejecting.git" "$scratch/work" 2>/dev/null
  mkdir -p "$scratch/work/configmaps/n"
  echo '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "n"}}' >"$scratch/work/configmaps/n/a"
  git -C "$scratch/work" add .
  git -C "$scratch/work" -c user.name=a -c user.email=a@example.org commit -qm x
  git -C "$scratch/work" push -q origin HEAD:main

  # For the dashboard: a branch that merges another one.
  "$programs/gitcd" init --repo "$scratch/follower.git" >/dev/null
  git -C "$scratch/follower.git" remote add up "$scratch/rejecting.git"
  serve follower --remote-names=up --pull-ticker-duration=1s --key-prefixes=/registry

  next_port
  prometheus_port=$port
  # No test waits for minutes.
  sed 's/^    for: .*/    for: 0s/' "$FOLDER/rules.yaml" >"$scratch/rules.yaml"
  {
    printf 'global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n'
    printf 'scrape_configs:\n- job_name: gitcd\n  static_configs:\n'
    cat "$scratch/targets"
  } >"$scratch/prometheus.yaml"
  prometheus --config.file="$scratch/prometheus.yaml" --storage.tsdb.path="$scratch/data" \
    --web.listen-address="127.0.0.1:$prometheus_port" >"$scratch/prometheus.log" 2>&1 &
  started+=($!)
  while read -r line; do
    # shellcheck disable=SC2086
    wait_for "$line" is_firing $line
  done <<EOF
GitcdWritesRefused full
GitcdQuotaNearlyUsed full
GitcdRemoteUnreachable alone
GitcdDown down
GitcdConnectionsNearLimit crowded
GitcdFilesRejected rejecting
GitcdCommitsFail locked
EOF
  curl -sf "http://127.0.0.1:$prometheus_port/api/v1/alerts" >"$scratch/alerts.json"
  grep -o '"summary":"[^"]*"' "$scratch/alerts.json" | sort -u
  if grep -q 'error expanding template' "$scratch/alerts.json"; then return 1; fi
  panels_show_data gitcd 'Failed requests|Users in commits|Restarted tasks'
  panels_show_data branches 'Writer lease'
  # No controller runs here: only their syntax is tested.
  panels_show_data controllers '.*'
}

# Each panel of a dashboard is a query that Prometheus answers with data, except those that need something that is not there.
panels_show_data() { # DASHBOARD PANELS
  local title='' line query answer
  while read -r line; do
    case $line in
      '"title": '*) title=$(sed 's/^"title": "\(.*\)",*$/\1/' <<<"$line") ;;
      '"expr": '*)
        query=$(sed 's/^"expr": "\(.*\)",*$/\1/; s/\\"/"/g; s/\$__rate_interval/10s/g; s/\$instance/.*/g; s/\$controller/.*/g' <<<"$line")
        answer=$(ask "$query")
        [[ $answer == *'"status":"success"'* ]] || { echo "$1, $title: $query: $answer" && return 1; }
        # A rate needs two samples.
        [[ $title =~ ^($2)$ ]] || wait_for "$1, $title: no data: $query" has_data "$query"
        ;;
    esac
  done <"$FOLDER/dashboards/$1.json"
}

ask() { curl -s "http://127.0.0.1:$prometheus_port/api/v1/query" --data-urlencode "query=$1"; }

has_data() { [[ $(ask "$1") == *'"value":'* ]]; }

# ---- Run ---------------------------------------------------------------------

alerts() { sed -n 's/^ *- alert: //p' "$FOLDER/rules.yaml"; }

programs=${1:-${CARGO_TARGET_DIR:-target}/debug} part=${2:-}
command -v promtool >/dev/null && command -v prometheus >/dev/null || hack/apt.sh prometheus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
try the_rules_pass_their_unit_tests
try the_custom_resource_has_the_same_rules
try every_alert_is_in_the_runbook
try all_metrics_exist
try broken_servers_fire_their_alerts
totals
