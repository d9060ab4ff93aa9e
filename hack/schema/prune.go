package main

import "maps"

// prune removes the fields below which there is nothing to say, so that only these types are left with content from
// which a list, an atomic map, a union or something whole can be reached. Types may contain themselves.
func prune(types map[string]*typ) {
	says := make(map[string]bool)
	for changed := true; changed; {
		changed = false
		for name, t := range types {
			if !says[name] && t.says(says) {
				says[name], changed = true, true
			}
		}
	}
	for _, t := range types {
		maps.DeleteFunc(t.Fields, func(_ string, p *place) bool { return !p.says(says) })
		for _, p := range t.Fields {
			p.prune(says)
		}
	}
}

func (t *typ) says(types map[string]bool) bool {
	if t.Map != "" || t.Whole || len(t.Unions) > 0 {
		return true
	}
	for _, p := range t.Fields {
		if p.says(types) {
			return true
		}
	}
	return false
}

func (p *place) says(types map[string]bool) bool {
	return p.Map != "" || p.List != "" || p.Whole || types[p.Type] || p.Values != nil && p.Values.says(types)
}

func (p *place) prune(says map[string]bool) {
	if !says[p.Type] {
		p.Type = ""
	}
	for _, below := range []**place{&p.Items, &p.Values} {
		switch {
		case *below == nil:
		case !(*below).says(says):
			*below = nil
		default:
			(*below).prune(says)
		}
	}
}

// reachable leaves out the types that no kind contains.
func reachable(types map[string]*typ, kinds map[string]string) map[string]*typ {
	found := make(map[string]*typ)
	var visit func(name string)
	var look func(p *place)
	look = func(p *place) {
		if p != nil {
			visit(p.Type)
			look(p.Items)
			look(p.Values)
		}
	}
	visit = func(name string) {
		if name == "" || found[name] != nil {
			return
		}
		found[name] = types[name]
		for _, p := range types[name].Fields {
			look(p)
		}
	}
	for _, name := range kinds {
		visit(name)
	}
	return found
}
