package main

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
)

// A Generator generates the random requests of one client.
type Generator struct {
	rng    *rand.Rand
	world  *World
	client int
	values int
	// large means that some values have several kilobytes.
	large bool
}

// Next returns the next request.
func (g *Generator) Next() Request {
	type weighted struct {
		weight int
		make   func() Request
	}
	kinds := []weighted{
		{240, func() Request { return Request{Put: g.put(g.key())} }},
		{200, func() Request { return Request{Range: g.read()} }},
		{70, func() Request { return Request{Range: g.readOld()} }},
		{90, func() Request { return Request{Delete: &Delete{Key: g.key(), Prev: g.chance(0.4)}} }},
		{20, func() Request { return Request{Delete: g.removeSpan()} }},
		{230, func() Request { return Request{Txn: g.txn(1)} }},
		{60, g.putWithLease},
		{30, func() Request { return Request{Grant: &Grant{Lease: g.world.NewLease(), TTL: 2 + g.rng.Int64N(2)}} }},
		{45, g.lease},
		{5, func() Request { return Request{Leases: true} }},
		{7, func() Request { return Request{Compact: g.compact()} }},
	}
	total := 0
	for _, kind := range kinds {
		total += kind.weight
	}
	at := g.rng.IntN(total)
	for _, kind := range kinds {
		if at -= kind.weight; at < 0 {
			return kind.make()
		}
	}
	panic("the weights do not add up")
}

func (g *Generator) chance(p float64) bool { return g.rng.Float64() < p }

// key returns a random key, one of the first five more often.
func (g *Generator) key() string {
	if g.chance(0.5) {
		return keys[g.rng.IntN(5)]
	}
	key := keys[g.rng.IntN(len(keys))]
	if slices.Contains(leased, key) && g.chance(0.8) {
		return g.key()
	}
	return key
}

func (g *Generator) span() [2]string { return spans[g.rng.IntN(len(spans))] }

// value returns a unique value in a random one of the relevant forms.
func (g *Generator) value() string {
	g.values++
	id := fmt.Sprintf("c%d-%d", g.client, g.values)
	if g.large && g.chance(0.3) {
		return fmt.Sprintf("%s%c%d", id, padding, 1000+g.rng.IntN(12_000))
	}
	switch g.rng.IntN(8) {
	case 0:
		return fmt.Sprintf(`{"op":%q,"list":[1,{"a":null}],"empty":{}}`, id)
	case 1:
		return fmt.Sprintf(`{"op":%q}`, id) + "\n"
	case 2:
		return fmt.Sprintf("{\n  \"op\": %q\n}\n", id)
	case 3:
		return "op: " + id + "\nlines: |\n  one\n  two\n"
	case 4:
		return "hex:" + hex.EncodeToString([]byte("\x00\xff"+id))
	case 5:
		return fmt.Sprintf("%s%c%d", id, padding, 1+g.rng.IntN(200))
	default:
		return id
	}
}

func (g *Generator) put(key string) *Put {
	put := &Put{Key: key, Prev: g.chance(0.3)}
	switch {
	case g.chance(0.05):
		put.IgnoreValue = true
	case g.chance(0.05):
		put.IgnoreLease = true
		put.Value = g.value()
	default:
		put.Value = g.value()
	}
	return put
}

func (g *Generator) putWithLease() Request {
	put := g.put(g.key())
	if g.chance(0.6) {
		put.Key = leased[g.rng.IntN(len(leased))]
	}
	if !put.IgnoreLease {
		put.Lease = g.world.Lease(g.rng)
	}
	if put.Lease != 0 && put.IgnoreValue {
		// If both the lease and the key are missing, etcd reports the lease for a put, but the key for a put in a
		// transaction.
		return Request{Txn: &Txn{Then: []Request{{Put: put}}}}
	}
	return Request{Put: put}
}

func (g *Generator) lease() Request {
	lease := g.world.Lease(g.rng)
	switch {
	case lease == 0:
		return Request{Leases: true}
	case g.chance(0.3):
		return Request{Revoke: lease}
	case g.chance(0.5):
		return Request{KeepAlive: lease}
	default:
		return Request{TimeToLive: lease}
	}
}

func (g *Generator) removeSpan() *Delete {
	span := g.span()
	return &Delete{Key: span[0], End: span[1], Prev: g.chance(0.4)}
}

// compact returns a compaction up to the reference watch; sometimes at an already compacted or a far future revision.
func (g *Generator) compact() *Compact {
	compact := &Compact{Physical: g.chance(0.2)}
	reference := g.world.reference.Load()
	switch g.rng.IntN(10) {
	case 0:
		compact.Revision = max(1, g.world.compacted.Load()-g.rng.Int64N(3))
	case 1:
		compact.Revision = g.world.revision.Load() + 1_000_000
	case 2, 3:
		compact.Revision = reference
	default:
		compact.Revision = max(1, reference-g.rng.Int64N(200))
	}
	return compact
}

// old returns a revision that is probably readable.
func (g *Generator) old() int64 {
	from, to := max(1, g.world.compacted.Load()-2), g.world.revision.Load()+2
	if to-from > 400 && g.chance(0.5) {
		from = to - 400
	}
	return from + g.rng.Int64N(max(1, to-from))
}
