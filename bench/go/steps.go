package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// randomKey returns the number of an existing key.
func (workload *workload) randomKey(random *rand.Rand) uint64 {
	return random.Uint64N(workload.Keys.Keys)
}

func (workload *workload) randomGeneration(random *rand.Rand) uint64 {
	return 1 + random.Uint64N(workload.Generations-1)
}

// put writes a random key.
func (workload *workload) put(client *kubernetes.Client, random *rand.Rand) step {
	space := &workload.Keys
	return func(ctx context.Context) (done, error) {
		number := workload.randomKey(random)
		value := space.value(number, workload.randomGeneration(random), random.Uint64())
		response, err := client.Put(ctx, space.key(number), string(value))
		if err != nil {
			return done{}, err
		}
		return done{revision: response.Header.Revision}, nil
	}
}

// create writes a new key, if it does not exist.
func (workload *workload) create(client *kubernetes.Client, random *rand.Rand, shared *turnContext) step {
	space := &workload.Keys
	return func(ctx context.Context) (done, error) {
		number := shared.nextNew.Add(1) - 1
		value := space.value(number, 1, random.Uint64())
		response, err := client.Kubernetes.OptimisticPut(ctx, space.key(number), value, 0, kubernetes.PutOptions{})
		if err != nil {
			return done{}, err
		}
		if !response.Succeeded {
			return done{}, fmt.Errorf("new key %d already exists", number)
		}
		return done{revision: response.Revision}, nil
	}
}

// update reads a random key, and writes it if it is unchanged. Otherwise it retries with what the transaction has read.
func (workload *workload) update(client *kubernetes.Client, random *rand.Rand) step {
	space, options := &workload.Keys, kubernetes.PutOptions{GetOnFailure: true}
	return func(ctx context.Context) (done, error) {
		number := workload.randomKey(random)
		key := space.key(number)
		found, err := client.Kubernetes.Get(ctx, key, kubernetes.GetOptions{})
		if err != nil {
			return done{}, err
		}
		if found.KV == nil {
			return done{}, fmt.Errorf("key %s is missing", key)
		}
		current, conflicts := found.KV, uint64(0)
		for {
			value := space.value(number, uint64(current.Version)+1, random.Uint64())
			response, err := client.Kubernetes.OptimisticPut(ctx, key, value, current.ModRevision, options)
			if err != nil {
				return done{}, err
			}
			if response.Succeeded {
				if response.Revision <= current.ModRevision {
					return done{}, fmt.Errorf("an update of revision %d has revision %d", current.ModRevision, response.Revision)
				}
				return done{revision: response.Revision, conflicts: conflicts}, nil
			}
			conflicts++
			if response.KV == nil || response.KV.ModRevision <= current.ModRevision {
				return done{}, fmt.Errorf("an update of the current revision %d of %s was refused", current.ModRevision, key)
			}
			current = response.KV
		}
	}
}

// get reads a random key.
func (workload *workload) get(client *kubernetes.Client, random *rand.Rand) step {
	space := &workload.Keys
	return func(ctx context.Context) (done, error) {
		key := space.key(workload.randomKey(random))
		response, err := client.Kubernetes.Get(ctx, key, kubernetes.GetOptions{})
		if err != nil {
			return done{}, err
		}
		if response.KV == nil || string(response.KV.Key) != key {
			return done{}, fmt.Errorf("a get of %s did not find it", key)
		}
		return done{revision: response.Revision}, nil
	}
}

// pages lists all keys page after page, each after the last key of the previous one, all at the revision of the first.
func (workload *workload) pages(client *kubernetes.Client) step {
	space, limit, total := &workload.Keys, workload.Load.Limit, int64(workload.Keys.Keys)
	options, left := kubernetes.ListOptions{Limit: limit}, total
	return func(ctx context.Context) (done, error) {
		page, err := client.Kubernetes.List(ctx, space.Prefix, options)
		if err != nil {
			return done{}, err
		}
		if page.Count != left || int64(len(page.Kvs)) != min(left, limit) {
			return done{}, fmt.Errorf("with %d keys left, a page has %d keys and count %d", left, len(page.Kvs), page.Count)
		}
		if err := space.inOrder(page.Kvs); err != nil {
			return done{}, err
		}
		left -= int64(len(page.Kvs))
		if left == 0 {
			options, left = kubernetes.ListOptions{Limit: limit}, total
			return done{revision: page.Revision}, nil
		}
		options.Continue = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		if options.Revision == 0 {
			options.Revision = page.Revision
		}
		return done{revision: page.Revision}, nil
	}
}

// list lists all keys in one response.
func (workload *workload) list(client *kubernetes.Client) step {
	space := &workload.Keys
	return func(ctx context.Context) (done, error) {
		all, err := client.Kubernetes.List(ctx, space.Prefix, kubernetes.ListOptions{})
		if err != nil {
			return done{}, err
		}
		if uint64(len(all.Kvs)) != space.Keys {
			return done{}, fmt.Errorf("the list has %d keys instead of %d", len(all.Kvs), space.Keys)
		}
		return done{revision: all.Revision}, space.inOrder(all.Kvs)
	}
}

// inOrder checks the first and the last keys of a list: checking all of them would cost the client as much as a part of the list.
func (space *keySpace) inOrder(kvs []*mvccpb.KeyValue) error {
	first, last := kvs[0], kvs[len(kvs)-1]
	if !bytes.HasPrefix(first.Key, []byte(space.Prefix)) || string(last.Key) >= space.End || bytes.Compare(first.Key, last.Key) > 0 {
		return fmt.Errorf("a list of %s has %s as its first and %s as its last key", space.Prefix, first.Key, last.Key)
	}
	return nil
}
