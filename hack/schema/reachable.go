package main

// reachable returns the types that a kind contains.
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
		if types[name] == nil || found[name] != nil {
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
