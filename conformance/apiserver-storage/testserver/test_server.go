// Package testserver replaces k8s.io/apiserver/pkg/storage/etcd3/testserver, with the same two functions. The server is a
// process of its own, gitcd or etcd, instead of an etcd inside the test.
package testserver

import (
	"net"
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// NewTestConfig returns a configuration that tests change before they pass it to RunEtcd. It has one client URL, whose port
// the server chooses when it starts.
func NewTestConfig(t testing.TB) *embed.Config {
	t.Helper()
	client := url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", "0")}
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	return cfg
}

// RunEtcd starts a server with cfg (NewTestConfig if nil) and returns a client that records requests. Both stop at the end
// of the test, which fails if the server exited before, or does not exit cleanly.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	endpoint := start(t, cfg)

	tlsConfig, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.New(clientv3.Config{
		TLS:         tlsConfig,
		Endpoints:   []string{endpoint},
		DialTimeout: 10 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithBlock()},
		Logger:      zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)).Named("etcd-client"),
	})
	if err != nil {
		t.Fatalf("connecting to %s: %v", endpoint, err)
	}
	// An open client would keep dialing a port that may soon belong to another server.
	t.Cleanup(func() { _ = client.Close() }) // it fails if the test has closed the client
	client.KV = storagetesting.NewKVRecorder(client.KV)
	client.Kubernetes = storagetesting.NewKubernetesRecorder(client.Kubernetes)
	return client
}
