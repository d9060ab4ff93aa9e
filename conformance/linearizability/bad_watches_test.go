package main

import "slices"

var badWatches = []badHistory{
	{"an event twice", claimUnique, func(s *scene) {
		last := *lastOf(s.plain)
		s.plain.leg.Answers = append(s.plain.leg.Answers, &last)
	}},
	{"an event twice in one response", claimUnique, func(s *scene) {
		last := lastOf(s.plain)
		last.Events = append(last.Events, last.Events[0])
	}},
	{"a gap", claimReliable, func(s *scene) { without(s.plain.leg, 3, "a") }},
	{"a missing end", claimReliable, func(s *scene) { without(s.current("plain"), s.log.Last(), "g") }},
	{"an event that never happened", claimReliable, func(s *scene) {
		last := lastOf(s.plain)
		last.Events[0].Key = "never"
	}},
	{"an event with another value", claimReliable, func(s *scene) { lastOf(s.plain).Events[0].Value = "another" }},
	{"an event before it happened", claimReliable, func(s *scene) {
		s.plain.leg.Answers[holding(s.plain.leg, 4)].At = 1
	}},
	{"a header older than the events", claimReliable, func(s *scene) { lastOf(s.plain).Revision-- }},
	{"a watcher that is stuck", claimReliable, func(s *scene) { s.history.Stuck = []string{"plain"} }},
	{"a watch from now on with past events", claimReliable, func(s *scene) {
		open := s.bookmarked.leg
		open.Sent = s.now
	}},
	{"events out of order", claimOrdered, func(s *scene) {
		answers := s.plain.leg.Answers
		answers[2], answers[3] = answers[3], answers[2]
	}},
	{"events out of order in one response", claimOrdered, func(s *scene) {
		answers := s.plain.leg.Answers
		answers[3].Events = append(answers[3].Events, answers[2].Events...)
		s.plain.leg.Answers = slices.Delete(answers, 2, 3)
	}},
	{"a revision in two responses", claimAtomic, func(s *scene) {
		at := holding(s.plain.leg, s.txnRevision)
		whole := s.plain.leg.Answers[at]
		first, second := *whole, *whole
		first.Events, second.Events = whole.Events[:1], whole.Events[1:]
		s.plain.leg.Answers = slices.Replace(s.plain.leg.Answers, at, at+1, &first, &second)
	}},
	{"half a revision", claimAtomic, func(s *scene) { without(s.plain.leg, s.txnRevision, "c") }},
	{"a gap at the resumption", claimResumable, func(s *scene) { without(s.second.leg, s.second.leg.Start, "a") }},
	{"repeated events at the resumption", claimResumable, func(s *scene) {
		before := *lastOf(s.resumed)
		answers := s.second.leg.Answers
		s.second.leg.Answers = slices.Insert(answers, 1, &before)
	}},
	{"a bookmark before the events", claimBookmarkable, func(s *scene) {
		leg := s.bookmarked.leg
		at := slices.IndexFunc(leg.Answers, (*WatchAnswer).isProgress)
		leg.Answers[at-1], leg.Answers[at] = leg.Answers[at], leg.Answers[at-1]
	}},
	{"a bookmark instead of the events", claimBookmarkable, func(s *scene) {
		for _, key := range []string{"a", "b", "c"} {
			without(s.bookmarked.leg, s.txnRevision, key)
		}
	}},
	{"a bookmark at a future revision", claimBookmarkable, func(s *scene) {
		leg := s.bookmarked.leg
		leg.Answers[slices.IndexFunc(leg.Answers, (*WatchAnswer).isProgress)].Revision = s.log.Last()
	}},
	{"a wrong previous pair", claimPrevious, func(s *scene) { lastOf(s.second).Events[0].Prev = &Pair{Key: "x"} }},
	{"a missing previous pair", claimPrevious, func(s *scene) {
		s.plain.leg.Answers[holding(s.plain.leg, s.txnRevision)].Events[0].Prev = nil
	}},
	{"a previous pair of a new key", claimPrevious, func(s *scene) {
		s.plain.leg.Answers[holding(s.plain.leg, 2)].Events[0].Prev = &Pair{Key: "a", Version: 1}
	}},
	{"an unrequested previous pair", claimPrevious, func(s *scene) {
		lastOf(s.filtered).Events[0].Prev = &Pair{Key: "a"}
	}},
	{"an event that should be filtered", claimFilters, func(s *scene) {
		put := *s.plain.leg.Answers[holding(s.plain.leg, 2)]
		put.Events = []Event{{Change: put.Events[0].Change}}
		s.filtered.leg.Answers = slices.Insert(s.filtered.leg.Answers, 1, &put)
	}},
	{"an event of another key", claimFilters, func(s *scene) {
		s.filtered.watcher.Key = "b"
	}},
	{"a watch of compacted revisions that has events", claimCompacted, func(s *scene) {
		s.refused.leg.Answers[1] = &WatchAnswer{At: s.now, Revision: s.log.Last(), Events: lastOf(s.plain).Events}
	}},
	{"a watch of compacted revisions that is not refused", claimCompacted, func(s *scene) {
		s.refused.leg.Answers, s.refused.leg.End = s.refused.leg.Answers[:1], endRound
	}},
	{"a refusal with a wrong compact revision", claimCompacted, func(s *scene) { s.refused.leg.Answers[1].Compact = 3 }},
	{"an unjustified refusal of a watch", claimCompacted, func(s *scene) {
		s.second.leg.Answers = append(s.second.leg.Answers, &WatchAnswer{At: s.now, Canceled: true, Compact: 4})
	}},
	{"a reference with a gap", claimReliable, func(s *scene) { without(s.history.Reference.Legs[0], 3, "a") }},
	{"a reference with a repetition", claimUnique, func(s *scene) {
		leg := s.history.Reference.Legs[0]
		again := *leg.Answers[holding(leg, 2)]
		leg.Answers = append(leg.Answers, &again)
	}},
	{"a reference with a gap at the resumption", claimResumable, func(s *scene) {
		without(s.history.Reference.Legs[1], s.log.Last(), "g")
		leg := s.history.Reference.Legs[1]
		event := Event{Change: Change{Pair: Pair{Key: "h", Mod: s.log.Last() + 1, Create: s.log.Last() + 1, Version: 1}}}
		leg.Answers = append(leg.Answers, &WatchAnswer{At: s.now, Revision: event.Mod, Events: []Event{event}})
	}},
}

// current returns the last leg of a watcher.
func (s *scene) current(name string) *Leg {
	for _, watcher := range s.history.Watchers {
		if watcher.Name == name {
			return watcher.Legs[len(watcher.Legs)-1]
		}
	}
	return nil
}
