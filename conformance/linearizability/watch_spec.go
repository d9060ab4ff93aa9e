package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// reachPatience is the time that a watcher has to catch up once all clients have stopped.
const reachPatience = 30 * time.Second

// Watches starts watchers and collects what they receive.
type Watches struct {
	world    *World
	recorder *Recorder
	url      string

	mutex    sync.Mutex
	watchers []*Watcher
	stuck    []string
	running  sync.WaitGroup
	errors   chan error
}

// NewWatches returns Watches without watchers.
func NewWatches(world *World, recorder *Recorder, url string) *Watches {
	return &Watches{world: world, recorder: recorder, url: url, errors: make(chan error, 1)}
}

// spec creates a watcher with a random range and random options.
func (w *Watches) spec(rng *rand.Rand, style string) *Watcher {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	watcher := &Watcher{Name: fmt.Sprintf("%s-%d", style, len(w.watchers)), Key: keys[rng.IntN(len(keys))]}
	if rng.IntN(4) > 0 {
		span := spans[rng.IntN(len(spans))]
		if rng.IntN(3) == 0 {
			span = everything
		}
		watcher.Key, watcher.End = span[0], span[1]
	}
	watcher.Prev = rng.IntN(2) == 0
	watcher.Progress = rng.IntN(2) == 0
	watcher.Fragment = rng.IntN(2) == 0
	watcher.NoPut = rng.IntN(10) == 0
	watcher.NoDelete = rng.IntN(8) == 0
	w.watchers = append(w.watchers, watcher)
	return watcher
}

// start chooses the start of a new watcher: 0 for now, or a past, compacted or future revision.
func (w *Watches) start(rng *rand.Rand, future bool) int64 {
	compacted, now := w.world.compacted.Load(), w.world.revision.Load()
	switch n := rng.IntN(12); {
	case n < 3:
		return 0
	case n < 5 && compacted > 1:
		return 1 + rng.Int64N(compacted-1)
	case n == 5 && future:
		return now + 1 + rng.Int64N(10)
	case n == 6:
		return max(1, compacted)
	default:
		from := max(1, compacted)
		return from + rng.Int64N(max(1, now-from+1))
	}
}

// begin opens a leg.
func (w *Watches) begin(watcher *Watcher, start int64) *Leg {
	leg := &Leg{Start: start, Sent: w.recorder.Now()}
	w.mutex.Lock()
	watcher.Legs = append(watcher.Legs, leg)
	w.mutex.Unlock()
	return leg
}

// end closes a leg.
func (w *Watches) end(leg *Leg, why string) {
	if leg.End == "" {
		leg.End, leg.Ended = why, w.recorder.Now()
	}
}

// resume returns the revision from which the next leg of a watcher starts.
func resume(leg *Leg) int64 {
	for _, answer := range leg.Answers {
		if answer.Compact != 0 {
			return answer.Compact
		}
	}
	return leg.next()
}

// closing returns the last revision of the round, and whether the round has reached it.
func (w *Watches) closing() (int64, bool) {
	final := w.world.final.Load()
	return final, final != 0
}

// giveUp records a watcher that did not receive everything in time.
func (w *Watches) giveUp(watcher *Watcher) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.stuck = append(w.stuck, watcher.Name)
}

// fail records an error that prevents a watcher from running at all.
func (w *Watches) fail(err error) {
	select {
	case w.errors <- err:
	default:
	}
}

// pause sleeps, or returns early when ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
