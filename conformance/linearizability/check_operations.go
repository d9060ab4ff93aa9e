package main

import "slices"

// checkOperations compares every answer, on its own, with the state at its revision, and reports differences in readable
// form. The order of operations is left to checkLinearizable.
func checkOperations(p *Plan, f *Findings) {
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		if o.Unknown || o.Answer.Error != "" {
			continue
		}
		switch r := o.Request; {
		case r.Range != nil || r.Put != nil || r.Delete != nil || r.Txn != nil:
			checkAnswer(p, o, f)
		case r.TimeToLive != 0 && o.Answer.Granted != 0:
			checkKeysOfLease(p, o, f)
		}
	}
	checkLists(p, f)
}

func checkAnswer(p *Plan, o *Operation, f *Findings) {
	claim := claimAnswers
	if o.Request.Range != nil && o.Request.Range.Revision != 0 {
		claim = claimOldReads
	}
	f.checked(claim, 1)
	state, writes := o.Answer.Revision, wrote(o.Request, o.Answer)
	if writes {
		state--
	}
	move := &Move{Operation: o, Request: o.Request}
	if !p.log.Has(state) || writes && !p.log.Has(state+1) {
		f.violated(claimDurable, "%s was answered with revision %d, but the history ends at revision %d",
			describe(move), o.Answer.Revision, p.log.Last())
		return
	}
	if r := o.Request.Range; r != nil && r.Revision > state {
		f.violated(claim, "%s was answered at revision %d", describe(move), state)
		return
	}
	want, changes := view{log: p.log, revision: state}.execute(o.Request)
	if text := differs(o.Request, want, o.Answer); text != "" {
		f.violated(claim, "%s: %s", describe(move), text)
	}
	if writes && !sameChanges(changes, p.log.Changes(state+1)) {
		f.violated(claimRevisions, "%s should have changed %v, but revision %d changed %v",
			describe(move), changes, state+1, p.log.Changes(state+1))
	}
}

// checkKeysOfLease checks the list of a lease's keys, which is not read at a single revision: keys that had the lease all
// the time must be listed, and keys that never had it must not.
func checkKeysOfLease(p *Plan, o *Operation, f *Findings) {
	lease := o.Request.TimeToLive
	from, to := p.timeline.Certain(o.Call), min(p.timeline.Possible(o.Return), p.log.Last())
	f.checked(claimLeases, 1)
	always, ever := p.log.At(from).Attached(lease), map[string]bool{}
	for revision := from; revision <= to; revision++ {
		now := p.log.At(revision).Attached(lease)
		for _, key := range now {
			ever[key] = true
		}
		always = slices.DeleteFunc(always, func(key string) bool { return !slices.Contains(now, key) })
	}
	for _, key := range o.Answer.Keys {
		if !ever[key] {
			f.violated(claimLeases, "%s lists %q, which did not have the lease in revisions %d to %d",
				describe(&Move{Operation: o, Request: o.Request}), key, from, to)
		}
	}
	for _, key := range always {
		if !slices.Contains(o.Answer.Keys, key) {
			f.violated(claimLeases, "%s does not list %q, which had the lease in revisions %d to %d",
				describe(&Move{Operation: o, Request: o.Request}), key, from, to)
		}
	}
}

// life is what is certain about the times of a lease.
type life struct {
	asked   int64 // the call of its grant
	granted int64 // it was alive from here on…
	alive   int64 // …at least until here
	dead    int64 // it had ended from here on
}

// checkLists checks the lists of all leases: leases that were certainly alive throughout must be listed, and leases that
// were certainly not must not.
func checkLists(p *Plan, f *Findings) {
	lives := livesOf(p.history)
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		if !o.Request.Leases || o.Unknown {
			continue
		}
		f.checked(claimLeases, 1)
		for lease, l := range lives {
			listed := slices.Contains(o.Answer.Leases, lease)
			if !listed && l.granted < o.Call && o.Return < l.alive {
				f.violated(claimLeases, "operation %d does not list lease %d, which was alive", o.ID, lease)
			}
			if listed && (o.Return < l.asked || l.dead < o.Call) {
				f.violated(claimLeases, "operation %d lists lease %d, which was not alive", o.ID, lease)
			}
		}
		for _, lease := range o.Answer.Leases {
			if _, known := lives[lease]; !known {
				f.violated(claimLeases, "operation %d lists lease %d, which no client requested", o.ID, lease)
			}
		}
	}
}

func livesOf(h *History) map[int64]*life {
	lives := map[int64]*life{}
	for i := range h.Operations {
		if grant := h.Operations[i].Request.Grant; grant != nil {
			lives[grant.Lease] = &life{asked: h.Operations[i].Call, granted: never, dead: never}
			if !h.Operations[i].Unknown && h.Operations[i].Answer.Error == "" {
				lives[grant.Lease].granted = h.Operations[i].Return
			}
		}
	}
	for i := range h.Operations {
		o := &h.Operations[i]
		if o.Unknown || o.Request.Grant != nil {
			continue
		}
		for _, lease := range leasesOf(o.Request) {
			l := lives[lease]
			switch {
			case l == nil:
			case o.Request.Revoke != 0, o.Answer.Error == errLeaseNotFound && o.Request.KeepAlive != 0:
				l.dead = min(l.dead, o.Return)
			case o.Request.KeepAlive != 0, o.Request.TimeToLive != 0 && o.Answer.Granted != 0:
				l.alive = max(l.alive, o.Call)
			}
		}
	}
	return lives
}
