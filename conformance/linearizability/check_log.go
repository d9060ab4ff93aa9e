package main

// buildLog builds the log of revisions from the reference watch. The watch must have no gaps or repetitions, and each
// revision must follow from the previous one. Otherwise there is no reference for the other checks, and ok is false.
func buildLog(h *History, f *Findings) (log *Log, ok bool) {
	log = NewLog()
	for i, leg := range h.Reference.Legs {
		claim := claimReliable
		if i > 0 {
			claim = claimResumable
		}
		for _, batch := range batches(leg) {
			for _, group := range byRevision(batch.events) {
				revision := group[0].Mod
				switch {
				case revision == log.Last() && revision > 1:
					f.violated(claimAtomic, "reference watch: revision %d was split over two responses, or repeated", revision)
					return log, false
				case revision <= log.Last():
					f.violated(claimUnique, "reference watch: revision %d came after revision %d", revision, log.Last())
					return log, false
				case revision > log.Last()+1:
					f.violated(claim, "reference watch: revision %d came right after revision %d", revision, log.Last())
					return log, false
				}
				changes := make([]Change, len(group))
				for i, event := range group {
					changes[i] = event.Change
				}
				if err := log.Append(changes); err != nil {
					f.violated(claimRevisions, "reference watch: %v", err)
					return log, false
				}
			}
			if len(batch.events) > 0 {
				claim = claimReliable
			}
		}
	}
	return log, true
}

// A batch is the events of one response, or of all its fragments.
type batch struct {
	at     int64
	header int64
	events []Event
	// answer is the last response of the batch.
	answer *WatchAnswer
}

// batches assembles fragments, and drops those of incomplete responses. Answers without events are batches without events.
func batches(leg *Leg) []batch {
	var all []batch
	var parts []Event
	for _, answer := range leg.Answers {
		if len(answer.Events) == 0 {
			all = append(all, batch{at: answer.At, header: answer.Revision, answer: answer})
			continue
		}
		parts = append(parts, answer.Events...)
		if !answer.Fragment {
			all = append(all, batch{answer.At, answer.Revision, parts, answer})
			parts = nil
		}
	}
	return all
}

// byRevision groups adjacent events of the same revision.
func byRevision(events []Event) [][]Event {
	var groups [][]Event
	for i, event := range events {
		if i == 0 || events[i-1].Mod != event.Mod {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], event)
	}
	return groups
}
