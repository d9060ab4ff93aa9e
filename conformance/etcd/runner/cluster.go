package runner

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/tests/v3/framework/config"
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
	"trishanku.invalid/conformance/etcd/server"
)

// patience is the timeout of each request of the runner itself.
const patience = 10 * time.Second

// A connect returns a client of a cluster, configured with the options.
type connect func(c *cluster, options []config.ClientOption) (intf.Client, error)

type cluster struct {
	t            testing.TB
	size         int // as requested by the test
	server       *server.Server
	tls          config.TLSConfig
	certificates transport.TLSInfo
	connect      connect

	own   intf.Client // the member's client
	first sync.Once
}

func (c *cluster) Client(options ...config.ClientOption) (intf.Client, error) {
	return c.connect(c, options)
}

func (c *cluster) Endpoints() []string { return []string{c.server.Endpoint()} }

// Close is called by most tests; newCluster registers a cleanup for the others.
func (c *cluster) Close() error { return c.server.Stop() }

// Members returns the only member, and absent ones up to the size that the test asked for.
func (c *cluster) Members() []intf.Member {
	members := []intf.Member{member{c}}
	for len(members) < c.size {
		members = append(members, absent{c.t})
	}
	return members
}

// WaitLeader returns the index of the only member, after checking that it reports itself as the leader.
func (c *cluster) WaitLeader(t testing.TB) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := member{c}.Client().Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if status[0].Leader == 0 || status[0].Leader != status[0].Header.MemberId {
		t.Fatalf("the only member is %x, but reports %x as the leader", status[0].Header.MemberId, status[0].Leader)
	}
	return 0
}

type member struct{ *cluster }

func (m member) Client() intf.Client {
	m.first.Do(func() {
		client, err := m.connect(m.cluster, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		m.own = client
	})
	return m.own
}

func (m member) Start(context.Context) error { return m.server.Start() }

func (m member) Stop() {
	if err := m.server.Stop(); err != nil {
		m.t.Error(err)
	}
}

// An absent member fails the test that uses it.
type absent struct{ t testing.TB }

func (a absent) Client() intf.Client {
	a.fail()
	return nil
}

func (a absent) Start(context.Context) error {
	a.fail()
	return nil
}

func (a absent) Stop() { a.fail() }

func (a absent) fail() {
	a.t.Helper()
	a.t.Fatal("the test uses a second member, but the cluster has only one")
}
