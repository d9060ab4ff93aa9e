package integration

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
)

// AsClient adapts a client of any server to the interface of the tests.
func AsClient(client *clientv3.Client) intf.Client { return integrationClient{Client: client} }
