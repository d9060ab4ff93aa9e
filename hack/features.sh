#!/usr/bin/env bash
# Compiles each Cargo feature of the framework without the others, and the libraries for the oldest and the newest version of
# Kubernetes that k8s-openapi knows. The libraries select no version: programs do.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/features" RUSTFLAGS="${RUSTFLAGS:-} -D warnings"

# `cargo check` ignores dev-dependencies, which select a version for the tests.
check() {
	printf 'Kubernetes %s: %s\n' "$1" "${*:2}"
	K8S_OPENAPI_ENABLED_VERSION=$1 "${CARGO:-cargo}" check --quiet --locked --lib "${@:2}"
}

framework=(-p trishanku-framework --no-default-features)
check 1.36 "${framework[@]}"
for feature in inject crd client cache apply controller serve telemetry controller,telemetry webhook program; do
	check 1.36 "${framework[@]}" --features "$feature"
done
libraries=()
for name in framework testkit api heaven-plan branch-status lint; do
	libraries+=(-p "trishanku-$name")
done
for version in 1.33 1.37; do
	check "$version" "${libraries[@]}"
done
# As docs.rs builds it: without the variable.
"${CARGO:-cargo}" check --quiet --locked --lib -p trishanku-framework --all-features --features k8s-openapi/v1_36
