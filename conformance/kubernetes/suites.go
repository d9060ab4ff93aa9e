//go:build tools

// Package suites pins the version of the suite.
package suites

import (
	// The suite.
	_ "k8s.io/kubernetes/test/e2e"
)
