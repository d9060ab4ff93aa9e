// Package framework gives the tests the runners of trishanku.invalid/conformance/etcd/runner
// instead of those that start clusters of etcd.
package framework

import (
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
	"go.etcd.io/etcd/tests/v3/framework/unit"
	"trishanku.invalid/conformance/etcd/runner"
)

// The three runners have upstream's names: each file of test cases takes one of them.
var (
	UnitTestRunner        intf.TestRunner = unit.NewUnitRunner()
	E2eTestRunner         intf.TestRunner = runner.WithEtcdctl()
	IntegrationTestRunner intf.TestRunner = runner.WithClient()
)
