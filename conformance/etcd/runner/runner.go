// Package runner replaces the runners of etcd's tests. Its clusters have one member, a process of its own, whatever size
// a test asks for; a test that uses a second member fails.
package runner

import (
	"cmp"
	"context"
	"os"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/testutil"
	"go.etcd.io/etcd/tests/v3/framework/config"
	"go.etcd.io/etcd/tests/v3/framework/e2e"
	"go.etcd.io/etcd/tests/v3/framework/integration"
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
	"trishanku.invalid/conformance/etcd/server"
)

// WithEtcdctl returns a runner whose client is etcdctl, from the folder that the flag -bin-dir names.
func WithEtcdctl() intf.TestRunner { return etcdctl{} }

// WithClient returns a runner whose client is etcd's Go client.
func WithClient() intf.TestRunner { return goClient{} }

type etcdctl struct{}

func (etcdctl) TestMain(m *testing.M) {
	e2e.InitFlags()
	status := m.Run()
	if status == 0 && testutil.CheckLeakedGoroutine() {
		status = 1
	}
	os.Exit(status)
}

func (etcdctl) BeforeTest(t testing.TB) { e2e.BeforeTest(t) }

func (etcdctl) NewCluster(_ context.Context, t testing.TB, options ...config.ClusterOption) intf.Cluster {
	return newCluster(t, config.NewClusterConfig(options...), withEtcdctl)
}

type goClient struct{}

func (goClient) TestMain(m *testing.M) { testutil.MustTestMainWithLeakDetection(m) }

func (goClient) BeforeTest(t testing.TB) { integration.BeforeTest(t) }

func (goClient) NewCluster(_ context.Context, t testing.TB, options ...config.ClusterOption) intf.Cluster {
	return newCluster(t, config.NewClusterConfig(options...), withGoClient)
}

func newCluster(t testing.TB, cfg config.ClusterConfig, connect connect) intf.Cluster {
	t.Helper()
	if cfg.PeerTLS != config.NoTLS {
		t.Fatal("the test needs peer certificates, which a single member does not have")
	}
	program, err := server.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := certificatesFor(t, cfg.ClientTLS)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(program, t.TempDir(), server.Options{
		QuotaBytes: cfg.QuotaBackendBytes,
		Cert:       certificates.CertFile,
		Key:        certificates.KeyFile,
		Authority:  certificates.TrustedCAFile,
		// Type of the tokens of users, which gitcd does not support.
		EtcdArguments: []string{"--auth-token=" + cmp.Or(cfg.AuthToken, "simple")},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, size: cfg.ClusterSize, server: s, tls: cfg.ClientTLS, certificates: certificates, connect: connect}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.LastWords())
		}
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}
