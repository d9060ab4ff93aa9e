package main

import (
	"cmp"
	"slices"
	"time"
)

// expiries makes one move for each lease that was, or may have been, granted: it may end by itself once its time to
// live has passed since the last sign of life.
func (p *Plan) expiries() []*Move {
	earliest, revoked := map[int64]int64{}, map[int64]int64{}
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		if o.Request.Grant != nil && o.Answer.Error == "" {
			ttl := max(o.Request.Grant.TTL, o.Answer.TTL)
			earliest[o.Request.Grant.Lease] = o.Call + ttl*int64(time.Second)
		}
	}
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		if o.Unknown || o.Answer.Error != "" {
			continue
		}
		switch {
		case o.Request.KeepAlive != 0:
			lease := o.Request.KeepAlive
			earliest[lease] = max(earliest[lease], o.Call+o.Answer.TTL*int64(time.Second))
		case o.Request.TimeToLive != 0 && o.Answer.Granted != 0:
			earliest[o.Request.TimeToLive] = max(earliest[o.Request.TimeToLive], o.Call)
		case o.Request.Revoke != 0:
			revoked[o.Request.Revoke] = o.Return
		}
	}
	for _, move := range p.moves {
		// A successful put shows that its lease was alive when it was made.
		if move.Wrote != 0 {
			for _, lease := range leasesOf(move.Request) {
				if p.attachedBy(move, lease) {
					earliest[lease] = max(earliest[lease], move.Call)
				}
			}
		}
	}
	var moves []*Move
	for lease, call := range earliest {
		if end, ended := revoked[lease]; ended && end < call {
			continue
		}
		moves = append(moves, &Move{Request: Request{Expire: lease}, Call: call, Return: never, Optional: true})
	}
	slices.SortFunc(moves, func(a, b *Move) int { return cmp.Compare(a.Request.Expire, b.Request.Expire) })
	return moves
}

func (p *Plan) attachedBy(move *Move, lease int64) bool {
	return slices.ContainsFunc(p.log.Changes(move.Wrote), func(c Change) bool { return c.Lease == lease })
}

// explain finds for every revision that nobody certainly made those who may have made it: operations without an
// answer, ends of leases. Optional moves that can have had no effect are dropped.
func (p *Plan) explain(optional []*Move, f *Findings) {
	var revokes []*Move
	for _, move := range p.moves {
		if move.Request.Revoke != 0 {
			revokes = append(revokes, move)
		}
	}
	for revision := int64(2); revision <= p.log.Last(); revision++ {
		if p.model.owner[revision] != nil {
			continue
		}
		f.checked(claimRevisions, 1)
		var makers []*Move
		for _, move := range revokes {
			if move.Operation.Answer.Revision == revision && p.made(move, revision) {
				makers = append(makers, move)
			}
		}
		for _, move := range optional {
			if p.made(move, revision) {
				move.Candidates = append(move.Candidates, revision)
				makers = append(makers, move)
			}
		}
		p.judge(revision, makers, f)
	}
	for _, move := range optional {
		r := move.Request
		keeps := r.Grant != nil || r.Compact != nil || r.Revoke != 0 || r.Expire != 0
		if keeps || len(move.Candidates) > 0 {
			move.Optional = true
			p.moves = append(p.moves, move)
		}
	}
}

// made says whether a move changes the state before a revision just as the revision did.
func (p *Plan) made(move *Move, revision int64) bool {
	state := p.log.At(revision - 1)
	var changes []Change
	switch r := move.Request; {
	case r.Revoke != 0:
		changes = endOf(state, r.Revoke, revision)
	case r.Expire != 0:
		changes = endOf(state, r.Expire, revision)
	case r.Put != nil || r.Delete != nil || r.Txn != nil:
		_, changes = view{log: p.log, revision: revision - 1}.execute(r)
	}
	return len(changes) > 0 && sameChanges(changes, p.log.Changes(revision))
}

func (p *Plan) judge(revision int64, makers []*Move, f *Findings) {
	if len(makers) == 0 {
		f.violated(claimRevisions, "revision %d was made by no operation and no lease's end: %v",
			revision, p.log.Changes(revision))
		return
	}
	earliest := makers[0].Call
	onlyExpiry := true
	for _, move := range makers {
		earliest = min(earliest, move.Call)
		onlyExpiry = onlyExpiry && move.Request.Expire != 0
	}
	if onlyExpiry {
		f.Expired++
		f.checked(claimLeases, 1)
		if seen := p.timeline.seen[revision-1]; seen < earliest {
			f.violated(claimLeases, "lease %d ended with revision %d at %v, but lives until %v at least",
				makers[0].Request.Expire, revision, time.Duration(seen), time.Duration(earliest))
			return
		}
	}
	p.timeline.madeAfter(revision, earliest)
}
