package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Round runs clients, watchers and failures on one store, until all watchers have seen the last revision.
type Round struct {
	seed     int64
	rng      *rand.Rand
	process  *Process
	recorder *Recorder
	world    *World
	watches  *Watches
	chaos    *Chaos
	clients  []*clientv3.Client
	counters *Counters
	history  *History
}

// RunRound runs one round in a folder of its own and returns its history. An error means that the round itself failed, for
// instance because the server did not start: other faults of the server show in the history.
func RunRound(ctx context.Context, program Program, seed int64, counters *Counters) (history *History, err error) {
	folder, err := os.MkdirTemp("", "linearizability-")
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	process, err := NewProcess(program, folder, rng)
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	everyone, cancel := context.WithCancel(ctx)
	recorder, world := NewRecorder(), NewWorld()
	r := &Round{
		seed: seed, rng: rng, process: process, recorder: recorder, world: world, counters: counters,
		watches: NewWatches(world, recorder, process.URL()),
		chaos: &Chaos{
			rng: rand.New(rand.NewPCG(uint64(seed), 1)), process: process, recorder: recorder, world: world, counters: counters,
		},
		history: &History{Seed: seed, Program: program.Kind},
	}
	defer func() {
		cancel()
		r.watches.running.Wait()
		for _, client := range r.clients {
			_ = client.Close() // the connection is no longer needed
		}
		process.Kill()
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w (the store is kept in %s)", err, folder)
			return
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}()
	if err := process.Serving(everyone); err != nil {
		return nil, err
	}
	if err := r.run(everyone); err != nil {
		return nil, err
	}
	return r.history, nil
}

func (r *Round) run(ctx context.Context) error {
	r.history.Reference = r.watches.Reference(ctx)
	if err := r.load(ctx); err != nil {
		return err
	}
	last, err := r.client(99)
	if err != nil {
		return err
	}
	r.awaitLeases(ctx, last)
	if err := r.chaos.Fail(ctx, []string{"kill", "terminate"}[r.rng.IntN(2)]); err != nil {
		return err
	}
	if err := r.readAll(ctx, last); err != nil {
		return err
	}
	r.watches.running.Wait()
	select {
	case err := <-r.watches.errors:
		return err
	default:
	}
	r.history.Final = r.watches.Again(ctx, max(1, r.world.compacted.Load()))
	r.watches.running.Wait()
	r.history.Operations = r.recorder.Operations()
	r.history.Watchers, r.history.Stuck = r.watches.watchers, r.watches.stuck
	r.history.Downtimes = r.chaos.downtimes
	return ctx.Err()
}

// client returns a client with a connection of its own.
func (r *Round) client(id int) (*Client, error) {
	etcd, err := connect(r.process.URL())
	if err != nil {
		return nil, err
	}
	r.clients = append(r.clients, etcd)
	return &Client{id: id, etcd: etcd, recorder: r.recorder}, nil
}

// load runs clients, watchers and failures together for some seconds.
func (r *Round) load(ctx context.Context) error {
	until := time.Now().Add(time.Duration(5000+r.rng.IntN(6000)) * time.Millisecond)
	// In rounds with few failures, leases have time to expire.
	r.chaos.pace = []time.Duration{2400 * time.Millisecond, 2400 * time.Millisecond, 8 * time.Second}[r.rng.IntN(3)]
	large, clients := r.rng.IntN(3) == 0, 3+r.rng.IntN(5)
	// The machine is shared: all clients together send about 400 requests a second.
	think := time.Duration(clients) * 2500 * time.Microsecond
	var working sync.WaitGroup
	for i := range clients {
		client, err := r.client(i)
		if err != nil {
			return err
		}
		generator := &Generator{rng: rand.New(rand.NewPCG(uint64(r.seed), uint64(100+i))), world: r.world, client: i, large: large}
		working.Go(func() { r.work(ctx, client, generator, until, think) })
	}
	working.Go(func() { r.startWatchers(ctx, until) })
	err := r.chaos.Run(ctx, until)
	working.Wait()
	return err
}

func (r *Round) work(ctx context.Context, client *Client, g *Generator, until time.Time, think time.Duration) {
	for ctx.Err() == nil && time.Now().Before(until) {
		operation := client.Do(ctx, g.Next())
		r.world.Learn(operation)
		r.counters.count(operation)
		if wait := time.Duration(g.rng.ExpFloat64() * float64(think)); !r.world.rush.Load() {
			pause(ctx, wait)
		}
	}
}

// startWatchers starts some watchers at once and some later, when there is a history to watch from.
func (r *Round) startWatchers(ctx context.Context, until time.Time) {
	rng := rand.New(rand.NewPCG(uint64(r.seed), 2))
	styles := []rawStyle{{watchers: 1, manual: true}, {watchers: 3}, {watchers: 1, slow: true}, {watchers: 2, manual: true, slow: true}}
	for i, style := range styles {
		if i > 0 {
			pause(ctx, time.Duration(rng.IntN(1000))*time.Millisecond)
		}
		r.watches.Raw(ctx, style, rng.Uint64())
	}
	etcd, err := connect(r.process.URL())
	if err != nil {
		r.watches.fail(err)
		return
	}
	r.watches.Clients(ctx, etcd, 3, rng.Uint64())
	go func() {
		<-ctx.Done()
		_ = etcd.Close()
	}()
}

// awaitLeases waits until no key has a lease any more. Keys that still have one after a timeout are recorded as leftover.
func (r *Round) awaitLeases(ctx context.Context, client *Client) {
	const patience = 15 * time.Second
	for began := time.Now(); ctx.Err() == nil; {
		operation := client.Do(ctx, Request{Range: &Range{Key: everything[0], End: everything[1]}})
		r.world.Learn(operation)
		var leased []Pair
		for _, pair := range operation.Answer.Pairs {
			if pair.Lease != 0 {
				leased = append(leased, pair)
			}
		}
		if !operation.Unknown && len(leased) == 0 {
			return
		}
		if time.Since(began) > patience {
			r.history.Leftover = leased
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// readAll reads everything once more after the last restart, at the current and at old revisions, and announces the last
// revision to the watchers.
func (r *Round) readAll(ctx context.Context, client *Client) error {
	final := client.Do(ctx, Request{Range: &Range{Key: everything[0], End: everything[1]}})
	if final.Unknown {
		return fmt.Errorf("the last read failed: %s", final.Failure)
	}
	for range 20 {
		from := max(1, r.world.compacted.Load()-1)
		revision := from + r.rng.Int64N(max(1, final.Answer.Revision-from))
		client.Do(ctx, Request{Range: &Range{Key: everything[0], End: everything[1], Revision: revision}})
	}
	r.world.final.Store(final.Answer.Revision)
	return nil
}
