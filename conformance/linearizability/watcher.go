package main

// A Watcher is one watch as its client sees it: over all connections, cancellations and resumptions.
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

// A Leg is a watch from its creation to its end. A client of etcd may reconnect within one; resuming on our own makes
// a new one.
type Leg struct {
	// Start is the revision asked for; 0 is "from now on".
	Start   int64          `json:"start"`
	Sent    int64          `json:"sent"`
	Answers []*WatchAnswer `json:"answers"`
	// End says why: cancelled by us, refused by the server, broken connection, end of the round.
	End   string `json:"end"`
	Ended int64  `json:"ended"`
}

// How a leg ended.
const (
	endCancelled = "cancelled"
	endRefused   = "refused"
	endBroken    = "broken"
	endRound     = "round"
)

// A WatchAnswer is one response.
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

// An Event is a change, with the pair before it if that was sent.
type Event struct {
	Change
	Prev *Pair `json:"prev,omitempty"`
}

// isProgress says whether an answer promises that everything up to its revision has been delivered.
func (a *WatchAnswer) isProgress() bool {
	return len(a.Events) == 0 && !a.Created && !a.Canceled && a.Compact == 0 && a.Revision != 0
}

// wants says whether a change concerns the watcher.
func (w *Watcher) wants(change Change) bool {
	if change.Delete && w.NoDelete || !change.Delete && w.NoPut {
		return false
	}
	return inRange(change.Key, w.Key, w.End)
}

// next is the revision to resume a leg from: behind everything that was delivered or promised to be.
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
		// Nothing has come yet. (The watch may have begun a little below the revision that its creation reports.)
		return created
	}
	return next
}
