package main

import (
	"fmt"
	"slices"
)

// A Move is one step of the server, for which the checker has to find a moment: a client's operation, or the expiry of
// a lease.
type Move struct {
	Operation *Operation // nil for an expiry
	Request   Request
	Call      int64
	Return    int64
	// Optional means that it may not have happened at all.
	Optional bool
	// Wrote is the revision that it made, if that is certain.
	Wrote int64
	// Candidates are revisions that an optional move may have made.
	Candidates []int64
}

// known reports whether there is an answer to compare with the model.
func (m *Move) known() bool { return m.Operation != nil && !m.Operation.Unknown }

// A State is the whole store: the values of the keys follow from the revision, through the log. So a write is possible
// only where the log has exactly its changes.
type State struct {
	Revision int64
	Compact  int64
	// Leases has one letter for each lease of the history: '-' before its grant or after its end, 'a' alive.
	Leases string
}

// A Model decides which moves a store can make.
type Model struct {
	log *Log
	// owner maps revisions to the moves that certainly made them.
	owner map[int64]*Move
	// lease is the index of each lease in State.Leases.
	lease map[int64]int
}

// Init returns the state of an empty store.
func (m *Model) Init() State {
	return State{Revision: 1, Leases: string(slices.Repeat([]byte{'-'}, len(m.lease)))}
}

func (m *Model) alive(s State, lease int64) bool {
	at, found := m.lease[lease]
	return found && s.Leases[at] == 'a'
}

func (m *Model) with(s State, lease int64, status byte) State {
	at, found := m.lease[lease]
	if !found {
		panic(fmt.Sprintf("lease %d is not in the history", lease))
	}
	leases := []byte(s.Leases)
	leases[at] = status
	s.Leases = string(leases)
	return s
}

// Step reports whether a move, with its answer if there is one, is possible in a state, and returns the next state.
//
// An optional move is executed where it has an effect that the log confirms. Otherwise it is postponed to the end of the
// history, where it counts as not executed: it never returns, so it always fits there.
func (m *Model) Step(s State, move *Move) (bool, State) {
	request := move.Request
	if move.Wrote != 0 && move.Wrote != s.Revision+1 {
		return false, s
	}
	switch {
	case request.Compact != nil:
		return m.compact(s, move)
	case request.Grant != nil:
		return m.grant(s, move)
	case request.Revoke != 0:
		return m.end(s, move, request.Revoke)
	case request.Expire != 0:
		return m.end(s, move, request.Expire)
	case request.KeepAlive != 0:
		answer := move.Operation.Answer
		if !m.alive(s, request.KeepAlive) {
			return answer.Error == errLeaseNotFound, s
		}
		// The server makes the header before it looks up the lease.
		return answer.Error == "" && answer.Revision <= s.Revision, s
	case request.TimeToLive != 0:
		return m.alive(s, request.TimeToLive) == (move.Operation.Answer.Granted != 0), s
	default:
		return m.keyValue(s, move)
	}
}

func (m *Model) keyValue(s State, move *Move) (bool, State) {
	if move.Optional && !slices.Contains(move.Candidates, s.Revision+1) {
		return s.Revision == m.log.Last(), s
	}
	v := view{log: m.log, revision: s.Revision, compact: s.Compact}
	v.alive = func(lease int64) bool { return m.alive(s, lease) }
	want, changes := v.execute(move.Request)
	if move.known() && differs(move.Request, want, move.Operation.Answer) != "" {
		return false, s
	}
	if len(changes) == 0 {
		return move.known(), s
	}
	return m.commit(s, move, changes)
}

// commit makes the next revision, unless the log has other changes there or another move certainly made it.
func (m *Model) commit(s State, move *Move, changes []Change) (bool, State) {
	next := s.Revision + 1
	if owner := m.owner[next]; owner != nil && owner != move || !sameChanges(changes, m.log.Changes(next)) {
		return false, s
	}
	s.Revision = next
	return true, s
}

func (m *Model) compact(s State, move *Move) (bool, State) {
	asked, refused := move.Request.Compact.Revision, ""
	if asked <= s.Compact {
		refused = errCompacted
	} else if asked > s.Revision {
		refused = errFuture
	}
	if move.Optional && refused != "" {
		return s.Revision == m.log.Last(), s
	}
	if move.known() {
		answer := move.Operation.Answer
		if answer.Error != refused || refused == "" && answer.Revision != s.Revision {
			return false, s
		}
	}
	if refused == "" {
		s.Compact = asked
	}
	return true, s
}

func (m *Model) grant(s State, move *Move) (bool, State) {
	lease := move.Request.Grant.Lease
	exists := m.alive(s, lease)
	if move.known() {
		answer := move.Operation.Answer
		// The header may be from a moment after the grant.
		if exists != (answer.Error == errLeaseExists) || !exists && answer.Revision < s.Revision {
			return false, s
		}
	} else if exists {
		return s.Revision == m.log.Last(), s
	}
	if exists {
		return true, s
	}
	return true, m.with(s, lease, 'a')
}

// end removes a lease and deletes all its keys, in one revision.
func (m *Model) end(s State, move *Move, lease int64) (bool, State) {
	if !m.alive(s, lease) {
		if move.known() {
			return move.Operation.Answer.Error == errLeaseNotFound, s
		}
		return s.Revision == m.log.Last(), s
	}
	if move.known() && move.Operation.Answer.Error != "" {
		return false, s
	}
	after := m.with(s, lease, '-')
	changes := endOf(m.log.At(s.Revision), lease, s.Revision+1)
	if move.Wrote != 0 && len(changes) == 0 {
		return false, s
	}
	if len(changes) > 0 {
		if move.Optional && s.Revision == m.log.Last() {
			return true, s
		}
		possible, committed := m.commit(s, move, changes)
		if !possible {
			return false, s
		}
		after.Revision = committed.Revision
	}
	return !move.known() || move.Operation.Answer.Revision == after.Revision, after
}

// endOf returns the changes at the end of a lease.
func endOf(state Snapshot, lease, revision int64) []Change {
	var changes []Change
	for _, key := range state.Attached(lease) {
		changes = append(changes, Change{Delete: true, Pair: Pair{Key: key, Mod: revision}})
	}
	return changes
}
