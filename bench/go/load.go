package main

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
)

// done is a finished operation.
type done struct {
	// The server's revision in the response.
	revision int64
	// Retries after conflicts with other clients.
	conflicts uint64
}

// step performs one operation of a client and checks its response.
type step func(ctx context.Context) (done, error)

// turnContext is what the clients of a turn share.
type turnContext struct {
	length  time.Duration
	seed    uint64
	nextNew atomic.Uint64
	mark    atomic.Int64
	every   int64
}

func newContext(turn turn, seed uint64) *turnContext {
	shared := &turnContext{length: time.Duration(turn.Nanoseconds), seed: seed, every: turn.Every}
	shared.nextNew.Store(turn.NextNew)
	shared.mark.Store(turn.Mark)
	return shared
}

func (shared *turnContext) random(client int) *rand.Rand {
	return rand.New(rand.NewPCG(shared.seed, uint64(client)))
}

// observe reports that the server has reached the mark at which gitcd-bench compacts it.
func (shared *turnContext) observe(revision int64) {
	mark := shared.mark.Load()
	if revision >= mark && shared.mark.CompareAndSwap(mark, mark+shared.every) {
		send(message{Reached: revision})
	}
}

// run puts the server under load for a turn.
func (workload *workload) run(connections []*kubernetes.Client, shared *turnContext) (*result, error) {
	if workload.Load.Kind == "watch" {
		return workload.watch(connections, shared)
	}
	steps := make([]step, workload.Clients)
	for client := range steps {
		step, err := workload.step(connections[client%len(connections)], shared, client)
		if err != nil {
			return nil, err
		}
		steps[client] = step
	}
	total, err := closedLoop(steps, make([]tally, len(steps)), shared, time.Now())
	if err != nil {
		return nil, err
	}
	return total.result(shared), nil
}

// closedLoop runs all steps concurrently until the turn's length has passed since start: every client sends its next operation
// after the response to the last one. Operations in flight are finished. Fills a tally for each client, and returns their sum
// or the first error.
func closedLoop(steps []step, tallies []tally, shared *turnContext, start time.Time) (*tally, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var clients sync.WaitGroup
	for client, step := range steps {
		clients.Go(func() {
			if err := tallies[client].loop(ctx, step, shared, start); err != nil {
				cancel(err)
			}
		})
	}
	clients.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	total := &tallies[0]
	for client := range tallies[1:] {
		total.add(&tallies[1+client])
	}
	return total, nil
}

// tally is the result of one client, or of all.
type tally struct {
	operations uint64
	conflicts  uint64
	elapsed    time.Duration
	latency    histogram
}

func (tally *tally) loop(ctx context.Context, step step, shared *turnContext, start time.Time) error {
	for sent := time.Now(); sent.Sub(start) < shared.length; sent = time.Now() {
		done, err := step(ctx)
		if err != nil {
			return err
		}
		answered := time.Now()
		tally.elapsed = answered.Sub(start)
		tally.latency.record(answered.Sub(sent))
		tally.operations++
		tally.conflicts += done.conflicts
		shared.observe(done.revision)
	}
	return nil
}

// add adds the result of a concurrent client.
func (tally *tally) add(other *tally) {
	tally.operations += other.operations
	tally.conflicts += other.conflicts
	tally.elapsed = max(tally.elapsed, other.elapsed)
	for slot, count := range other.latency {
		tally.latency[slot] += count
	}
}

func (tally *tally) result(shared *turnContext) *result {
	return &result{
		Operations:  tally.operations,
		Conflicts:   tally.conflicts,
		Nanoseconds: tally.elapsed.Nanoseconds(),
		NextNew:     shared.nextNew.Load(),
		Latency:     tally.latency.counts(),
	}
}

// A histogram counts times by their 11 most significant bits, up to 137 s.
type histogram [slots]uint32

const (
	significantBits = 11
	half            = 1 << (significantBits - 1)
	longest         = 1<<37 - 1
	slots           = (37 - significantBits + 2) * half
)

func (histogram *histogram) record(took time.Duration) {
	nanoseconds := uint64(min(max(took.Nanoseconds(), 0), longest))
	histogram[slotOf(nanoseconds)]++
}

// slotOf returns the slot of a time. Times of up to 11 bits have a slot each. Above, each doubling has half as many slots as that.
func slotOf(nanoseconds uint64) uint64 {
	shift := uint64(max(bits.Len64(nanoseconds)-significantBits, 0))
	return shift*half + nanoseconds>>shift
}

// middleOf returns the time in the middle of a slot.
func middleOf(slot uint64) uint64 {
	if slot < 2*half {
		return slot
	}
	shift := slot/half - 1
	return (slot-shift*half)<<shift + 1<<shift/2
}

// counts returns all times with their counts.
func (histogram *histogram) counts() [][2]uint64 {
	counts := [][2]uint64{}
	for slot, count := range histogram {
		if count > 0 {
			counts = append(counts, [2]uint64{middleOf(uint64(slot)), uint64(count)})
		}
	}
	return counts
}

// step returns the operation that the client with this number repeats.
func (workload *workload) step(client *kubernetes.Client, shared *turnContext, number int) (step, error) {
	random := shared.random(number)
	switch workload.Load.Kind {
	case "put":
		return workload.put(client, random), nil
	case "create":
		return workload.create(client, random, shared), nil
	case "update":
		return workload.update(client, random), nil
	case "get":
		return workload.get(client, random), nil
	case "pages":
		return workload.pages(client), nil
	case "list":
		return workload.list(client), nil
	}
	return nil, fmt.Errorf("unknown load %q: build this program from the same source as gitcd-bench", workload.Load.Kind)
}
