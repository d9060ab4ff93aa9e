package main

import (
	"fmt"
	"slices"
	"strings"
)

// A Snapshot is all pairs at one revision, sorted by key. It is immutable.
type Snapshot []Pair

func byKey(pair Pair, key string) int { return strings.Compare(pair.Key, key) }

// Find returns the pair of a key.
func (s Snapshot) Find(key string) (Pair, bool) {
	at, found := slices.BinarySearchFunc(s, key, byKey)
	if !found {
		return Pair{}, false
	}
	return s[at], true
}

// Within returns the pairs in an etcd range.
func (s Snapshot) Within(key, end string) []Pair {
	if end == "" {
		if pair, found := s.Find(key); found {
			return []Pair{pair}
		}
		return nil
	}
	from, _ := slices.BinarySearchFunc(s, key, byKey)
	to := len(s)
	if end != "\x00" {
		to, _ = slices.BinarySearchFunc(s, end, byKey)
	}
	if from >= to {
		return nil
	}
	return s[from:to]
}

// Apply returns the snapshot after changes.
func (s Snapshot) Apply(changes []Change) Snapshot {
	next := slices.Clone(s)
	for _, change := range changes {
		at, found := slices.BinarySearchFunc(next, change.Key, byKey)
		switch {
		case change.Delete && found:
			next = slices.Delete(next, at, at+1)
		case change.Delete:
		case found:
			next[at] = change.Pair
		default:
			next = slices.Insert(next, at, change.Pair)
		}
	}
	return next
}

// Attached returns the keys of a lease.
func (s Snapshot) Attached(lease int64) []string {
	var keys []string
	for _, pair := range s {
		if pair.Lease == lease {
			keys = append(keys, pair.Key)
		}
	}
	return keys
}

func inRange(name, key, end string) bool {
	switch end {
	case "":
		return name == key
	case "\x00":
		return name >= key
	default:
		return name >= key && name < end
	}
}

// A Log is the changes of every revision: the reference for all checks. Index 0 is revision 1, the empty store.
type Log struct {
	changes   [][]Change
	snapshots []Snapshot
}

// NewLog returns the log of an empty store.
func NewLog() *Log { return &Log{changes: [][]Change{nil}, snapshots: []Snapshot{nil}} }

// Last returns the last revision.
func (l *Log) Last() int64 { return int64(len(l.changes)) }

// Has reports whether a revision is in the log.
func (l *Log) Has(revision int64) bool { return revision >= 1 && revision <= l.Last() }

// Changes returns the changes of a revision.
func (l *Log) Changes(revision int64) []Change {
	if !l.Has(revision) {
		return nil
	}
	return l.changes[revision-1]
}

// At returns the state at a revision.
func (l *Log) At(revision int64) Snapshot { return l.snapshots[revision-1] }

// Append adds the next revision. It rejects changes that cannot follow from the previous state: changes of another
// revision, versions that do not count up, deletions of absent keys.
func (l *Log) Append(changes []Change) error {
	revision, before := l.Last()+1, l.At(l.Last())
	if len(changes) == 0 {
		return fmt.Errorf("revision %d changes nothing", revision)
	}
	seen := map[string]bool{}
	for _, change := range changes {
		if change.Mod != revision {
			return fmt.Errorf("revision %d has a change with mod revision %d of %q", revision, change.Mod, change.Key)
		}
		if seen[change.Key] {
			return fmt.Errorf("revision %d changes %q twice", revision, change.Key)
		}
		seen[change.Key] = true
		if err := follows(before, change); err != nil {
			return fmt.Errorf("revision %d: %w", revision, err)
		}
	}
	l.changes = append(l.changes, changes)
	l.snapshots = append(l.snapshots, before.Apply(changes))
	return nil
}

func follows(before Snapshot, change Change) error {
	old, existed := before.Find(change.Key)
	switch {
	case change.Delete && !existed:
		return fmt.Errorf("%q is deleted, but did not exist", change.Key)
	case change.Delete:
	case existed && (change.Version != old.Version+1 || change.Create != old.Create):
		return fmt.Errorf("%q has version %d and create revision %d after version %d and create revision %d",
			change.Key, change.Version, change.Create, old.Version, old.Create)
	case !existed && (change.Version != 1 || change.Create != change.Mod):
		return fmt.Errorf("%q is new with version %d and create revision %d", change.Key, change.Version, change.Create)
	}
	return nil
}
