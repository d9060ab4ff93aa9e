//go:build tools

// Package suites pins the suite that run starts and what its tests import.
package suites

import (
	// The suite.
	_ "k8s.io/kubernetes/test/e2e"
)
