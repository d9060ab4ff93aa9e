package main

import (
	"cmp"
	"slices"
)

// A view is the store as one request sees it: the state at a revision, and the history before it, as far as it is not
// compacted.
type view struct {
	log      *Log
	revision int64
	compact  int64
	// alive reports whether a lease can be attached to; nil means that every lease is alive.
	alive func(lease int64) bool
}

// run is the execution of one request, with its changes so far.
type run struct {
	view
	now     Snapshot
	changes []Change
}

// execute returns the only correct answer to a request to the key-value service, and its changes.
func (v view) execute(request Request) (Answer, []Change) {
	r := run{view: v, now: v.log.At(v.revision)}
	chosen := r.choose(request)
	if refused := r.check(chosen); refused != "" {
		return Answer{Error: refused}, nil
	}
	answer := r.do(chosen)
	if request.Txn != nil {
		answer.Revision = r.visible()
	}
	return answer, r.changes
}

// A choice is a request with the branches of its transactions chosen: all compares, nested ones too, are evaluated
// against the state before the request.
type choice struct {
	Request
	succeeded bool
	branch    []choice
}

func (r *run) choose(request Request) choice {
	chosen := choice{Request: request}
	if request.Txn == nil {
		return chosen
	}
	chosen.succeeded = !slices.ContainsFunc(request.Txn.If, func(c Compare) bool { return !r.holds(c) })
	branch := request.Txn.Else
	if chosen.succeeded {
		branch = request.Txn.Then
	}
	for _, inner := range branch {
		chosen.branch = append(chosen.branch, r.choose(inner))
	}
	return chosen
}

func (r *run) holds(c Compare) bool {
	pairs := r.now.Within(c.Key, c.End)
	if len(pairs) == 0 {
		// An absent key compares as all zeros, except that it has no value to compare.
		return c.Target != "value" && c.holdsFor(Pair{})
	}
	return !slices.ContainsFunc(pairs, func(pair Pair) bool { return !c.holdsFor(pair) })
}

func (c Compare) holdsFor(pair Pair) bool {
	var order int
	switch c.Target {
	case "version":
		order = cmp.Compare(pair.Version, c.Number)
	case "create":
		order = cmp.Compare(pair.Create, c.Number)
	case "mod":
		order = cmp.Compare(pair.Mod, c.Number)
	case "lease":
		order = cmp.Compare(pair.Lease, c.Number)
	case "value":
		order = slices.Compare(expand(pair.Value), expand(c.Value))
	}
	switch c.Relation {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	default:
		return order > 0
	}
}

// check returns the error with which the whole request is refused, before any of it is executed.
func (r *run) check(c choice) string {
	switch {
	case c.Range != nil && c.Range.Revision > r.revision:
		return errFuture
	case c.Range != nil && c.Range.Revision > 0 && c.Range.Revision < r.compact:
		return errCompacted
	case c.Put != nil:
		if _, found := r.now.Find(c.Put.Key); !found && (c.Put.IgnoreValue || c.Put.IgnoreLease) {
			return errKeyNotFound
		}
		if c.Put.Lease != 0 && r.alive != nil && !r.alive(c.Put.Lease) {
			return errLeaseNotFound
		}
	}
	for _, inner := range c.branch {
		if refused := r.check(inner); refused != "" {
			return refused
		}
	}
	return ""
}

func (r *run) do(c choice) Answer {
	switch {
	case c.Range != nil:
		return r.read(c.Range)
	case c.Put != nil:
		return r.put(c.Put)
	case c.Delete != nil:
		return r.remove(c.Delete)
	}
	// etcd leaves the header of a nested transaction empty.
	answer := Answer{Succeeded: c.succeeded}
	for _, inner := range c.branch {
		answer.Answers = append(answer.Answers, r.do(inner))
	}
	return answer
}

// visible returns the revision that a read inside the transaction sees.
func (r *run) visible() int64 {
	if len(r.changes) == 0 {
		return r.revision
	}
	return r.revision + 1
}

func (r *run) read(request *Range) Answer {
	state := r.now
	if request.Revision > 0 && request.Revision <= r.revision {
		state = r.log.At(request.Revision)
	}
	all := state.Within(request.Key, request.End)
	answer := Answer{Revision: r.visible(), Count: int64(len(all))}
	if request.CountOnly {
		return answer
	}
	answer.candidates = request.sorted(request.filtered(all))
	if request.KeysOnly {
		for i := range answer.candidates {
			answer.candidates[i].Value = ""
		}
	}
	answer.Pairs = answer.candidates
	if request.Limit > 0 && int64(len(answer.Pairs)) > request.Limit {
		answer.Pairs, answer.More = answer.Pairs[:request.Limit], true
	}
	return answer
}

// filtered returns a copy of the pairs within the revision bounds.
func (q *Range) filtered(pairs []Pair) []Pair {
	var kept []Pair
	for _, pair := range pairs {
		if (q.MinMod == 0 || pair.Mod >= q.MinMod) && (q.MaxMod == 0 || pair.Mod <= q.MaxMod) &&
			(q.MinCreate == 0 || pair.Create >= q.MinCreate) && (q.MaxCreate == 0 || pair.Create <= q.MaxCreate) {
			kept = append(kept, pair)
		}
	}
	return kept
}

func (q *Range) sorted(pairs []Pair) []Pair {
	slices.SortStableFunc(pairs, q.order)
	return pairs
}

// order compares by the requested field; equal pairs may come in any order.
func (q *Range) order(a, b Pair) int {
	var order int
	switch q.SortBy {
	case "version":
		order = cmp.Compare(a.Version, b.Version)
	case "create":
		order = cmp.Compare(a.Create, b.Create)
	case "mod":
		order = cmp.Compare(a.Mod, b.Mod)
	case "value":
		order = slices.Compare(expand(a.Value), expand(b.Value))
	default:
		order = cmp.Compare(a.Key, b.Key)
	}
	if q.Descending {
		return -order
	}
	return order
}

func (r *run) put(request *Put) Answer {
	before, existed := r.now.Find(request.Key)
	next := Pair{
		Key: request.Key, Value: request.Value, Lease: request.Lease,
		Create: r.revision + 1, Mod: r.revision + 1, Version: 1,
	}
	if existed {
		next.Create, next.Version = before.Create, before.Version+1
	}
	if request.IgnoreValue {
		next.Value = before.Value
	}
	if request.IgnoreLease {
		next.Lease = before.Lease
	}
	r.change(Change{Pair: next})
	answer := Answer{Revision: r.revision + 1}
	if request.Prev && existed {
		answer.Pairs = []Pair{before}
	}
	return answer
}

func (r *run) remove(request *Delete) Answer {
	before := slices.Clone(r.now.Within(request.Key, request.End))
	for _, pair := range before {
		r.change(Change{Delete: true, Pair: Pair{Key: pair.Key, Mod: r.revision + 1}})
	}
	answer := Answer{Revision: r.visible(), Count: int64(len(before))}
	if request.Prev {
		answer.Pairs = before
	}
	return answer
}

func (r *run) change(change Change) {
	r.now = r.now.Apply([]Change{change})
	r.changes = slices.DeleteFunc(slices.Clone(r.changes), func(c Change) bool { return c.Key == change.Key })
	r.changes = append(r.changes, change)
}
