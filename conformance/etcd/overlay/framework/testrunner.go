// Package framework provides the runners of trishanku.invalid/conformance/etcd/runner instead of those that start etcd
// clusters.
package framework

import (
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
	"go.etcd.io/etcd/tests/v3/framework/unit"
	"trishanku.invalid/conformance/etcd/runner"
)

// The runners have upstream's names: each file of test cases uses one of them.
var (
	UnitTestRunner        intf.TestRunner = unit.NewUnitRunner()
	E2eTestRunner         intf.TestRunner = runner.WithEtcdctl()
	IntegrationTestRunner intf.TestRunner = runner.WithClient()
)
