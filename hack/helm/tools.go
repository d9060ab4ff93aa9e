//go:build tools

// Package helm pins the Helm that hack/helm.sh builds.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
