package main

import (
	"slices"
)

var badOperations = []badHistory{
	{"a stale read", claimLinearizable, func(s *scene) { s.answered(s.read, 3) }},
	{"a stale read with an older revision", claimMonotonic, func(s *scene) { s.answered(s.read, 3) }},
	{"a stale serializable read of a single server", claimLinearizable, func(s *scene) {
		s.op(s.read).Request.Range.Serializable = true
		s.answered(s.read, 3)
	}},
	{"a read from the future", claimLinearizable, func(s *scene) { s.answered(s.read, s.txnRevision+1) }},
	{"a read with a missing key", claimAnswers, func(s *scene) { s.op(s.read).Answer.Pairs = s.op(s.read).Answer.Pairs[1:] }},
	{"a wrong value", claimAnswers, func(s *scene) { s.op(s.read).Answer.Pairs[0].Value = "1" }},
	{"a wrong version", claimAnswers, func(s *scene) { s.op(s.read).Answer.Pairs[0].Version++ }},
	{"a wrong create revision", claimAnswers, func(s *scene) { s.op(s.read).Answer.Pairs[0].Create++ }},
	{"a wrong lease", claimAnswers, func(s *scene) { s.op(s.read).Answer.Pairs[0].Lease = 7 }},
	{"a wrong count", claimAnswers, func(s *scene) { s.op(s.read).Answer.Count++ }},
	{"more without more keys", claimAnswers, func(s *scene) { s.op(s.read).Answer.More = true }},
	{"a wrong header", claimLinearizable, func(s *scene) { s.op(s.read).Answer.Revision-- }},
	{"a wrong header inside a transaction", claimAnswers, func(s *scene) { s.op(s.txn).Answer.Answers[3].Revision-- }},
	{"a wrong previous pair", claimAnswers, func(s *scene) { s.op(s.overwrite).Answer.Pairs[0].Value = "0" }},
	{"no previous pair", claimAnswers, func(s *scene) { s.op(s.remove).Answer.Pairs = nil }},
	{"a transaction that took the wrong branch", claimLinearizable, func(s *scene) {
		s.op(s.txn).Answer.Succeeded, s.op(s.txn).Answer.Answers = false, nil
	}},
	{"an old revision that reads as the new one", claimOldReads, func(s *scene) {
		s.op(s.old).Answer.Pairs[0] = Pair{Key: "a", Value: "4", Create: 2, Mod: 5, Version: 3}
	}},
	{"a compacted revision that can be read", claimLinearizable, func(s *scene) {
		*s.op(s.afterDown) = *s.op(s.old)
		s.op(s.afterDown).ID, s.op(s.afterDown).Call, s.op(s.afterDown).Return = s.afterDown, s.now-2, s.now-1
		s.op(s.afterDown).Answer.Revision = s.log.Last()
	}},
	{"a refusal before the deletion that causes it", claimLinearizable, func(s *scene) {
		// During the deletion, a put with IgnoreValue is refused, although a later read still finds the key.
		remove := s.op(s.remove)
		remove.Return += 10 * tick
		refused := Operation{ID: len(s.history.Operations), Client: 5, Call: remove.Call + 1, Return: remove.Call + 2}
		refused.Request, refused.Answer = Request{Put: &Put{Key: "a", IgnoreValue: true}}, Answer{Error: errKeyNotFound}
		read := Operation{ID: refused.ID + 1, Client: 5, Call: remove.Call + 3, Return: remove.Call + 4, Request: get("a")}
		s.history.Operations = append(s.history.Operations, refused, read)
		s.answered(read.ID, s.txnRevision)
	}},
	{"an unjustified refusal", claimLinearizable, func(s *scene) { s.op(s.old).Answer = Answer{Error: errCompacted} }},
	{"a compaction at a future revision", claimLinearizable, func(s *scene) { s.op(s.compaction).Request.Compact.Revision = 1000 }},
	{"an answered write that is lost at the end", claimDurable, func(s *scene) {
		s.op(s.afterDown).Answer.Revision = s.log.Last() + 1
	}},
	{"an answered write that is lost in a failure", claimRevisions, func(s *scene) {
		s.op(s.afterDown).Answer.Revision--
	}},
	{"revisions that are used again after a failure", claimDurable, func(s *scene) {
		s.answered(len(s.history.Operations)-1, 6)
	}},
	{"half a transaction", claimRevisions, func(s *scene) {
		s.everywhere(func(leg *Leg) { without(leg, s.txnRevision, "c") })
	}},
	{"a write that no client requested", claimRevisions, func(s *scene) { s.op(s.lost).Request.Put.Value = "another" }},
	{"a write that was done twice", claimRevisions, func(s *scene) {
		s.everywhere(func(leg *Leg) {
			for _, answer := range leg.Answers {
				for i := range answer.Events {
					if e := &answer.Events[i]; e.Key == "g" {
						e.Key, e.Value, e.Create, e.Version = "f", "8", e.Create-1, 2
					}
				}
			}
		})
		s.op(s.afterDown).Unknown = true
		s.history.Downtimes = append(s.history.Downtimes, Downtime{From: 0, To: s.now})
	}},
	{"two writes in one revision", claimRevisions, func(s *scene) {
		s.op(s.overwrite).Answer.Revision = s.op(s.first).Answer.Revision
	}},
	{"a term that decreases", claimMonotonic, func(s *scene) { s.op(s.afterDown).Server = &Server{1, 1, 1} }},
	{"another cluster", claimMonotonic, func(s *scene) { s.op(s.afterDown).Server = &Server{2, 1, 2} }},
	{"a lease that expires too early", claimLeases, func(s *scene) { s.op(s.grant).Request.Grant.TTL = 600 }},
	{"a lease that leaves a key behind", claimRevisions, func(s *scene) {
		s.everywhere(func(leg *Leg) { without(leg, s.expired, "e") })
	}},
	{"a lease that does not expire", claimLeases, func(s *scene) { s.history.Leftover = []Pair{{Key: "d", Lease: 7}} }},
	{"a key with a lease that was never granted", claimLinearizable, func(s *scene) { s.op(s.leased).Call = 1; s.op(s.grant).Answer.Error = errLeaseExists }},
	{"a lease with a missing key", claimLeases, func(s *scene) {
		o := s.find(func(r Request) bool { return r.TimeToLive != 0 })
		o.Answer.Keys = o.Answer.Keys[1:]
	}},
	{"a lease with a key that does not have it", claimLeases, func(s *scene) {
		o := s.find(func(r Request) bool { return r.TimeToLive != 0 })
		o.Answer.Keys = append(o.Answer.Keys, "c")
	}},
	{"a list with an unknown lease", claimLeases, func(s *scene) {
		o := s.find(func(r Request) bool { return r.Leases })
		o.Answer.Leases = append(o.Answer.Leases, 99)
	}},
	{"a lease that is not found while it has keys", claimLinearizable, func(s *scene) {
		s.find(func(r Request) bool { return r.TimeToLive != 0 }).Answer = Answer{TTL: -1, Revision: s.expired - 1}
	}},
	{"no answer from a running server", claimRunning, func(s *scene) {
		s.op(s.read).Unknown, s.op(s.read).Failure = true, "deadline exceeded"
	}},
	{"a read older than a watch has shown", claimMonotonic, func(s *scene) {
		// The watch shows the transaction before the read is called, and the transaction returns only after the read.
		s.op(s.txn).Return = s.op(s.read).Return + tick
		s.answered(s.read, s.txnRevision-1)
	}},
	{"a history that changes afterwards", claimDurable, func(s *scene) {
		at := holding(s.history.Final.Legs[0], s.compact)
		s.history.Final.Legs[0].Answers[max(at, 1)].Events[0].Value = "changed"
	}},
	{"a history that is shorter afterwards", claimDurable, func(s *scene) {
		leg := s.history.Final.Legs[0]
		events := leg.Answers[len(leg.Answers)-1].Events
		leg.Answers[len(leg.Answers)-1].Events = events[:len(events)-1]
	}},
}

func (s *scene) find(wanted func(Request) bool) *Operation {
	return s.op(slices.IndexFunc(s.history.Operations, func(o Operation) bool { return wanted(o.Request) }))
}
