#!/usr/bin/env bash
# Writes deploy/install.yaml and the templates of the Helm chart in deploy/chart from deploy/kustomize (needs kubectl).
# Usage: hack/chart.sh          writes them
#        hack/chart.sh --check  only compares, and fails if they are not current
#
# Each component of deploy/kustomize becomes a condition of the chart: the objects of `default` are compared with those of
# `default` and that component. Objects that only one of them has, and lines that differ, get an `if`. So components must not
# change the same line, nor each other's objects; a test renders all combinations with Helm and compares them with Kustomize's.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly COMPONENTS=(high-availability monitoring metrics-reader tracing namespaced network-policies injection)
readonly BASE=deploy/kustomize/default CHART=deploy/chart/trishanku
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Writes each object to a file of its own in FOLDER.
split() { # FOLDER
  mkdir -p "$1"
  awk -v folder="$1" '
    function finish() { if (text != "") printf "%s", text >(folder "/" tolower(kind) "-" name ".yaml"); text = kind = name = "" }
    $0 == "---" { finish(); next }
    /^kind: / { kind = $2 }
    /^[a-z]/ { in_metadata = /^metadata:/ }
    in_metadata && name == "" && /^  name: / { name = $2 }
    # Helm would read braces as its own.
    { gsub(/\{\{/, "{{ \"{{\" }}"); text = text $0 "\n" }
    END { finish() }'
}

# high-availability is .Values.highAvailability.enabled.
value() { # COMPONENT
  printf '.Values.%s.enabled' "$(sed -E 's/-(.)/\U\1/g' <<<"$1")"
}

# Merges differences into the base, as conditions. Standard input: what diff prints for each component, after `= CONDITION`.
merge() { # BASE_FILE
  awk -v base="$1" '
    function finish() {
      if (first == "") return
      if (is_added) added[first] = added[first] "{{- if " condition " }}\n" text "{{- end }}\n"
      else if (first in changed) {
        print "hack/chart.sh: two components change line " first " of " base >"/dev/stderr"
        exit failed = 1
      }
      else { changed[first] = "{{- if " condition " }}\n" text "{{- else }}\n"; last_of[first] = last }
      first = text = ""
    }
    /^= / { finish(); condition = substr($0, 3) }
    /^[0-9]/ {
      finish()
      split($0, side, /[acd]/)
      first = last = side[1]
      sub(/,.*/, "", first)
      sub(/.*,/, "", last)
      is_added = /a/
    }
    /^> / { text = text substr($0, 3) "\n" }
    END {
      if (failed) exit 1
      finish()
      while ((getline line <base) > 0) {
        if (++number in changed) { printf "%s", changed[number]; end = last_of[number] }
        print line
        if (number == end) print "{{- end }}"
        printf "%s", added[number]
      }
    }'
}

# Replaces the constants of the manifests by values of the chart.
parameters() { # KIND-NAME
  # A namespace such as 2026 would be a number without quotes.
  sed -e 's/: trishanku-system$/: {{ .Release.Namespace | quote }}/; s/\btrishanku-system\b/{{ .Release.Namespace }}/' | case $1 in
    deployment-*)
      # Fields of the pod that are values, too, are left out: YAML allows no key twice.
      sed -e '/^{{- if .Values.highAvailability.enabled }}$/ { N
/topologySpreadConstraints:$/ s/if \(.Values.highAvailability.enabled\)/if and \1 (kindIs "invalid" (.Values.pod | default dict).topologySpreadConstraints)/ }' |
        sed -e 's/replicas: 3$/replicas: {{ .Values.highAvailability.replicas }}/' \
        -e 's|image: .*/manager:.*|image: "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag \| default .Chart.AppVersion }}{{ end }}"|' \
        -e '/name: LOG_FORMAT/ { n; s/value: .*/value: {{ .Values.log.format | quote }}/ }' \
        -e '/name: OTEL_EXPORTER_OTLP_ENDPOINT/ { n; s/value: .*/value: {{ .Values.tracing.endpoint | quote }}/ }' \
        -e '/name: OTEL_TRACES_SAMPLER_ARG/ { n; s/value: .*/value: {{ .Values.tracing.ratio | quote }}/ }' \
        -e '/^        resources:/,/^        securityContext:/ { /^        resources:/a\
          {{- toYaml .Values.resources | nindent 10 }}
/^          /d }' \
        -e '/^        command:/i\
        {{- with .Values.extraArgs }}\
        {{- toYaml . | nindent 8 }}\
        {{- end }}' \
        -e '/^        image:/i\
        {{- with .Values.log.level }}\
        - name: LOG_LEVEL\
          value: {{ . | quote }}\
        {{- end }}\
        {{- range $name, $image := .Values.defaultImages }}\
        {{- with $image }}\
        - name: DEFAULT_{{ upper $name }}_IMAGE\
          value: {{ . | quote }}\
        {{- end }}\
        {{- end }}\
        {{- with .Values.extraEnv }}\
        {{- toYaml . | nindent 8 }}\
        {{- end }}' \
        -e '1i\
{{- include "trishanku.checks" . }}' \
        -e '/^      securityContext:/i\
      {{- if kindIs "invalid" (.Values.pod | default dict).securityContext }}' \
        -e '/^      serviceAccountName:/i\
      {{- end }}\
      {{- range $name, $value := .Values.pod }}\
      {{- if not (kindIs "invalid" $value) }}\
      {{- toYaml (dict $name $value) | nindent 6 }}\
      {{- end }}\
      {{- end }}'
      ;;
    clusterrolebinding-trishanku-metrics-reader)
      sed -e '/^- kind: ServiceAccount/,$ { s/name: .*/name: {{ .Values.metricsReader.serviceAccount.name | quote }}/; s/namespace: .*/namespace: {{ .Values.metricsReader.serviceAccount.namespace | quote }}/ }' ;;
    # Helm would delete all heavens with the definitions when the release is uninstalled.
    customresourcedefinition-*)
      sed -e 's/^metadata:$/&\n  annotations:\n    helm.sh\/resource-policy: keep/' ;;
    *) cat ;;
  esac
}

# Prints the template of an object.
template() { # KIND-NAME.yaml
  local file=$1 component conditions='' changes='' from=$scratch/base/$1
  [[ $file != customresourcedefinition-* ]] || conditions='.Values.crds.enabled'
  for component in "${COMPONENTS[@]}"; do
    if [[ ! -e $scratch/base/$file ]]; then
      [[ -e $scratch/$component/$file ]] || continue
      conditions+=" $(value "$component")" from=$scratch/$component/$file
    elif [[ ! -e $scratch/$component/$file ]]; then
      conditions+=" (not $(value "$component"))"
    else
      changes+="= $(value "$component")"$'\n'$(diff "$scratch/base/$file" "$scratch/$component/$file" || :)$'\n'
    fi
  done
  [[ -z $conditions ]] || printf '{{- if and%s }}\n' " ${conditions# }"
  merge "$from" <<<"$changes" | parameters "${file%.yaml}"
  [[ -z $conditions ]] || printf '{{- end }}\n'
}

write() { # FOLDER
  local component file
  mkdir -p "$1/$CHART/templates"
  printf '# The output of `kubectl kustomize %s`, made by hack/chart.sh.\n' "$BASE" >"$1/deploy/install.yaml"
  kubectl kustomize "$BASE" >>"$1/deploy/install.yaml"
  kubectl kustomize "$BASE" | split "$scratch/base"
  for component in "${COMPONENTS[@]}"; do
    mkdir -p "$scratch/with"
    # Kustomize accepts only relative paths.
    printf 'resources: [%s]\ncomponents: [%s]\n' "$up/$BASE" "$up/deploy/kustomize/components/$component" \
      >"$scratch/with/kustomization.yaml"
    kubectl kustomize "$scratch/with" | split "$scratch/$component"
  done
  # Helm gets the namespace from its command line.
  rm -f "$scratch"/*/namespace-*.yaml
  for file in $(cd "$scratch" && printf '%s\n' base/*.yaml */*-*.yaml | sed 's,.*/,,' | LC_ALL=C sort -u); do
    template "$file" >"$1/$CHART/templates/$file"
  done
}

up=$(sed 's,[^/][^/]*,..,g; s,^/,,' <<<"$(cd "$scratch" && pwd -P)/with")$PWD
case ${1-} in
  '')
    rm -f "$CHART"/templates/*.yaml
    write .
    ;;
  --check)
    write "$scratch/new"
    cp "$CHART"/templates/{NOTES.txt,_checks.tpl} "$scratch/new/$CHART/templates/"
    diff -r "$scratch/new/$CHART/templates" "$CHART/templates" && diff "$scratch/new/deploy/install.yaml" deploy/install.yaml ||
      { echo 'hack/chart.sh: deploy/install.yaml or deploy/chart is not current: run hack/chart.sh' >&2; exit 1; }
    ;;
  *)
    echo 'usage: hack/chart.sh [--check]' >&2
    exit 2
    ;;
esac
