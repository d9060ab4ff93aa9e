package main

import (
	"cmp"
	"slices"
	"time"
)

// A move without an answer could come at any moment after its call, and with some of those in a history the search for
// an order would never end. But what is answered later often shows that it cannot have come before: a read of an old
// revision, that it was not compacted yet; a put with a lease, that the lease was alive. So such a move is given the
// latest of these calls as its own. Then it can be made as soon as it fits, and that is never wrong.

// signs are what shows that a lease was alive.
type signs struct {
	granted bool
	// due is when it can have run out by itself.
	due int64
	// last is the latest call of an operation that found it alive, first the earliest return of one.
	last, first int64
	// revoked says that a client ended it, so nothing else did.
	revoked bool
	// dead is the earliest return of an operation that did not find it any more, suspect that of one that failed for
	// want of a lease, which may be this one.
	dead, suspect int64
}

func (s *signs) alive(call, end int64) {
	s.last, s.first = max(s.last, call), min(s.first, end)
}

// signsOfLife looks through all operations and pinned moves.
func (p *Plan) signsOfLife() map[int64]*signs {
	all := map[int64]*signs{}
	for lease := range p.model.lease {
		all[lease] = &signs{first: never, dead: never, suspect: never}
	}
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		r := o.Request
		if r.Grant != nil && o.Answer.Error == "" {
			s := all[r.Grant.Lease]
			s.granted = s.granted || !o.Unknown
			s.due = o.Call + max(r.Grant.TTL, o.Answer.TTL)*int64(time.Second)
		}
	}
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		r := o.Request
		switch {
		case o.Unknown || o.Answer.Error != "":
		case r.KeepAlive != 0:
			s := all[r.KeepAlive]
			s.due = max(s.due, o.Call+o.Answer.TTL*int64(time.Second))
			s.alive(o.Call, o.Return)
		case r.TimeToLive != 0 && o.Answer.Granted != 0:
			all[r.TimeToLive].alive(o.Call, o.Return)
		case r.Revoke != 0:
			all[r.Revoke].alive(o.Call, o.Return)
			all[r.Revoke].revoked = true
		}
	}
	for _, move := range p.moves {
		if move.Wrote == 0 {
			continue
		}
		for _, change := range p.log.Changes(move.Wrote) {
			if s := all[change.Lease]; s != nil && !change.Delete {
				s.alive(move.Call, move.Return)
			}
		}
	}
	p.signsOfDeath(all)
	return all
}

// signsOfDeath looks for operations behind the last sign of life.
func (p *Plan) signsOfDeath(all map[int64]*signs) {
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		gone := o.Answer.Error == errLeaseNotFound || o.Request.TimeToLive != 0 && o.Answer.Granted == 0
		if o.Unknown || !gone {
			continue
		}
		for _, lease := range leasesOf(o.Request) {
			switch s := all[lease]; {
			case o.Return < max(s.due, s.last):
			case o.Request.Put != nil || o.Request.Txn != nil:
				s.suspect = min(s.suspect, o.Return)
			default:
				s.dead = min(s.dead, o.Return)
			}
		}
	}
}

// matters says whether an optional move without an effect on keys can make a difference: someone did not find a lease
// any more, or a revision. An expiry that someone certainly saw must have come before.
func (p *Plan) matters(move *Move, optional []*Move) bool {
	r := move.Request
	if r.Compact != nil {
		return slices.ContainsFunc(p.history.Operations, func(o Operation) bool {
			return o.Answer.Error == errCompacted && o.Return > move.Call
		})
	}
	s := p.signs[r.Revoke+r.Expire]
	if s == nil || s.dead == never && s.suspect == never {
		return false
	}
	revoked := slices.ContainsFunc(optional, func(other *Move) bool { return r.Expire != 0 && other.Request.Revoke == r.Expire })
	if r.Expire != 0 && !revoked && s.dead != never {
		move.Return = s.dead
	}
	return true
}

// boundLeases bounds grants and revocations without an answer, and adds the expiry of each lease that there was. A
// grant happened if the lease was ever seen alive; otherwise it makes no difference to anyone.
func (p *Plan) boundLeases(unknown []*Move) []*Move {
	all := p.signsOfLife()
	p.signs = all
	var optional []*Move
	for _, move := range unknown {
		switch r := move.Request; {
		case r.Grant != nil:
			if s := all[r.Grant.Lease]; s.first != never {
				move.Return = s.first
				p.moves = append(p.moves, move)
			}
		case r.Revoke != 0:
			if s := all[r.Revoke]; !s.revoked && (s.granted || s.first != never) {
				move.Call = max(move.Call, s.last)
				optional = append(optional, move)
			}
		default:
			optional = append(optional, move)
		}
	}
	var expiries []*Move
	for lease, s := range all {
		if !s.revoked && (s.granted || s.first != never) {
			expiry := &Move{Request: Request{Expire: lease}, Call: max(s.due, s.last), Return: never}
			expiries = append(expiries, expiry)
		}
	}
	slices.SortFunc(expiries, func(a, b *Move) int { return cmp.Compare(a.Request.Expire, b.Request.Expire) })
	return append(optional, expiries...)
}

// boundCompactions: a read of an older revision, or an older compaction, was answered before it.
func (p *Plan) boundCompactions(optional []*Move) {
	for _, move := range optional {
		if move.Request.Compact == nil {
			continue
		}
		for i := range p.history.Operations {
			o := &p.history.Operations[i]
			if !o.Unknown && o.Answer.Error == "" && o.Return > move.Call && needsBelow(o.Request, move.Request.Compact.Revision) {
				move.Call = max(move.Call, o.Call)
			}
		}
	}
}

func needsBelow(r Request, revision int64) bool {
	return r.Range != nil && r.Range.Revision != 0 && r.Range.Revision < revision ||
		r.Compact != nil && r.Compact.Revision <= revision
}
