package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// A clientWatch watches with etcd's own client, which resumes watches when the connection breaks.
type clientWatch struct {
	*Watches
	etcd    *clientv3.Client
	rng     *rand.Rand
	watcher *Watcher
	leg     *Leg
	manual  bool // requests progress from time to time
	shared  bool // shares a stream with others
	slow    bool
	streams int
}

// Clients starts count watchers that share one etcd client.
func (w *Watches) Clients(ctx context.Context, etcd *clientv3.Client, count int, seed uint64) {
	for i := range count {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		c := &clientWatch{Watches: w, etcd: etcd, rng: rng, slow: rng.IntN(4) == 0, shared: rng.IntN(2) == 0}
		c.manual = !c.shared && rng.IntN(2) == 0
		w.running.Go(func() { c.run(ctx) })
	}
}

func (c *clientWatch) run(ctx context.Context) {
	c.renew()
	start := c.begins()
	for ctx.Err() == nil {
		final, closing := c.closing()
		if closing && c.leg != nil && (start > final || c.leg.End == endRound) {
			return
		}
		c.leg = c.begin(c.watcher, start)
		c.end(c.leg, c.follow(ctx))
		start = resume(c.leg)
		if _, closing := c.closing(); !closing && c.rng.IntN(6) == 0 {
			c.renew()
			start = c.begins()
		}
	}
}

func (c *clientWatch) renew() { c.watcher = c.spec(c.rng, "client") }

// begins returns an explicit start: the client may resume a watch "from now on" from the revision of its creation.
func (c *clientWatch) begins() int64 {
	if start := c.start(c.rng, false); start != 0 {
		return start
	}
	return c.world.revision.Load() + 1
}

// follow watches until the leg ends, and returns the reason. At the end of the round it requests progress until it has
// everything, on a stream of its own.
func (c *clientWatch) follow(ctx context.Context) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, closing := c.closing(); closing || !c.shared {
		c.streams++ // etcd's client opens a stream for each set of metadata
		ctx = metadata.AppendToOutgoingContext(ctx, "stream", fmt.Sprintf("%s-%d", c.watcher.Name, c.streams))
	}
	began := time.Now()
	_, beganClosing := c.closing()
	channel := c.etcd.Watch(ctx, c.watcher.Key, c.options()...)
	until, nextProgress := began.Add(500*time.Millisecond+c.some(5000)), began.Add(c.some(300))
	var cancelled string
	ticker := time.NewTicker(30 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case response, open := <-channel:
			if !open {
				return c.why(cancelled)
			}
			c.take(ctx, response)
			continue
		case <-ticker.C:
		}
		final, closing := c.closing()
		switch {
		case cancelled != "":
		case closing && c.leg.next() > final:
			cancelled = endRound
		case closing && beganClosing && time.Since(began) > reachPatience:
			c.giveUp(c.watcher)
			cancelled = endRound
		case closing && !beganClosing, !closing && time.Now().After(until):
			cancelled = endCancelled
		case (closing || c.manual) && time.Now().After(nextProgress):
			// An error means that the stream is broken, which the watch reports, too.
			_ = c.etcd.RequestProgress(ctx)
			nextProgress = time.Now().Add(50*time.Millisecond + c.some(500))
		}
		if cancelled != "" {
			cancel()
		}
	}
}

func (c *clientWatch) some(milliseconds int) time.Duration {
	return time.Duration(c.rng.IntN(milliseconds)) * time.Millisecond
}

// why returns the reason why a leg ended: our cancellation, unless the server was first.
func (c *clientWatch) why(cancelled string) string {
	if n := len(c.leg.Answers); n > 0 && c.leg.Answers[n-1].Compact != 0 {
		return endRefused
	}
	if cancelled == "" {
		return endBroken
	}
	return cancelled
}

func (c *clientWatch) options() []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithRev(c.leg.Start)}
	for _, option := range []struct {
		wanted bool
		option clientv3.OpOption
	}{
		{c.watcher.End != "", clientv3.WithRange(c.watcher.End)},
		{c.watcher.Prev, clientv3.WithPrevKV()},
		{c.watcher.Progress, clientv3.WithProgressNotify()},
		{c.watcher.Fragment, clientv3.WithFragment()},
		{c.watcher.NoPut, clientv3.WithFilterPut()},
		{c.watcher.NoDelete, clientv3.WithFilterDelete()},
	} {
		if option.wanted {
			options = append(options, option.option)
		}
	}
	return options
}

func (c *clientWatch) take(ctx context.Context, response clientv3.WatchResponse) {
	answer := &WatchAnswer{
		At: c.recorder.Now(), Revision: response.Header.Revision, Created: response.Created,
		Canceled: response.Canceled, Compact: response.CompactRevision, Server: serverOf(&response.Header),
	}
	if err := response.Err(); err != nil {
		answer.Reason = err.Error()
	}
	for _, event := range response.Events {
		answer.Events = append(answer.Events, eventOf((*mvccpb.Event)(event)))
	}
	c.leg.Answers = append(c.leg.Answers, answer)
	if _, closing := c.closing(); !closing && c.slow && c.rng.IntN(20) == 0 {
		pause(ctx, time.Duration(c.rng.IntN(1000))*time.Millisecond)
	}
}
