#!/usr/bin/env bash
# Compiles each part of the framework without the others, and all of it for the oldest and the newest Kubernetes version that
# k8s-openapi knows. The libraries name no version: programs do.
set -euo pipefail
cd "$(dirname "$0")/.."

# cargo check has no dev-dependencies, which name a version for the tests.
check() {
	K8S_OPENAPI_ENABLED_VERSION=$1 CARGO_TARGET_DIR=target/features RUSTFLAGS="-D warnings" \
		"${CARGO:-cargo}" check --quiet --locked --lib "${@:2}"
}

for part in inject crd client cache apply controller serve telemetry; do
	check 1.36 -p trishanku-framework --no-default-features --features "$part"
done
for version in 1.33 1.37; do
	check "$version" -p trishanku-framework -p trishanku-testkit -p trishanku-api
done
