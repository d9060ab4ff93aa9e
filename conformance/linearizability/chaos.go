package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// Chaos stops and restarts the server, in different ways at random moments.
type Chaos struct {
	rng      *rand.Rand
	process  *Process
	recorder *Recorder
	world    *World
	// pace is the maximum time between two failures.
	pace      time.Duration
	counters  *Counters
	downtimes []Downtime
}

// Run causes failures until a time. If it returns no error, the server is running.
func (c *Chaos) Run(ctx context.Context, until time.Time) error {
	for {
		wait := 100*time.Millisecond + time.Duration(c.rng.Int64N(int64(c.pace)))
		if time.Now().Add(wait).After(until) {
			pause(ctx, time.Until(until))
			return ctx.Err()
		}
		pause(ctx, wait)
		kinds := []string{"kill", "kill", "kill twice", "terminate"}
		if err := c.Fail(ctx, kinds[c.rng.IntN(len(kinds))]); err != nil {
			return err
		}
	}
}

// Fail stops the server in the given way, restarts it, and waits until it serves again.
func (c *Chaos) Fail(ctx context.Context, kind string) error {
	c.world.rush.Store(true)
	pause(ctx, time.Duration(20+c.rng.IntN(100))*time.Millisecond)
	defer c.world.rush.Store(false)
	downtime := Downtime{Kind: kind, From: c.recorder.Now()}
	var terminated error
	switch kind {
	case "kill twice":
		c.kill()
		if err := c.process.Start(); err != nil {
			return err
		}
		// The second kill is usually during recovery.
		pause(ctx, time.Duration(c.rng.IntN(120))*time.Millisecond)
		c.kill()
	case "terminate":
		c.counters.terms.Add(1)
		terminated = c.process.Terminate()
	default:
		c.kill()
	}
	if terminated != nil {
		return terminated
	}
	if err := c.process.Start(); err != nil {
		return err
	}
	if err := c.process.Serving(ctx); err != nil {
		return err
	}
	downtime.To = c.recorder.Now()
	c.downtimes = append(c.downtimes, downtime)
	return nil
}

func (c *Chaos) kill() {
	c.counters.kills.Add(1)
	c.process.Kill()
}
