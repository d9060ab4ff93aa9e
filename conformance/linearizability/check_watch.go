package main

import "slices"

// checkWatches compares every watcher with the log.
func checkWatches(p *Plan, f *Findings) {
	checkWatcher(p, p.history.Reference, f)
	for _, watcher := range p.history.Watchers {
		checkWatcher(p, watcher, f)
	}
}

// A walk checks the answers of one leg of a watcher, in order.
type walk struct {
	*Plan
	watcher *Watcher
	leg     *Leg
	f       *Findings
	resumed bool
	// next is the revision below which everything that the watcher wants has been delivered.
	next int64
	// promised is the highest revision of a progress notification.
	promised  int64
	delivered map[string]int64 // last revision delivered for each key
	// fresh means that this leg has had no event yet.
	fresh bool
}

func checkWatcher(p *Plan, w *Watcher, f *Findings) {
	for i, leg := range w.Legs {
		walk := &walk{Plan: p, watcher: w, leg: leg, f: f, resumed: i > 0, fresh: true, delivered: map[string]int64{}}
		if walk.begin() {
			walk.along()
		}
	}
}

func (w *walk) violated(claim, format string, arguments ...any) {
	w.f.violated(claim, "watcher %s, from revision %d: "+format,
		append([]any{w.watcher.Name, w.leg.Start}, arguments...)...)
}

// begin determines the first revision of the leg. It reports false for a watch from now on that was never
// created.
func (w *walk) begin() bool {
	if w.resumed {
		w.f.checked(claimResumable, 1)
	}
	w.next = w.leg.Start
	if w.leg.Start != 0 {
		w.refusal()
		return true
	}
	created, first := int64(-1), int64(-1)
	for _, answer := range w.leg.Answers {
		if answer.Created {
			created = answer.Revision
		}
		if len(answer.Events) > 0 && first < 0 {
			first = answer.Events[0].Mod
		}
	}
	if created < 0 {
		return false
	}
	certain := w.timeline.Certain(w.leg.Sent)
	if created < certain {
		w.violated(claimMonotonic, "created at revision %d, after revision %d had been seen", created, certain)
	}
	w.next = created + 1
	if first >= 0 && first <= created {
		// The revision of the header is read after the watch was created.
		w.next = first
	}
	if w.next <= certain {
		w.violated(claimReliable, "it watches from now on, but begins with revision %d, after revision %d had been seen",
			w.next, certain)
	}
	return true
}

// refusal checks that a watch from a revision that was compacted before the request is refused.
func (w *walk) refusal() {
	if w.leg.Start >= w.compacted(w.leg.Sent) {
		return
	}
	w.f.checked(claimCompacted, 1)
	refused := slices.ContainsFunc(w.leg.Answers, func(a *WatchAnswer) bool { return a.Compact != 0 })
	if slices.ContainsFunc(w.leg.Answers, func(a *WatchAnswer) bool { return len(a.Events) > 0 }) {
		w.violated(claimCompacted, "it has events, although revision %d was compacted", w.compacted(w.leg.Sent))
	} else if !refused && w.leg.End != endBroken && !w.history.down(w.leg.Sent, w.leg.Ended) {
		w.violated(claimCompacted, "it is not refused, although revision %d was compacted", w.compacted(w.leg.Sent))
	}
}

func (w *walk) along() {
	all := batches(w.leg)
	for i, batch := range all {
		answer := batch.answer
		switch {
		case answer.Compact != 0:
			w.compact(batch)
		case answer.isProgress():
			w.progress(batch)
		case len(batch.events) > 0:
			w.events(batch)
			w.fresh = false
		}
		if answer.Canceled && i < len(all)-1 {
			w.violated(claimReliable, "an answer came after the watch was cancelled")
		}
	}
	if w.leg.End == endRound && !slices.Contains(w.history.Stuck, w.watcher.Name) {
		if missing := w.missing(w.log.Last()); missing != 0 {
			w.violated(claimReliable, "revision %d was not delivered by the end", missing)
		}
	}
}

// missing returns the first revision up to a bound that the watcher wants and that was not delivered, or 0.
func (w *walk) missing(to int64) int64 {
	for revision := max(w.next, 1); revision <= min(to, w.log.Last()); revision++ {
		if slices.ContainsFunc(w.log.Changes(revision), w.watcher.wants) {
			return revision
		}
	}
	return 0
}

func (w *walk) progress(b batch) {
	w.f.checked(claimBookmarkable, 1)
	if missing := w.missing(b.header); missing != 0 {
		w.violated(claimBookmarkable, "revision %d was promised before revision %d was delivered", b.header, missing)
	}
	if b.header > w.timeline.Possible(b.at) {
		w.violated(claimBookmarkable, "revision %d was promised before it could have been made", b.header)
	}
	w.promised = max(w.promised, b.header)
	w.next = max(w.next, b.header+1)
}

func (w *walk) compact(b batch) {
	compact := b.answer.Compact
	w.f.checked(claimCompacted, 1)
	switch {
	case !b.answer.Canceled:
		w.violated(claimCompacted, "there is a compact revision, %d, but the watch is not cancelled", compact)
	case w.next >= compact:
		w.violated(claimCompacted, "it is refused with compact revision %d, but continues at revision %d", compact, w.next)
	case !w.wasCompacted(compact, b.at):
		w.violated(claimCompacted, "it is refused with compact revision %d, which no client compacted", compact)
	case compact < w.compacted(w.leg.Sent):
		w.violated(claimCompacted, "it is refused with compact revision %d, after revision %d was compacted",
			compact, w.compacted(w.leg.Sent))
	}
}

// compacted returns the compact revision that was certainly in effect at a time.
func (p *Plan) compacted(at int64) int64 {
	compact := int64(0)
	for _, o := range p.compactions {
		if !o.Unknown && o.Return < at {
			compact = max(compact, o.Request.Compact.Revision)
		}
	}
	return compact
}

// wasCompacted reports whether a compaction at a revision was requested by a time, and not refused.
func (p *Plan) wasCompacted(revision, at int64) bool {
	return slices.ContainsFunc(p.compactions, func(o *Operation) bool {
		return o.Call <= at && o.Request.Compact.Revision == revision
	})
}

// maybeCompacted returns the highest revision that may have been compacted by a time.
func (p *Plan) maybeCompacted(at int64) int64 {
	compact := int64(0)
	for _, o := range p.compactions {
		if o.Call <= at {
			compact = max(compact, o.Request.Compact.Revision)
		}
	}
	return compact
}
