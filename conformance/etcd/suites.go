//go:build tools

// Package suites pins the version of the suite and of its tests' imports.
package suites

import (
	// The suite.
	_ "go.etcd.io/etcd/tests/v3/common"

	// Imports of its _test.go files only: `go mod tidy` ignores the tests of other modules.
	_ "go.etcd.io/etcd/server/v3/etcdserver"
	_ "go.etcd.io/etcd/server/v3/storage/mvcc/testutil"
	_ "go.etcd.io/etcd/tests/v3/framework/testutils"
	_ "go.etcd.io/etcd/tests/v3/framework/unit"
)
