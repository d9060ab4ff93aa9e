package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A store is a minimal server without faults, in whose histories the checks must find nothing. Tests then corrupt these
// histories.
type store struct {
	t       *testing.T
	history *History
	log     *Log
	compact int64
	granted map[int64]int64 // TTLs of the leases that are alive
	now     int64
	legs    []*openLeg
	// lose drops the answer of the next operation.
	lose bool
}

type openLeg struct {
	watcher *Watcher
	leg     *Leg
	next    int64
}

const tick = int64(time.Millisecond)

func newStore(t *testing.T) *store {
	s := &store{t: t, history: &History{Program: "model"}, log: NewLog(), granted: map[int64]int64{}}
	s.history.Reference = &Watcher{Name: "reference", Key: everything[0], End: everything[1]}
	s.watch(s.history.Reference, 1)
	return s
}

// do executes a request and returns its operation in the history.
func (s *store) do(client int, request Request) *Operation {
	s.now += tick
	operation := Operation{ID: len(s.history.Operations), Client: client, Request: request, Call: s.now}
	answer := s.answer(request)
	s.now += tick
	s.deliver()
	s.now += tick
	operation.Return, operation.Answer, operation.Server = s.now, answer, &Server{1, 1, 2}
	if s.lose {
		operation.Unknown, operation.Failure, operation.Answer, operation.Server, s.lose = true, "lost", Answer{}, nil, false
	}
	s.history.Operations = append(s.history.Operations, operation)
	return &s.history.Operations[len(s.history.Operations)-1]
}

func (s *store) answer(r Request) Answer {
	revision := s.log.Last()
	switch {
	case r.Compact != nil:
		if r.Compact.Revision <= s.compact {
			return Answer{Error: errCompacted}
		} else if r.Compact.Revision > revision {
			return Answer{Error: errFuture}
		}
		s.compact = r.Compact.Revision
		return Answer{Revision: revision}
	case r.Grant != nil:
		s.granted[r.Grant.Lease] = r.Grant.TTL
		return Answer{Revision: revision, TTL: r.Grant.TTL}
	case r.Leases:
		answer := Answer{Revision: revision}
		for lease := range s.granted {
			answer.Leases = append(answer.Leases, lease)
		}
		return answer
	case r.TimeToLive != 0:
		return Answer{
			Revision: revision, TTL: 1, Granted: s.granted[r.TimeToLive], Keys: s.log.At(revision).Attached(r.TimeToLive),
		}
	case r.Revoke != 0 || r.KeepAlive != 0:
		ttl, alive := s.granted[r.Revoke+r.KeepAlive]
		if !alive {
			return Answer{Error: errLeaseNotFound}
		}
		if r.Revoke != 0 {
			s.end(r.Revoke)
		}
		return Answer{Revision: s.log.Last(), TTL: ttl * min(1, r.KeepAlive)}
	}
	v := view{log: s.log, revision: revision, compact: s.compact, alive: func(lease int64) bool { return s.granted[lease] != 0 }}
	answer, changes := v.execute(r)
	s.append(changes)
	return answer
}

func (s *store) append(changes []Change) {
	if len(changes) == 0 {
		return
	}
	if err := s.log.Append(changes); err != nil {
		s.t.Fatal(err)
	}
}

// end ends a lease.
func (s *store) end(lease int64) {
	delete(s.granted, lease)
	s.append(endOf(s.log.At(s.log.Last()), lease, s.log.Last()+1))
}

// expire lets time pass, and then ends a lease.
func (s *store) expire(lease int64, later time.Duration) {
	s.now += int64(later)
	s.end(lease)
	s.deliver()
}

// watch opens a leg of a watcher.
func (s *store) watch(watcher *Watcher, start int64) *openLeg {
	s.now += tick
	leg := &Leg{Start: start, Sent: s.now}
	watcher.Legs = append(watcher.Legs, leg)
	open := &openLeg{watcher, leg, start}
	if start == 0 {
		open.next = s.log.Last() + 1
	}
	s.now += tick
	s.receive(open, &WatchAnswer{Created: true, Revision: s.log.Last()})
	if start != 0 && start < s.compact {
		s.receive(open, &WatchAnswer{Canceled: true, Compact: s.compact})
		leg.End = endRefused
		return open
	}
	s.legs = append(s.legs, open)
	s.deliver()
	return open
}

func (s *store) newWatch(watcher Watcher, start int64) *openLeg {
	s.history.Watchers = append(s.history.Watchers, &watcher)
	return s.watch(&watcher, start)
}

func (s *store) receive(o *openLeg, answer *WatchAnswer) {
	s.now++
	answer.At = s.now
	o.leg.Answers = append(o.leg.Answers, answer)
}

// deliver sends new events to all watchers, in one response for each.
func (s *store) deliver() {
	for _, open := range s.legs {
		answer := &WatchAnswer{Revision: s.log.Last()}
		for ; open.next <= s.log.Last(); open.next++ {
			for _, change := range s.log.Changes(open.next) {
				if !open.watcher.wants(change) {
					continue
				}
				event := Event{Change: change}
				if before, existed := s.log.At(open.next - 1).Find(change.Key); existed && open.watcher.Prev {
					event.Prev = &before
				}
				answer.Events = append(answer.Events, event)
			}
		}
		if len(answer.Events) > 0 {
			s.receive(open, answer)
		}
	}
}

// progress sends a progress notification for the last revision.
func (s *store) progress(o *openLeg) { s.receive(o, &WatchAnswer{Revision: s.log.Last()}) }

// stop ends a leg and returns the revision to resume from.
func (s *store) stop(o *openLeg, why string) int64 {
	s.legs = slices.DeleteFunc(s.legs, func(other *openLeg) bool { return other == o })
	o.leg.End, o.leg.Ended = why, s.now
	return o.leg.next()
}

// down simulates a failure: all watches break and are resumed.
func (s *store) down() {
	downtime := Downtime{Kind: "kill", From: s.now}
	s.now += int64(time.Second)
	downtime.To = s.now
	s.history.Downtimes = append(s.history.Downtimes, downtime)
	for _, open := range slices.Clone(s.legs) {
		s.watch(open.watcher, s.stop(open, endBroken))
	}
}

// finish ends the round and returns its history.
func (s *store) finish() *History {
	s.history.Final = &Watcher{Name: "final", Key: everything[0], End: everything[1], Prev: true}
	s.watch(s.history.Final, max(1, s.compact))
	for _, open := range slices.Clone(s.legs) {
		s.stop(open, endRound)
	}
	return s.history
}

func put(key, value string) Request { return Request{Put: &Put{Key: key, Value: value, Prev: true}} }

func get(key string) Request { return Request{Range: &Range{Key: key}} }

func getAll() Request { return Request{Range: &Range{Key: everything[0], End: everything[1]}} }

// The checks find nothing in random histories of the store, with overlapping and unanswered operations.
func TestAPerfectStoreViolatesNothing(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, rng, world := newStore(t), rand.New(rand.NewPCG(seed, 0)), NewWorld()
			generator := &Generator{rng: rng, world: world, client: 1, large: seed%2 == 0}
			for i := range 400 {
				s.lose = rng.IntN(10) == 0
				s.random(rng, i)
				world.Learn(*s.do(rng.IntN(5), generator.Next()))
				raise(&world.revision, s.log.Last())
				raise(&world.reference, s.log.Last())
			}
			history := s.finish()
			for i := range history.Operations {
				o := &history.Operations[i]
				if o.Unknown {
					history.Downtimes = append(history.Downtimes, Downtime{From: o.Call, To: o.Return})
				} else if o.Answer.Error == "" {
					o.Call -= rng.Int64N(5) * tick
					o.Return += rng.Int64N(5) * tick
				}
			}
			f := check(history, time.Minute, "")
			for _, violation := range f.Violations {
				t.Errorf("%s: %s", violation.Claim, violation.Text)
			}
			t.Logf("%d revisions, %d expired, %d pinned", s.log.Last(), f.Expired, f.Pinned)
		})
	}
}

// random sometimes breaks, starts or notifies watchers, or expires a lease.
func (s *store) random(rng *rand.Rand, i int) {
	switch n := rng.IntN(40); {
	case n == 0:
		s.down()
	case n == 1:
		span := spans[rng.IntN(len(spans))]
		s.newWatch(Watcher{Name: fmt.Sprint(i), Key: span[0], End: span[1], Prev: rng.IntN(2) == 0, NoPut: rng.IntN(4) == 0},
			rng.Int64N(s.log.Last()+1))
	case n < 4 && len(s.legs) > 1:
		s.progress(s.legs[1+rng.IntN(len(s.legs)-1)])
	case n == 4 && len(s.granted) > 0:
		leases := []int64{}
		for lease := range s.granted {
			leases = append(leases, lease)
		}
		s.expire(slices.Min(leases), 5*time.Second)
	}
}
