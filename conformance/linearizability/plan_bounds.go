package main

import (
	"cmp"
	"slices"
	"time"
)

// An unanswered move could happen at any moment after its call; with a few of them in a history, the search for an order
// would never end. But later answers often prove that it had not happened yet: a read of an old revision, that the
// revision was not compacted; a put with a lease, that the lease was alive. So the latest call of such an operation
// becomes the call of the move. Then the move can be placed as soon as it fits, without excluding a valid order.

// signs are the evidence of when a lease was alive.
type signs struct {
	granted, seen bool
	// hinted means that a transaction with this lease was refused, which does not show whether the lease was alive.
	hinted bool
	// due is the earliest time at which it can have expired.
	due int64
	// last is the latest call, and first the earliest return, of an operation that found it alive.
	last, first int64
	// revoked means that a client revoked it, so that it did not expire.
	revoked bool
	// missed are the returns of operations after the last sign of life that did not find it; suspected are the returns of
	// transactions and puts that failed because of a missing lease, which may be this one.
	missed, suspected []int64
}

func (s *signs) alive(call, end int64) {
	s.seen, s.last, s.first = true, max(s.last, call), min(s.first, end)
}

// possible reports whether the lease may have existed at all.
func (s *signs) possible() bool { return s.granted || s.seen || s.hinted }

// signsOfLife collects the signs of all leases, from all operations and from all keys that were put with a lease.
func (p *Plan) signsOfLife() map[int64]*signs {
	all := map[int64]*signs{}
	for lease := range p.model.lease {
		all[lease] = &signs{first: never}
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
	for revision := int64(2); revision <= p.log.Last(); revision++ {
		call, end := int64(0), int64(never)
		if maker := p.model.owner[revision]; maker != nil {
			call, end = maker.Call, maker.Return
		}
		for _, change := range p.log.Changes(revision) {
			if s := all[change.Lease]; s != nil {
				s.alive(call, end)
			}
		}
	}
	p.signsOfDeath(all)
	return all
}

// signsOfDeath collects failed operations after the last sign of life of their leases.
func (p *Plan) signsOfDeath(all map[int64]*signs) {
	for i := range p.history.Operations {
		o := &p.history.Operations[i]
		gone := o.Answer.Error == errLeaseNotFound || o.Request.TimeToLive != 0 && o.Answer.Granted == 0
		if o.Unknown || o.Answer.Error == "" && !gone {
			continue
		}
		for _, lease := range leasesOf(o.Request) {
			s := all[lease]
			s.hinted = s.hinted || o.Request.Txn != nil
			switch {
			case !gone:
			case o.Return < s.last:
			case o.Request.Put != nil || o.Request.Txn != nil:
				s.suspected = append(s.suspected, o.Return)
			default:
				s.missed = append(s.missed, o.Return)
			}
		}
	}
}

// matters reports whether an optional move without an effect on keys can explain an answer: a missing lease, or a compacted
// revision. An expiry that an answer proves returns before that answer.
func (p *Plan) matters(move *Move, optional []*Move) bool {
	r := move.Request
	if r.Grant != nil {
		return true
	}
	if r.Compact != nil {
		return slices.ContainsFunc(p.history.Operations, func(o Operation) bool {
			return o.Answer.Error == errCompacted && o.Return > move.Call
		})
	}
	s := p.signs[r.Revoke+r.Expire]
	if s == nil {
		return false
	}
	behind := func(times []int64) (first int64) {
		first = never
		for _, time := range times {
			if time >= move.Call {
				first = min(first, time)
			}
		}
		return first
	}
	missed := behind(s.missed)
	revoked := slices.ContainsFunc(optional, func(other *Move) bool { return r.Expire != 0 && other.Request.Revoke == r.Expire })
	if r.Expire != 0 && !revoked && missed != never && (s.granted || s.seen) {
		move.Return = missed
	}
	return missed != never || behind(s.suspected) != never
}

// boundLeases bounds unanswered grants and revocations, and adds an expiry for each lease that may have existed. A grant
// happened if the lease was ever seen alive; without even a hint, it cannot matter. Returns the optional moves.
func (p *Plan) boundLeases(unknown []*Move) []*Move {
	all := p.signsOfLife()
	p.signs = all
	var optional []*Move
	for _, move := range unknown {
		switch r := move.Request; {
		case r.Grant != nil:
			switch s := all[r.Grant.Lease]; {
			case s.seen:
				move.Return = s.first
				p.moves = append(p.moves, move)
			case s.hinted:
				optional = append(optional, move)
			}
		case r.Revoke != 0:
			if s := all[r.Revoke]; !s.revoked && s.possible() {
				move.Call = max(move.Call, s.last)
				optional = append(optional, move)
			}
		default:
			optional = append(optional, move)
		}
	}
	var expiries []*Move
	for lease, s := range all {
		if !s.revoked && s.possible() {
			expiry := &Move{Request: Request{Expire: lease}, Call: max(s.due, s.last), Return: never}
			expiries = append(expiries, expiry)
		}
	}
	slices.SortFunc(expiries, func(a, b *Move) int { return cmp.Compare(a.Request.Expire, b.Request.Expire) })
	return append(optional, expiries...)
}

// boundCompactions moves the call of each optional compaction to the latest call of a successful read of an older revision
// or of an earlier compaction, which must have come first.
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
