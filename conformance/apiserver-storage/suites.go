//go:build tools

// Package suites pins the versions of the suites and of their tests' imports.
package suites

import (
	// The suites.
	_ "k8s.io/apiserver/pkg/reconcilers"
	_ "k8s.io/apiserver/pkg/registry/generic/registry"
	_ "k8s.io/apiserver/pkg/storage/cacher"
	_ "k8s.io/apiserver/pkg/storage/etcd3"
	_ "k8s.io/apiserver/pkg/storage/feature"
	_ "k8s.io/apiserver/pkg/storage/storagebackend/factory"

	// Imports of their _test.go files only: `go mod tidy` ignores the tests of other modules.
	_ "github.com/stretchr/testify/require"
	_ "k8s.io/apimachinery/pkg/api/apitesting"
	_ "k8s.io/apiserver/pkg/apis/example2/v1"
	_ "k8s.io/client-go/features/testing"
	_ "k8s.io/component-base/featuregate/testing"
	_ "k8s.io/component-base/metrics/testutil"
	_ "k8s.io/klog/v2/ktesting"
	_ "k8s.io/utils/clock/testing"
)
