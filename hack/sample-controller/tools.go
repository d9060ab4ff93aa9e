//go:build tools

// Package tools pins a third-party controller that tests run in a heaven.
package tools

import _ "k8s.io/sample-controller"
