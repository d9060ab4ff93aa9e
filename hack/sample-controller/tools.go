//go:build tools

// Package tools pins a controller that is not ours: tests give it a heaven.
package tools

import _ "k8s.io/sample-controller"
