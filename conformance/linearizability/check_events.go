package main

import "slices"

// events compares the events of one response with the log.
func (w *walk) events(b batch) {
	last := b.events[len(b.events)-1].Mod
	if b.header < last {
		w.violated(claimReliable, "a response with events up to revision %d has revision %d in its header", last, b.header)
	}
	if last > w.timeline.Possible(b.at) {
		w.violated(claimReliable, "revision %d was delivered before it could have been made", last)
	}
	w.f.Events += len(b.events)
	for _, claim := range []string{claimOrdered, claimUnique, claimReliable, claimFilters} {
		w.f.checked(claim, len(b.events))
	}
	for _, group := range byRevision(b.events) {
		w.group(group, b)
	}
}

// group checks the events of one revision.
func (w *walk) group(events []Event, b batch) {
	revision := events[0].Mod
	known := true
	for _, event := range events {
		known = w.event(event, b) && known
	}
	if revision < w.next {
		w.late(events)
		return
	}
	if missing := w.missing(revision - 1); missing != 0 {
		claim := claimReliable
		if w.resumed && w.fresh {
			claim = claimResumable
		}
		w.violated(claim, "revision %d was skipped; revision %d came next", missing, revision)
	}
	w.next = revision + 1
	if !known {
		return
	}
	wanted := 0
	for _, change := range w.log.Changes(revision) {
		if w.watcher.wants(change) {
			wanted++
		}
	}
	if wanted > 1 {
		w.f.checked(claimAtomic, 1)
	}
	if len(events) < wanted {
		w.violated(claimAtomic, "%d of the %d events of revision %d came in one response", len(events), wanted, revision)
	}
}

// event compares one event with the log, and reports whether it is an expected one.
func (w *walk) event(event Event, b batch) bool {
	changes := w.log.Changes(event.Mod)
	at := slices.IndexFunc(changes, func(c Change) bool { return c.Key == event.Key })
	if at < 0 {
		w.violated(claimReliable, "%v never happened: revision %d changed %v", event.Change, event.Mod, changes)
		return false
	}
	if changes[at] != event.Change {
		w.violated(claimReliable, "revision %d was delivered as %v, but is %v", event.Mod, event.Change, changes[at])
		return false
	}
	if !w.watcher.wants(event.Change) {
		w.violated(claimFilters, "%v is outside the watched range or filtered", event.Change)
		return false
	}
	w.previous(event, b)
	if w.delivered[event.Key] == event.Mod {
		w.violated(claimUnique, "revision %d of %q was delivered twice", event.Mod, event.Key)
	}
	w.delivered[event.Key] = max(w.delivered[event.Key], event.Mod)
	return true
}

// late classifies events of a revision that should have been delivered earlier.
func (w *walk) late(events []Event) {
	revision := events[0].Mod
	switch {
	case revision < w.leg.Start:
		claim := claimReliable
		if w.resumed {
			claim = claimResumable
		}
		w.violated(claim, "revision %d is before the start", revision)
	case revision == w.next-1:
		// A repetition, or the second part of a split revision: both have been reported.
	case revision <= w.promised:
		w.violated(claimBookmarkable, "revision %d was delivered after revision %d had been promised", revision, w.promised)
	default:
		w.violated(claimOrdered, "revision %d was delivered after revision %d", revision, w.next-1)
	}
}

// previous checks the previous pair: it is present and correct if requested, unless it may have been compacted.
func (w *walk) previous(event Event, b batch) {
	if !w.watcher.Prev {
		if event.Prev != nil {
			w.violated(claimPrevious, "revision %d of %q has a previous pair, which was not requested", event.Mod, event.Key)
		}
		return
	}
	w.f.checked(claimPrevious, 1)
	before, existed := w.log.At(event.Mod - 1).Find(event.Key)
	switch {
	case event.Prev == nil && existed && event.Mod-1 >= w.maybeCompacted(b.at):
		w.violated(claimPrevious, "revision %d of %q lacks the previous pair %v", event.Mod, event.Key, before)
	case event.Prev != nil && !existed:
		w.violated(claimPrevious, "revision %d creates %q, but has the previous pair %v", event.Mod, event.Key, *event.Prev)
	case event.Prev != nil && *event.Prev != before:
		w.violated(claimPrevious, "revision %d of %q has the previous pair %v instead of %v",
			event.Mod, event.Key, *event.Prev, before)
	}
}
