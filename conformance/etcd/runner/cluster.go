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

// What one request of the runner itself may take.
const patience = 10 * time.Second

// A connect gives a client of a cluster, with what the options say.
type connect func(c *cluster, options []config.ClientOption) (intf.Client, error)

type cluster struct {
	t            testing.TB
	size         int // that the test asked for
	server       *server.Server
	tls          config.TLSConfig
	certificates transport.TLSInfo
	connect      connect

	own   intf.Client // of the member
	first sync.Once
}

func (c *cluster) Client(options ...config.ClientOption) (intf.Client, error) {
	return c.connect(c, options)
}

func (c *cluster) Endpoints() []string { return []string{c.server.Endpoint()} }

// Close is called by most tests; those that forget are cleaned up after.
func (c *cluster) Close() error { return c.server.Stop() }

// Members has the member that there is, and absent ones up to the size that the test asked for.
func (c *cluster) Members() []intf.Member {
	members := []intf.Member{member{c}}
	for len(members) < c.size {
		members = append(members, absent{c.t})
	}
	return members
}

// WaitLeader gives the index of the only member after it has named itself the leader.
func (c *cluster) WaitLeader(t testing.TB) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := member{c}.Client().Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if status[0].Leader == 0 || status[0].Leader != status[0].Header.MemberId {
		t.Fatalf("the only member %x takes %x for the leader", status[0].Header.MemberId, status[0].Leader)
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
	a.t.Fatal("the test uses a second member, and there is only one")
}
