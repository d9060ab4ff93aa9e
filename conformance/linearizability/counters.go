package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Counters count what the progress line shows.
type Counters struct {
	start                                                     time.Time
	rounds, operations, unanswered, kills, terms, compactions atomic.Int64
	expired, events                                           atomic.Int64
}

func (c *Counters) count(o Operation) {
	c.operations.Add(1)
	if o.Unknown {
		c.unanswered.Add(1)
	}
	if o.Request.Compact != nil && !o.Unknown && o.Answer.Error == "" {
		c.compactions.Add(1)
	}
}

func (c *Counters) String() string {
	return fmt.Sprintf("%5.0f s  %d rounds, %d operations (%d unanswered), %d kills, %d terminations, %d compactions, %d leases expired, %d events checked",
		time.Since(c.start).Seconds(), c.rounds.Load(), c.operations.Load(), c.unanswered.Load(), c.kills.Load(),
		c.terms.Load(), c.compactions.Load(), c.expired.Load(), c.events.Load())
}

func (c *Counters) add(f *Findings) {
	c.rounds.Add(1)
	c.expired.Add(int64(f.Expired))
	c.events.Add(int64(f.Events))
}

// show prints the counters every ten seconds.
func (c *Counters) show(done <-chan struct{}) {
	ticker := time.NewTicker(10 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			fmt.Println(c)
		}
	}
}
