package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// watch runs writers, and watchers that receive every write.
func (workload *workload) watch(connections []*kubernetes.Client, shared *turnContext) (*result, error) {
	found, err := connections[0].KV.Get(context.Background(), "/", clientv3.WithLimit(1))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	watchers, err := workload.open(ctx, connections, found.Header.Revision+1)
	defer closeAll(cancel, watchers)
	if err != nil {
		return nil, err
	}
	tallies, flow := make([]tally, workload.Clients), newFlow(workload.Load)
	start := time.Now()
	written := make(chan struct{})
	var expected uint64
	var readers sync.WaitGroup
	for _, watcher := range watchers {
		readers.Go(func() {
			// Writers would wait forever for a watcher that has stopped reading. If a put has failed, that is the error to report.
			if err := watcher.read(start, flow, written, &expected); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	}
	steps := make([]step, workload.Clients)
	for number := range steps {
		// The streams' connections come first.
		client := connections[(workload.Load.Streams+number)%len(connections)]
		steps[number] = workload.stamped(client, shared, number, start, flow)
	}
	puts, err := closedLoop(steps, tallies, shared, start)
	if err != nil {
		return nil, err
	}
	expected = puts.operations
	close(written)
	limit := time.AfterFunc(time.Duration(workload.Load.CatchUpSeconds)*time.Second, func() {
		fail(fmt.Errorf("%d events have not reached all watchers", puts.operations))
	})
	readers.Wait()
	limit.Stop()
	total := new(tally)
	for _, watcher := range watchers {
		total.add(&watcher.tally)
	}
	return total.result(shared), nil
}

// watcher is one of the watchers of a stream.
type watcher struct {
	space     *keySpace
	number    int
	stream    int
	prevKV    bool
	responses clientv3.WatchChan
	// Revision of the last event.
	revision int64
	tally    tally
}

// open creates all watchers as kube-apiserver does. Those of a stream have one client and one context, so they share the stream.
func (workload *workload) open(ctx context.Context, connections []*kubernetes.Client, from int64) ([]*watcher, error) {
	load, space := workload.Load, &workload.Keys
	options := []clientv3.OpOption{
		clientv3.WithRange(space.End), clientv3.WithRev(from), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify(),
	}
	if load.PrevKV {
		options = append(options, clientv3.WithPrevKV())
	}
	watchers := make([]*watcher, load.Streams*load.WatchersPerStream)
	for number := range watchers {
		stream := number / load.WatchersPerStream
		responses := connections[stream%len(connections)].Watch(ctx, space.Prefix, options...)
		watchers[number] = &watcher{
			space: space, number: number, stream: stream, prevKV: load.PrevKV, responses: responses, revision: from - 1,
		}
	}
	for _, watcher := range watchers {
		if created, ok := <-watcher.responses; !ok || !created.Created || created.Err() != nil {
			return watchers, fmt.Errorf("watcher %d was not created: %v", watcher.number, created.Err())
		}
	}
	return watchers, nil
}

// closeAll ends all streams and waits for that, so that the next turn has new ones.
func closeAll(cancel context.CancelFunc, watchers []*watcher) {
	cancel()
	for _, watcher := range watchers {
		for range watcher.responses {
		}
	}
}

// read reads until the watcher has received one event for every put; their number is in expected once written is closed.
func (watcher *watcher) read(start time.Time, flow *flow, written <-chan struct{}, expected *uint64) error {
	total, known := uint64(0), false
	for !known || watcher.tally.operations != total {
		if known && watcher.tally.operations > total {
			return fmt.Errorf("watcher %d received %d events for %d puts", watcher.number, watcher.tally.operations, total)
		}
		select {
		case <-written:
			total, known, written = *expected, true, nil
		case response, ok := <-watcher.responses:
			if !ok || response.Err() != nil {
				return fmt.Errorf("watcher %d was canceled: %v", watcher.number, response.Err())
			}
			if err := watcher.receive(response.Events, time.Since(start)); err != nil {
				return err
			}
			flow.received(watcher.stream, uint64(len(response.Events)))
		}
	}
	return nil
}

func (watcher *watcher) receive(events []*clientv3.Event, now time.Duration) error {
	for _, event := range events {
		// Every put has a revision of its own, so revisions must increase.
		if event.Kv.ModRevision <= watcher.revision {
			return fmt.Errorf("watcher %d got revision %d after %d", watcher.number, event.Kv.ModRevision, watcher.revision)
		}
		if event.Type != mvccpb.PUT || (event.PrevKv != nil) != watcher.prevKV {
			return fmt.Errorf("watcher %d got an event of type %s with the previous value %v", watcher.number, event.Type, event.PrevKv)
		}
		stamp, err := watcher.space.stampOf(event.Kv.Value)
		if err != nil {
			return fmt.Errorf("watcher %d got an unknown value: %w", watcher.number, err)
		}
		watcher.revision = event.Kv.ModRevision
		watcher.tally.latency.record(now - time.Duration(stamp))
		watcher.tally.operations++
		watcher.tally.elapsed = now
	}
	return nil
}

// stamped writes random keys; the stamp of a value is the time since start.
func (workload *workload) stamped(
	client *kubernetes.Client, shared *turnContext, number int, start time.Time, flow *flow,
) step {
	space, random := &workload.Keys, shared.random(number)
	return func(ctx context.Context) (done, error) {
		flow.wait()
		key := workload.randomKey(random)
		generation := workload.randomGeneration(random)
		value := space.value(key, generation, uint64(time.Since(start).Nanoseconds()))
		response, err := client.Put(ctx, space.key(key), string(value))
		if err != nil {
			return done{}, err
		}
		return done{revision: response.Header.Revision}, nil
	}
}

// flow blocks writers while watchers are behind.
type flow struct {
	mutex sync.Mutex
	room  sync.Cond
	// Events that each stream has received, and those that every watcher of the slowest stream has received, on average.
	streams []uint64
	done    uint64
	// Puts that were started.
	started uint64
	window  uint64
	each    uint64
}

func newFlow(load load) *flow {
	flow := &flow{streams: make([]uint64, load.Streams), window: load.Window, each: uint64(load.WatchersPerStream)}
	flow.room.L = &flow.mutex
	return flow
}

// wait waits until another put may start.
func (flow *flow) wait() {
	flow.mutex.Lock()
	defer flow.mutex.Unlock()
	for flow.started-flow.done >= flow.window {
		flow.room.Wait()
	}
	flow.started++
}

func (flow *flow) received(stream int, events uint64) {
	flow.mutex.Lock()
	defer flow.mutex.Unlock()
	flow.streams[stream] += events
	slowest := flow.streams[0]
	for _, events := range flow.streams[1:] {
		slowest = min(slowest, events)
	}
	if done := slowest / flow.each; done > flow.done {
		flow.done = done
		flow.room.Broadcast()
	}
}
