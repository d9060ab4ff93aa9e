package main

import "slices"

// events holds the events of one response against the log.
func (w *walk) events(b batch) {
	last := b.events[len(b.events)-1].Mod
	if b.header < last {
		w.violated(claimReliable, "a response with events up to revision %d has revision %d in its header", last, b.header)
	}
	if last > w.timeline.Possible(b.at) {
		w.violated(claimReliable, "revision %d was delivered before it can have been made", last)
	}
	w.f.Events += len(b.events)
	for _, claim := range []string{claimOrdered, claimUnique, claimReliable, claimFilters} {
		w.f.checked(claim, len(b.events))
	}
	for _, group := range byRevision(b.events) {
		w.group(group, b)
	}
}

// group takes the events of one revision.
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
		w.violated(claim, "revision %d was left out; revision %d came instead", missing, revision)
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

// event holds one event against the log; false if the log does not have it.
func (w *walk) event(event Event, b batch) bool {
	changes := w.log.Changes(event.Mod)
	at := slices.IndexFunc(changes, func(c Change) bool { return c.Key == event.Key })
	if at < 0 {
		w.violated(claimReliable, "%v never happened: revision %d changed %v", event.Change, event.Mod, changes)
		return false
	}
	if changes[at] != event.Change {
		w.violated(claimReliable, "revision %d is delivered as %v, but was %v", event.Mod, event.Change, changes[at])
		return false
	}
	if !w.watcher.wants(event.Change) {
		w.violated(claimFilters, "%v is not what was asked for", event.Change)
		return false
	}
	w.previous(event, b)
	if w.delivered[event.Key] == event.Mod {
		w.violated(claimUnique, "revision %d of %q was delivered twice", event.Mod, event.Key)
	}
	w.delivered[event.Key] = max(w.delivered[event.Key], event.Mod)
	return true
}

// late finds out what is wrong with events of a revision that is behind what was delivered already.
func (w *walk) late(events []Event) {
	revision := events[0].Mod
	switch {
	case revision < w.leg.Start:
		claim := claimReliable
		if w.resumed {
			claim = claimResumable
		}
		w.violated(claim, "revision %d is from before the start", revision)
	case revision == w.next-1:
		// A second time, or the rest of a revision that was split: both are told already.
	case revision <= w.promised:
		w.violated(claimBookmarkable, "revision %d was delivered after revision %d had been promised", revision, w.promised)
	default:
		w.violated(claimOrdered, "revision %d was delivered after revision %d", revision, w.next-1)
	}
}

// previous: the pair before is there if it was asked for, unless it may have been compacted meanwhile.
func (w *walk) previous(event Event, b batch) {
	if !w.watcher.Prev {
		if event.Prev != nil {
			w.violated(claimPrevious, "revision %d of %q comes with a previous pair, not asked for", event.Mod, event.Key)
		}
		return
	}
	w.f.checked(claimPrevious, 1)
	before, existed := w.log.At(event.Mod - 1).Find(event.Key)
	switch {
	case event.Prev == nil && existed && event.Mod-1 >= w.maybeCompacted(b.at):
		w.violated(claimPrevious, "revision %d of %q comes without the previous pair %v", event.Mod, event.Key, before)
	case event.Prev != nil && !existed:
		w.violated(claimPrevious, "revision %d creates %q, but comes with a previous pair %v", event.Mod, event.Key, *event.Prev)
	case event.Prev != nil && *event.Prev != before:
		w.violated(claimPrevious, "revision %d of %q comes with the previous pair %v instead of %v",
			event.Mod, event.Key, *event.Prev, before)
	}
}
