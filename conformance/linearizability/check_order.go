package main

import "time"

// afterDowntime is how long after a downtime requests may still fail: clients notice broken connections late, and
// reconnect.
const afterDowntime = int64(2 * time.Second)

// checkOrder checks that revisions and terms never go back, and that cluster and member ids never change, across all
// clients, watchers and failures.
func checkOrder(p *Plan, f *Findings) {
	watched := highest(watchSightings(p.history))
	var terms []sighting
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		if o.Server != nil {
			terms = append(terms, sighting{o.Return, int64(o.Server.Term)})
		}
	}
	terms = highest(terms)
	var first *Server
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		if o.Unknown || o.Answer.Error != "" {
			continue
		}
		move := &Move{Operation: o, Request: o.Request}
		f.checked(claimMonotonic, 1)
		if seen := p.timeline.Certain(o.Call); o.Answer.Revision < seen {
			f.violated(p.lostOrLate(o), "%s was answered with revision %d after an answer with revision %d",
				describe(move), o.Answer.Revision, seen)
		}
		if seen := before(watched, o.Call); linearizable(o.Request) && o.Answer.Revision < seen {
			f.violated(p.lostOrLate(o), "%s was answered with revision %d after a watch had shown revision %d",
				describe(move), o.Answer.Revision, seen)
		}
		if o.Server == nil {
			continue
		}
		if first == nil {
			first = o.Server
		}
		if o.Server.Cluster != first.Cluster || o.Server.Member != first.Member {
			f.violated(claimMonotonic, "%s was answered by %v, others by %v", describe(move), *o.Server, *first)
		}
		if term := before(terms, o.Call); int64(o.Server.Term) < term {
			f.violated(claimMonotonic, "%s was answered in term %d after an answer in term %d",
				describe(move), o.Server.Term, term)
		}
	}
}

// lostOrLate returns the claim that an answer with too low a revision violates: durability if a failure lost revisions that
// had been seen, otherwise monotonicity.
func (p *Plan) lostOrLate(o *Operation) string {
	for _, d := range p.history.Downtimes {
		if d.To <= o.Call && p.history.seenBefore(d.From) > o.Answer.Revision {
			return claimDurable
		}
	}
	return claimMonotonic
}

// seenBefore returns the highest revision that any client or watcher had seen before a time.
func (h *History) seenBefore(at int64) int64 {
	seen := before(highest(watchSightings(h)), at)
	for i := range h.Operations {
		if h.Operations[i].Return < at {
			seen = max(seen, h.Operations[i].Answer.Revision)
		}
	}
	return seen
}

// linearizable reports whether an answer must include everything that any client has seen before.
func linearizable(r Request) bool {
	switch {
	case r.Range != nil:
		return !r.Range.Serializable
	case r.Txn != nil:
		// etcd treats an empty transaction as one whose reads are all serializable.
		return len(r.Txn.Then)+len(r.Txn.Else) > 0
	default:
		return r.Put != nil || r.Delete != nil || r.Compact != nil || r.Revoke != 0
	}
}

// watchSightings returns the revisions of delivered events and progress notifications.
func watchSightings(h *History) []sighting {
	var sightings []sighting
	for _, watcher := range append([]*Watcher{h.Reference}, h.Watchers...) {
		for _, leg := range watcher.Legs {
			for _, answer := range leg.Answers {
				if n := len(answer.Events); n > 0 {
					sightings = append(sightings, sighting{answer.At, answer.Events[n-1].Mod})
				} else if answer.isProgress() {
					sightings = append(sightings, sighting{answer.At, answer.Revision})
				}
			}
		}
	}
	return sightings
}

// checkFailures checks that requests fail only around downtimes, and the state at the end of the round.
func checkFailures(p *Plan, f *Findings) {
	h := p.history
	f.checked(claimDurable, len(h.Downtimes))
	for i := range h.Operations {
		o := &h.Operations[i]
		f.checked(claimRunning, 1)
		if o.Unknown && !h.down(o.Call, o.Return) {
			f.violated(claimRunning, "%s failed while the server was running: %s",
				describe(&Move{Operation: o, Request: o.Request}), o.Failure)
		}
	}
	for _, pair := range h.Leftover {
		f.violated(claimLeases, "%v still exists long after its lease should have expired", pair)
	}
	for _, name := range h.Stuck {
		f.violated(claimReliable, "watcher %s did not reach the last revision in time", name)
	}
	if h.Final == nil {
		return
	}
	again := NewFindings()
	checkWatcher(p, h.Final, again)
	f.checked(claimDurable, again.Checked[claimReliable])
	for _, violation := range again.Violations {
		f.violated(claimDurable, "repeated watch at the end: %s", violation.Text)
	}
}

// down reports whether the server was unavailable at any moment between two times.
func (h *History) down(from, to int64) bool {
	for _, d := range h.Downtimes {
		if from <= d.To+afterDowntime && to >= d.From {
			return true
		}
	}
	return false
}
