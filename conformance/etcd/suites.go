//go:build tools

// Package suites pins the suite that run starts and what its tests import.
package suites

import (
	// The suite.
	_ "go.etcd.io/etcd/tests/v3/common"

	// Imports of its _test.go files that nothing else imports: `go mod tidy`
	// does not look into the tests of other modules.
	_ "go.etcd.io/etcd/server/v3/etcdserver"
	_ "go.etcd.io/etcd/server/v3/storage/mvcc/testutil"
	_ "go.etcd.io/etcd/tests/v3/framework/testutils"
	_ "go.etcd.io/etcd/tests/v3/framework/unit"
)
