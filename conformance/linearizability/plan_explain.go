package main

import "time"

// explain finds the moves that may have made each revision without a certain owner: unanswered operations and ends of
// leases. If there is only one, it owns the revision. Optional moves that cannot matter are dropped.
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
		if len(move.Candidates) > 0 || p.matters(move, optional) {
			move.Optional = move.Wrote == 0 && move.Return == never
			p.moves = append(p.moves, move)
		}
	}
}

// made reports whether a move has exactly the changes of a revision, applied to the state before it.
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
		f.violated(claimRevisions, "revision %d was made by no operation and no end of a lease: %v",
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
			f.violated(claimLeases, "lease %d ended with revision %d at %v, but lives at least until %v",
				makers[0].Request.Expire, revision, time.Duration(seen), time.Duration(earliest))
			return
		}
	}
	p.timeline.madeAfter(revision, earliest)
	if only := makers[0]; len(makers) == 1 && only.Wrote == 0 {
		only.Wrote = revision
		p.model.owner[revision] = only
	} else if len(makers) == 1 {
		f.violated(claimRevisions, "only %s can have made both revision %d and revision %d", describe(only), only.Wrote, revision)
	}
}
