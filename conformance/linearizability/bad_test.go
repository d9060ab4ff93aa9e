package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// scene is a correct history that covers every claim, with references to the parts that tests corrupt.
type scene struct {
	*store
	history *History
	// plain sees all keys with previous pairs; filtered only deletions; resumed has two legs; bookmarked gets a progress
	// notification halfway; refused starts below the compact revision.
	plain, filtered, resumed, bookmarked, refused *openLeg
	second                                        *openLeg
	// ids of operations
	first, overwrite, txn, remove, read, old, grant, leased, compaction, afterDown, lost int
	expired, txnRevision                                                                 int64
}

func newScene(t *testing.T) *scene {
	s := &scene{store: newStore(t)}
	all := func(name string) Watcher {
		return Watcher{Name: name, Key: everything[0], End: everything[1], Prev: true}
	}
	s.plain = s.newWatch(all("plain"), 1)
	s.filtered = s.newWatch(Watcher{Name: "filtered", Key: "a", NoPut: true}, 1)
	s.resumed = s.newWatch(all("resumed"), 1)
	s.bookmarked = s.newWatch(all("bookmarked"), 0)
	s.first = s.do(0, put("a", "1")).ID
	s.overwrite = s.do(1, put("a", "2")).ID
	s.do(0, put("b", "3"))
	s.txn = s.do(0, Request{Txn: &Txn{
		If:   []Compare{{Key: "a", Target: "version", Relation: "=", Number: 2}},
		Then: []Request{put("a", "4"), put("c", "5"), {Delete: &Delete{Key: "b"}}, {Range: &Range{Key: "a", End: "z"}}},
	}}).ID
	s.txnRevision = s.log.Last()
	s.progress(s.bookmarked)
	start := s.stop(s.resumed, endCancelled)
	s.read = s.do(1, getAll()).ID
	s.old = s.do(1, Request{Range: &Range{Key: "a", Revision: 3}}).ID
	s.remove = s.do(0, Request{Delete: &Delete{Key: "a", Prev: true}}).ID
	s.second = s.watch(s.resumed.watcher, start)
	s.grant = s.do(1, Request{Grant: &Grant{Lease: 7, TTL: 2}}).ID
	s.leased = s.do(1, Request{Put: &Put{Key: "d", Value: "6", Lease: 7}}).ID
	s.do(1, Request{Put: &Put{Key: "e", Value: "7", Lease: 7}})
	s.do(0, Request{TimeToLive: 7})
	s.do(0, Request{Leases: true})
	s.expire(7, 3*time.Second)
	s.expired = s.log.Last()
	s.compaction = s.do(0, Request{Compact: &Compact{Revision: 4}}).ID
	s.refused = s.newWatch(all("refused"), 2)
	s.lose = true
	s.lost = s.do(2, put("f", "8")).ID
	s.down()
	s.afterDown = s.do(0, put("g", "9")).ID
	s.do(1, getAll())
	s.do(1, Request{Range: &Range{Key: "g", Serializable: true}})
	s.history = s.finish()
	return s
}

func (s *scene) op(id int) *Operation { return &s.history.Operations[id] }

// lastOf returns the last response with events of a leg.
func lastOf(o *openLeg) *WatchAnswer {
	for _, answer := range slices.Backward(o.leg.Answers) {
		if len(answer.Events) > 0 {
			return answer
		}
	}
	return nil
}

// holding returns the index of the response whose first event has a revision.
func holding(leg *Leg, revision int64) int {
	return slices.IndexFunc(leg.Answers, func(a *WatchAnswer) bool { return len(a.Events) > 0 && a.Events[0].Mod == revision })
}

// everywhere changes the answers of all watches, like a fault of the store itself, not only of one watch.
func (s *scene) everywhere(change func(leg *Leg)) {
	for _, watcher := range append([]*Watcher{s.history.Reference, s.history.Final}, s.history.Watchers...) {
		for _, leg := range watcher.Legs {
			change(leg)
		}
	}
}

// without removes an event from a leg.
func without(leg *Leg, revision int64, key string) {
	leg.Answers = slices.DeleteFunc(leg.Answers, func(a *WatchAnswer) bool {
		had := len(a.Events)
		a.Events = slices.DeleteFunc(slices.Clone(a.Events), func(e Event) bool { return e.Mod == revision && e.Key == key })
		return had > 0 && len(a.Events) == 0
	})
}

func TestTheSceneIsRight(t *testing.T) {
	s := newScene(t)
	f := check(s.history, time.Minute, "")
	for _, violation := range f.Violations {
		t.Errorf("%s: %s", violation.Claim, violation.Text)
	}
	for _, claim := range claims {
		if f.Checked[claim] == 0 {
			t.Errorf("%s was not checked", claim)
		}
	}
	if f.Expired != 1 || f.Pinned != 1 {
		t.Errorf("%d leases expired and %d operations were pinned, want one of each", f.Expired, f.Pinned)
	}
}

// Every corruption of a history must be reported, with the right claim.
func TestABadHistoryIsReported(t *testing.T) {
	for _, bad := range append(badOperations, badWatches...) {
		t.Run(bad.name, func(t *testing.T) {
			s := newScene(t)
			bad.spoil(s)
			f := check(s.history, time.Minute, t.TempDir())
			if !f.Violates(bad.claim) {
				t.Errorf("%s was not reported, but: %v", bad.claim, f.Violations)
			}
		})
	}
}

type badHistory struct {
	name  string
	claim string
	spoil func(s *scene)
}

// answered replaces the answer of an operation with the one from the state at another revision.
func (s *scene) answered(id int, revision int64) {
	o := s.op(id)
	o.Answer, _ = view{log: s.log, revision: revision}.execute(o.Request)
}

func (s *scene) String() string { return fmt.Sprint(s.log.changes) }
