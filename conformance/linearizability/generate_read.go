package main

import "strings"

func (g *Generator) read() *Range {
	r := &Range{Key: g.key(), Serializable: g.chance(0.25)}
	if g.chance(0.4) {
		return r
	}
	span := g.span()
	r.Key, r.End = span[0], span[1]
	if g.chance(0.3) {
		r.Limit = 1 + g.rng.Int64N(6)
	}
	switch {
	case g.chance(0.1):
		r.CountOnly = true
	case g.chance(0.3):
		r.SortBy = []string{"key", "version", "create", "mod", "value"}[g.rng.IntN(5)]
		r.Descending = g.chance(0.5)
	case g.chance(0.1):
		r.KeysOnly = true
	}
	if g.chance(0.15) {
		bounds := []*int64{&r.MinMod, &r.MaxMod, &r.MinCreate, &r.MaxCreate}
		*bounds[g.rng.IntN(len(bounds))] = g.old()
	}
	return r
}

func (g *Generator) readOld() *Range {
	r := g.read()
	r.Revision = g.old()
	return r
}

// txn returns a transaction with at most one change of each key in each branch, as etcd requires.
func (g *Generator) txn(depth int) *Txn {
	txn := &Txn{}
	for range g.rng.IntN(3) {
		txn.If = append(txn.If, g.compare())
	}
	txn.Then = g.branch(depth, g.rng.IntN(4))
	txn.Else = g.branch(depth, g.rng.IntN(3))
	return txn
}

func (g *Generator) branch(depth, operations int) []Request {
	var requests []Request
	free := map[string]bool{}
	for _, key := range keys {
		free[key] = true
	}
	for range operations {
		key := g.key()
		switch {
		case depth > 0 && g.chance(0.05):
			// Nested transactions only read: their changes could conflict with those of this branch.
			inner := &Txn{If: []Compare{g.compare()}, Then: []Request{{Range: g.inTxn()}}, Else: []Request{{Range: g.inTxn()}}}
			requests = append(requests, Request{Txn: inner})
		case g.chance(0.25):
			requests = append(requests, Request{Range: g.inTxn()})
		case g.chance(0.08):
			if remove := g.removeSpan(); take(free, remove.Key, remove.End) {
				requests = append(requests, Request{Delete: remove})
			}
		case !take(free, key, ""):
		case g.chance(0.25):
			requests = append(requests, Request{Delete: &Delete{Key: key, Prev: g.chance(0.3)}})
		default:
			put := g.put(key)
			if g.chance(0.15) && !put.IgnoreLease {
				put.Lease = g.world.Lease(g.rng)
			}
			requests = append(requests, Request{Put: put})
		}
	}
	return requests
}

func (g *Generator) inTxn() *Range {
	r := g.read()
	r.Serializable = false
	return r
}

// take marks the keys of a range as changed. It reports false, and marks none, if one of them already is.
func take(free map[string]bool, key, end string) bool {
	var taken []string
	for name, isFree := range free {
		if !inRange(name, key, end) {
			continue
		}
		if !isFree {
			return false
		}
		taken = append(taken, name)
	}
	for _, name := range taken {
		free[name] = false
	}
	return true
}

func (g *Generator) compare() Compare {
	key := g.key()
	seen := g.world.Pair(key)
	c := Compare{Key: key, Relation: []string{"=", "=", "=", "!=", "<", ">"}[g.rng.IntN(6)]}
	if g.chance(0.1) {
		span := g.span()
		c.Key, c.End = span[0], span[1]
	}
	switch g.rng.IntN(10) {
	case 0, 1, 2, 3:
		c.Target, c.Number = "mod", seen.Mod
	case 4, 5:
		c.Target, c.Number = "version", seen.Version
	case 6:
		c.Target, c.Number = "create", seen.Create
	case 7:
		c.Target, c.Number = "lease", seen.Lease
	default:
		c.Target, c.Value = "value", seen.Value
		if strings.HasPrefix(c.Relation, "=") && g.chance(0.2) {
			c.Value = "no such value"
		}
	}
	return c
}
