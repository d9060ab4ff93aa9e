package main

import (
	"math"
	"slices"
)

// A Timeline bounds the times at which revisions were made, from the requests and responses of clients.
type Timeline struct {
	// earliest[r-1] is a time before which revision r cannot have been made: its operation had not been called.
	earliest []int64
	// seen[r-1] is when a client first saw revision r or a later one.
	seen []int64
	// answered are the highest header revisions so far at the return of each answer.
	answered []sighting
}

type sighting struct{ at, revision int64 }

const never = math.MaxInt64

// NewTimeline collects all sightings of a history. The earliest times are added with madeAfter.
func NewTimeline(h *History, last int64) *Timeline {
	t := &Timeline{earliest: make([]int64, last), seen: slices.Repeat([]int64{never}, int(last))}
	for _, operation := range h.Operations {
		if !operation.Unknown && operation.Answer.Error == "" {
			t.answered = append(t.answered, sighting{operation.Return, operation.Answer.Revision})
		}
	}
	all := slices.Clone(t.answered)
	for _, watcher := range append([]*Watcher{h.Reference}, h.Watchers...) {
		for _, leg := range watcher.Legs {
			for _, answer := range leg.Answers {
				all = append(all, sighting{answer.At, answer.Revision})
			}
		}
	}
	for _, s := range all {
		if s.revision >= 1 && s.revision <= last {
			t.seen[s.revision-1] = min(t.seen[s.revision-1], s.at)
		}
	}
	for r := len(t.seen) - 2; r >= 0; r-- {
		t.seen[r] = min(t.seen[r], t.seen[r+1])
	}
	t.answered = highest(t.answered)
	return t
}

// highest sorts sightings by time and raises each to the highest revision so far.
func highest(sightings []sighting) []sighting {
	slices.SortFunc(sightings, func(a, b sighting) int { return int(a.at - b.at) })
	for i := 1; i < len(sightings); i++ {
		sightings[i].revision = max(sightings[i].revision, sightings[i-1].revision)
	}
	return sightings
}

// before returns the highest revision of sightings strictly before a time.
func before(sightings []sighting, at int64) int64 {
	i, _ := slices.BinarySearchFunc(sightings, at, func(s sighting, at int64) int {
		if s.at < at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 1
	}
	return max(1, sightings[i-1].revision)
}

// madeAfter records that a revision, and therefore every later one, was made after a time.
func (t *Timeline) madeAfter(revision, at int64) {
	t.earliest[revision-1] = max(t.earliest[revision-1], at)
}

// settle propagates the earliest times to later revisions, once all are recorded.
func (t *Timeline) settle() {
	for r := 1; r < len(t.earliest); r++ {
		t.earliest[r] = max(t.earliest[r], t.earliest[r-1])
	}
}

// Possible returns the highest revision that can have been made by a time.
func (t *Timeline) Possible(at int64) int64 {
	i, _ := slices.BinarySearchFunc(t.earliest, at, func(earliest, at int64) int {
		if earliest <= at {
			return -1
		}
		return 1
	})
	return int64(i)
}

// Certain returns the highest revision that an answer had shown before a time.
func (t *Timeline) Certain(at int64) int64 { return before(t.answered, at) }
