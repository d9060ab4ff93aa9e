// The Go client of gitcd-bench. It puts the same workloads on a server as the Rust client, with the library that kube-apiserver
// uses: etcd's clientv3 and its package kubernetes, with their default settings.
//
// gitcd-bench starts it with --endpoint, --parameters (the definition of the workload, as JSON), --seed, --connections and
// --threads, and keeps it running for all turns of a workload, as users keep their clients. Each line on standard input is a
// turn, such as {"nanoseconds":1250000000,"next_new":0,"mark":100000,"every":50000}; its result is a line on standard output.
// The types of both are in messages.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// kube-apiserver's settings of its connections to etcd.
const (
	dialTimeout      = 20 * time.Second
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

type flags struct {
	endpoint    string
	parameters  string
	seed        uint64
	connections int
	threads     int
}

func main() {
	var given flags
	flag.StringVar(&given.endpoint, "endpoint", "", "URL of the server")
	flag.StringVar(&given.parameters, "parameters", "", "definition of the workload, as JSON")
	flag.Uint64Var(&given.seed, "seed", 1, "seed of the random keys and values")
	flag.IntVar(&given.connections, "connections", 8, "HTTP/2 connections, shared by all clients")
	flag.IntVar(&given.threads, "threads", 2, "threads that run Go code at the same time (GOMAXPROCS)")
	flag.Parse()
	if err := run(given); err != nil {
		fail(err)
	}
}

func run(given flags) error {
	if given.endpoint == "" || given.connections < 1 || given.threads < 1 || flag.NArg() > 0 {
		return errors.New("requires --endpoint and --parameters; --connections and --threads are at least 1: " +
			"gitcd-bench --client go starts this program with all of them")
	}
	workload, err := parse(given.parameters)
	if err != nil {
		return fmt.Errorf("--parameters: %w", err)
	}
	runtime.GOMAXPROCS(given.threads)
	clients, err := connect(given.endpoint, given.connections)
	if err != nil {
		return err
	}
	turns := bufio.NewScanner(os.Stdin)
	for number := uint64(0); turns.Scan(); number++ {
		var turn turn
		if err := json.Unmarshal(turns.Bytes(), &turn); err != nil {
			return fmt.Errorf("turn %d on standard input: %w", number, err)
		}
		result, err := workload.run(clients, newContext(turn, given.seed+number))
		if err != nil {
			return err
		}
		send(message{Done: result})
	}
	return turns.Err()
}

// connect opens all connections, so that no turn has to.
func connect(endpoint string, connections int) ([]*kubernetes.Client, error) {
	clients := make([]*kubernetes.Client, connections)
	for number := range clients {
		client, err := kubernetes.New(clientv3.Config{
			Endpoints:            []string{endpoint},
			DialTimeout:          dialTimeout,
			DialKeepAliveTime:    keepAliveTime,
			DialKeepAliveTimeout: keepAliveTimeout,
		})
		if err != nil {
			return nil, fmt.Errorf("cannot create a client of %s: %w", endpoint, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		_, err = client.KV.Get(ctx, "/", clientv3.WithLimit(1))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("cannot connect to %s: %w", endpoint, err)
		}
		clients[number] = client
	}
	return clients, nil
}
