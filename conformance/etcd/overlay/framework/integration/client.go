package integration

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	intf "go.etcd.io/etcd/tests/v3/framework/interfaces"
)

// AsClient gives a client of any server the methods that the tests call.
func AsClient(client *clientv3.Client) intf.Client { return integrationClient{Client: client} }
