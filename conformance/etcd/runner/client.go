package runner

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/framework/config"
	"go.etcd.io/etcd/tests/v3/framework/e2e"
	"go.etcd.io/etcd/tests/v3/framework/integration"
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
	"google.golang.org/grpc"
)

func withEtcdctl(c *cluster, options []config.ClientOption) (intf.Client, error) {
	cfg := e2e.ClientConfig{}
	if c.tls != config.NoTLS {
		cfg.ConnectionType = e2e.ClientTLS
		cfg.AutoTLS = c.tls == config.AutoTLS
	}
	return e2e.NewEtcdctl(cfg, c.Endpoints(), options...)
}

func withGoClient(c *cluster, options []config.ClientOption) (intf.Client, error) {
	cfg := &clientv3.Config{
		Endpoints:   c.Endpoints(),
		DialTimeout: patience,
		DialOptions: []grpc.DialOption{grpc.WithBlock()},
	}
	if c.tls != config.NoTLS {
		tls, err := c.certificates.ClientConfig()
		if err != nil {
			return nil, err
		}
		cfg.TLS = tls
	}
	for _, option := range options {
		option(cfg)
	}
	client, err := integration.NewClient(c.t, *cfg)
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { _ = client.Close() }) // it fails if the test has closed the client
	return integration.AsClient(client), nil
}
