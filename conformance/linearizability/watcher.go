package main

// A Watcher is one watch as its client sees it, across all connections, cancellations and resumptions.
type Watcher struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	End      string `json:"end,omitempty"`
	Prev     bool   `json:"prev,omitempty"`
	Progress bool   `json:"progress,omitempty"`
	Fragment bool   `json:"fragment,omitempty"`
	NoPut    bool   `json:"noPut,omitempty"`
	NoDelete bool   `json:"noDelete,omitempty"`
	Legs     []*Leg `json:"legs"`
}

// A Leg is a watch from its creation to its end. etcd's client may reconnect within one; a resumption of ours starts a
// new one.
type Leg struct {
	// Start is the requested revision; 0 means "from now on".
	Start   int64          `json:"start"`
	Sent    int64          `json:"sent"`
	Answers []*WatchAnswer `json:"answers"`
	// End is why the leg ended: cancelled by us, refused by the server, broken connection, end of the round.
	End   string `json:"end"`
	Ended int64  `json:"ended"`
}

// Reasons for the end of a leg.
const (
	endCancelled = "cancelled"
	endRefused   = "refused"
	endBroken    = "broken"
	endRound     = "round"
)

// A WatchAnswer is one watch response.
type WatchAnswer struct {
	At       int64   `json:"at"`
	Revision int64   `json:"revision"` // of the header
	Server   *Server `json:"server,omitempty"`
	Created  bool    `json:"created,omitempty"`
	Canceled bool    `json:"canceled,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Fragment bool    `json:"fragment,omitempty"`
	Compact  int64   `json:"compact,omitempty"`
	Events   []Event `json:"events,omitempty"`
}

// An Event is a change, with the previous pair if it was sent.
type Event struct {
	Change
	Prev *Pair `json:"prev,omitempty"`
}

// isProgress reports whether an answer promises that everything up to its revision has been delivered.
func (a *WatchAnswer) isProgress() bool {
	return len(a.Events) == 0 && !a.Created && !a.Canceled && a.Compact == 0 && a.Revision != 0
}

// wants reports whether a change matches the watcher's range and filters.
func (w *Watcher) wants(change Change) bool {
	if change.Delete && w.NoDelete || !change.Delete && w.NoPut {
		return false
	}
	return inRange(change.Key, w.Key, w.End)
}

// next returns the revision to resume a leg from: after everything that was delivered or promised by progress.
func (l *Leg) next() int64 {
	next, created := l.Start, l.Start
	for _, answer := range l.Answers {
		switch {
		case answer.Created && l.Start == 0:
			created = answer.Revision + 1
		case answer.isProgress():
			next = max(next, answer.Revision+1)
		case len(answer.Events) > 0 && !answer.Fragment:
			next = max(next, answer.Events[len(answer.Events)-1].Mod+1)
		}
	}
	if next == 0 {
		// No events or progress yet. (The watch may have started slightly below the revision that its creation reports.)
		return created
	}
	return next
}
