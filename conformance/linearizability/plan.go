package main

import "slices"

// A Plan is a history prepared for the checks: its moves, pinned to revisions as far as the log determines them.
type Plan struct {
	history  *History
	log      *Log
	model    *Model
	timeline *Timeline
	moves    []*Move
	signs    map[int64]*signs
	// compactions are those that were executed, or may have been.
	compactions []*Operation
}

// NewPlan creates the moves of a history and assigns revisions to them. It reports revisions that no move, or more than
// one, made.
func NewPlan(h *History, log *Log, f *Findings) *Plan {
	p := &Plan{history: h, log: log, timeline: NewTimeline(h, log.Last())}
	p.model = &Model{log: log, owner: map[int64]*Move{}, lease: map[int64]int{}}
	for i := range h.Operations {
		operation := &h.Operations[i]
		for _, lease := range leasesOf(operation.Request) {
			if _, known := p.model.lease[lease]; !known {
				p.model.lease[lease] = len(p.model.lease)
			}
		}
	}
	var unknown []*Move
	for i := range h.Operations {
		operation := &h.Operations[i]
		if operation.Request.Compact != nil && (operation.Unknown || operation.Answer.Error == "") {
			p.compactions = append(p.compactions, operation)
		}
		move := &Move{Operation: operation, Request: operation.Request, Call: operation.Call, Return: operation.Return}
		switch {
		case operation.Request.Leases:
		case operation.Unknown:
			move.Return = never
			unknown = append(unknown, move)
		default:
			p.moves = append(p.moves, move)
			if wrote(operation.Request, operation.Answer) {
				p.own(operation.Answer.Revision, move, f)
			}
		}
	}
	unknown = p.pin(unknown, f)
	p.explain(p.boundLeases(unknown), f)
	p.timeline.settle()
	return p
}

func leasesOf(r Request) []int64 {
	var leases []int64
	for _, lease := range []int64{r.Revoke, r.KeepAlive, r.TimeToLive, r.Expire} {
		if lease != 0 {
			leases = append(leases, lease)
		}
	}
	if r.Grant != nil {
		leases = append(leases, r.Grant.Lease)
	}
	if r.Put != nil && r.Put.Lease != 0 {
		leases = append(leases, r.Put.Lease)
	}
	if r.Txn != nil {
		for _, inner := range slices.Concat(r.Txn.Then, r.Txn.Else) {
			leases = append(leases, leasesOf(inner)...)
		}
	}
	return leases
}

// wrote reports whether an answered request to the key-value service certainly made the revision of its header.
func wrote(request Request, answer Answer) bool {
	switch {
	case answer.Error != "":
		return false
	case request.Put != nil:
		return true
	case request.Delete != nil:
		return answer.Count > 0
	case request.Txn != nil:
		for i, inner := range branchOf(request, answer) {
			if i < len(answer.Answers) && wrote(inner, answer.Answers[i]) {
				return true
			}
		}
	}
	return false
}

// own records that a move made a revision.
func (p *Plan) own(revision int64, move *Move, f *Findings) {
	move.Wrote = revision
	f.checked(claimRevisions, 1)
	if !p.log.Has(revision) {
		f.violated(claimDurable, "%s was answered with revision %d, but the history ends at revision %d",
			describe(move), revision, p.log.Last())
		return
	}
	if other := p.model.owner[revision]; other != nil {
		f.violated(claimRevisions, "both %s and %s made revision %d", describe(other), describe(move), revision)
		return
	}
	p.model.owner[revision] = move
	p.timeline.madeAfter(revision, move.Call)
}

// pin finds the unanswered writes that have happened, by the unique values that they put. It returns the moves without
// such a value in the log.
func (p *Plan) pin(unknown []*Move, f *Findings) []*Move {
	made := map[string]int64{}
	for revision := int64(2); revision <= p.log.Last(); revision++ {
		for _, change := range p.log.Changes(revision) {
			old, existed := p.log.At(revision - 1).Find(change.Key)
			if change.Delete || existed && old.Value == change.Value {
				continue
			}
			if first, again := made[change.Value]; again && first != revision {
				f.violated(claimRevisions, "value %q was written by revision %d and again by revision %d",
					change.Value, first, revision)
			}
			made[change.Value] = revision
		}
	}
	var rest []*Move
	for _, move := range unknown {
		revision := int64(0)
		for _, value := range valuesOf(move.Request) {
			revision = max(revision, made[value])
		}
		if revision == 0 {
			rest = append(rest, move)
			continue
		}
		f.Pinned++
		p.own(revision, move, f)
		p.moves = append(p.moves, move)
	}
	return rest
}

func valuesOf(r Request) []string {
	switch {
	case r.Put != nil && !r.Put.IgnoreValue:
		return []string{r.Put.Value}
	case r.Txn != nil:
		var values []string
		for _, inner := range slices.Concat(r.Txn.Then, r.Txn.Else) {
			values = append(values, valuesOf(inner)...)
		}
		return values
	}
	return nil
}
