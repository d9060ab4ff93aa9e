package main

import (
	"math"
	"slices"
)

// A Timeline says when revisions can have been made, from what clients sent and saw.
type Timeline struct {
	// earliest[r-1] is before revision r was made: no operation that can have made it had been called.
	earliest []int64
	// seen[r-1] is when some client first saw revision r or a later one.
	seen []int64
	// answered are the header revisions of all answers with the highest so far, by time of return.
	answered []sighting
}

type sighting struct{ at, revision int64 }

const never = math.MaxInt64

// NewTimeline takes all sightings of a history; earliest times are told with madeAfter.
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

// highest sorts sightings by time and gives each the highest revision so far.
func highest(sightings []sighting) []sighting {
	slices.SortFunc(sightings, func(a, b sighting) int { return int(a.at - b.at) })
	for i := 1; i < len(sightings); i++ {
		sightings[i].revision = max(sightings[i].revision, sightings[i-1].revision)
	}
	return sightings
}

// before is the highest revision of sightings strictly before a time.
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

// madeAfter notes that a revision, and so everything behind it, was made after a time.
func (t *Timeline) madeAfter(revision, at int64) {
	t.earliest[revision-1] = max(t.earliest[revision-1], at)
}

// settle completes the earliest times, once all are noted.
func (t *Timeline) settle() {
	for r := 1; r < len(t.earliest); r++ {
		t.earliest[r] = max(t.earliest[r], t.earliest[r-1])
	}
}

// Possible is the highest revision that can have been made by a time.
func (t *Timeline) Possible(at int64) int64 {
	i, _ := slices.BinarySearchFunc(t.earliest, at, func(earliest, at int64) int {
		if earliest <= at {
			return -1
		}
		return 1
	})
	return int64(i)
}

// Certain is the highest revision that an answer had shown before a time.
func (t *Timeline) Certain(at int64) int64 { return before(t.answered, at) }
