#!/bin/sh
# Runs as the program of a container: writes what its pod gives it to a file in --out.
set -eu
for argument in "$@"; do
  case "$argument" in
    --init=*) echo "init=ran" > "${argument#--init=}"; exit 0 ;;
    --out=*) out="${argument#--out=}" ;;
    --config=*) config="${argument#--config=}" ;;
    --init-file=*) init="${argument#--init-file=}" ;;
  esac
done
# The configuration names a file of another volume, by the path in the pod.
secret="$(sed -n 's/^secretFile: //p' "$config")"
{
  echo "greeting=$GREETING"
  echo "secret=$(cat "$secret")"
  cat "$init"
  "$KUBECTL" --kubeconfig="$(sed -n 's/^kubeconfig: //p' "$config")" version --output=json
} > "$out/report"
touch "$out/done"
exec sleep 3600
