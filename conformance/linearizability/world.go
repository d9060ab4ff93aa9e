package main

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// A World is shared by the clients of a round, so that their requests interact: the newest revision, pairs and leases. It
// may be out of date; then some requests fail.
type World struct {
	revision atomic.Int64
	// reference is the last revision that the reference watch has received; no later one is compacted.
	reference atomic.Int64
	compacted atomic.Int64
	// final is the last revision of the round, or 0 before its end.
	final atomic.Int64
	// rush means that a failure is imminent: clients do not pause, so that many requests are in flight.
	rush atomic.Bool

	mutex  sync.Mutex
	pairs  map[string]Pair
	leases []int64
	next   int64
}

// NewWorld returns the world of an empty store.
func NewWorld() *World {
	w := &World{pairs: map[string]Pair{}, next: 1000}
	w.revision.Store(1)
	w.reference.Store(1)
	return w
}

func raise(value *atomic.Int64, to int64) {
	for {
		now := value.Load()
		if now >= to || value.CompareAndSwap(now, to) {
			return
		}
	}
}

// Learn updates the world from the outcome of an operation.
func (w *World) Learn(o Operation) {
	if o.Request.Compact != nil && (o.Unknown || o.Answer.Error == "") {
		raise(&w.compacted, o.Request.Compact.Revision)
	}
	raise(&w.revision, o.Answer.Revision)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.learn(o.Request, o.Answer)
	if o.Request.Grant != nil && o.Answer.Error == "" {
		const remembered = 8
		w.leases = append(w.leases, o.Request.Grant.Lease)
		if len(w.leases) > remembered {
			w.leases = w.leases[1:]
		}
	}
}

func (w *World) learn(r Request, a Answer) {
	switch {
	case a.Error != "" || a.Revision == 0:
	case r.Range != nil && r.Range.Revision == 0:
		for _, pair := range a.Pairs {
			w.pairs[pair.Key] = pair
		}
	case r.Put != nil:
		old := w.pairs[r.Put.Key]
		w.pairs[r.Put.Key] = Pair{
			Key: r.Put.Key, Value: r.Put.Value, Mod: a.Revision, Version: old.Version + 1, Create: max(old.Create, 2),
			Lease: r.Put.Lease,
		}
	case r.Delete != nil:
		delete(w.pairs, r.Delete.Key)
	case r.Txn != nil:
		for i, inner := range branchOf(r, a) {
			w.learn(inner, a.Answers[i])
		}
	}
}

// Pair returns the last seen pair of a key.
func (w *World) Pair(key string) Pair {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.pairs[key]
}

// NewLease returns a new, unique lease id.
func (w *World) NewLease() int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.next++
	return w.next
}

// Lease returns one of the latest leases, alive or not, or 0 if there is none.
func (w *World) Lease(rng *rand.Rand) int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.leases) == 0 {
		return 0
	}
	return w.leases[rng.IntN(len(w.leases))]
}

// keys cover every way in which gitcd stores a key: files, a file that is also a directory, keys outside the prefix, keys
// that are never committed.
var keys = []string{
	"/registry/a/0", "/registry/a/1", "/registry/a/2", "/registry/a/3", "/registry/a",
	"/registry/b/0", "/registry/b/1", "/registry/b/0/deep/x",
	"/registry/events/0", "/registry/events/1",
	"/registry/leased/0", "/registry/leased/1", "local/leased",
	"compact_rev_key", "local/0", "local/1", "zz",
}

// leased are keys that are mostly put with leases, so that some live until their lease ends.
var leased = []string{"/registry/leased/0", "/registry/leased/1", "local/leased"}

// spans are ranges of more than one key.
var spans = [][2]string{
	{"/registry/", "/registry0"}, {"/registry/a/", "/registry/a0"}, {"/registry/b/", "/registry/b0"},
	{"/registry/events/", "/registry/events0"}, {"\x00", "\x00"}, {"/registry/b", "\x00"},
	{"/registry/a/1", "/registry/b/1"}, {"local/", "local0"}, {"/registry/a", "/registry/a\x00"},
}

// everything is the span of all keys.
var everything = [2]string{"\x00", "\x00"}
