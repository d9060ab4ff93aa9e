package main

import (
	"fmt"
	"slices"
	"strings"
)

// table is what is written.
type table struct {
	kinds map[string]string // "apps/v1 Deployment" to the name of its type
	types map[string]*typ
}

// typ is an object: what is known of its fields, and of itself.
type typ struct {
	Map    string            `json:"map,omitempty"` // "atomic"
	Whole  bool              `json:"whole,omitempty"`
	Unions [][]string        `json:"unions,omitempty"`
	Fields map[string]*place `json:"fields,omitempty"`
}

// place is what is known of a field, of an item or of a value.
type place struct {
	Type   string   `json:"type,omitempty"`
	Map    string   `json:"map,omitempty"`  // "atomic"
	List   string   `json:"list,omitempty"` // "map", "set", "atomic"
	Keys   []string `json:"keys,omitempty"` // of a map list
	Items  *place   `json:"items,omitempty"`
	Values *place   `json:"values,omitempty"`
	Whole  bool     `json:"whole,omitempty"`
}

// MarshalJSON writes the most frequent place, an object of some type, as the name of the type.
func (p *place) MarshalJSON() ([]byte, error) {
	if p.Type != "" && !p.Whole {
		return marshal(p.Type)
	}
	type plain place
	return marshal((*plain)(p))
}

// metadata is the type of every object's metadata, also of custom resources.
const metadata = "meta.v1.ObjectMeta"

func build(published map[string]*definition) (*table, error) {
	types := make(map[string]*typ, len(published))
	for name, d := range published {
		made, err := typeOf(published, name, d)
		if err != nil {
			return nil, err
		}
		types[name] = made
	}
	if err := addUnions(published, types); err != nil {
		return nil, err
	}
	// The merge has rules of its own for managedFields.
	delete(types[metadata].Fields, "managedFields")

	kinds := make(map[string]string)
	for name, d := range published {
		// Lists, reviews' options and watch events are no objects that are kept.
		meta := d.Properties["metadata"]
		if meta == nil || short(meta.Ref) != metadata {
			continue
		}
		for _, kind := range d.Kinds {
			version := kind.Version
			if kind.Group != "" {
				version = kind.Group + "/" + version
			}
			kinds[version+" "+kind.Kind] = name
		}
	}
	prune(types)
	return &table{kinds, reachable(types, kinds)}, nil
}

func typeOf(published map[string]*definition, name string, d *definition) (*typ, error) {
	made := &typ{Fields: make(map[string]*place)}
	switch d.MapType {
	case "", "granular":
	case "atomic":
		made.Map = "atomic"
		return made, nil
	default:
		return nil, fmt.Errorf("%s: unknown map type %q", name, d.MapType)
	}
	for field, of := range d.Properties {
		p, err := placeOf(published, of)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, field, err)
		}
		if p != nil {
			made.Fields[field] = p
		}
	}
	return made, nil
}

// placeOf is nil where nothing is to be said.
func placeOf(published map[string]*definition, d *definition) (*place, error) {
	strategies := strings.FieldsFunc(d.PatchStrategy, func(r rune) bool { return r == ',' })
	for _, strategy := range strategies {
		if !slices.Contains([]string{"merge", "retainKeys", "replace"}, strategy) {
			return nil, fmt.Errorf("unknown patch strategy %q", d.PatchStrategy)
		}
	}
	retainKeys := slices.Contains(strategies, "retainKeys")
	if d.Type == "array" {
		return listOf(published, d, retainKeys)
	}
	var made *place
	switch {
	case d.MapType == "atomic" || slices.Contains(strategies, "replace"):
		made = &place{Map: "atomic"}
	case d.MapType != "" && d.MapType != "granular":
		return nil, fmt.Errorf("unknown map type %q", d.MapType)
	case d.Ref != "":
		target := short(d.Ref)
		if published[target] == nil {
			return nil, fmt.Errorf("unknown type %s", target)
		}
		if d.MapType == "granular" && published[target].MapType == "atomic" {
			return granular(target, published[target])
		}
		made = &place{Type: target}
	case d.AdditionalProperties != nil:
		values, err := placeOf(published, d.AdditionalProperties)
		if err != nil || values == nil {
			return nil, err
		}
		made = &place{Values: values}
	}
	if retainKeys {
		if made == nil {
			return nil, fmt.Errorf("retainKeys on something that has no keys")
		}
		made.Whole = true
	}
	return made, nil
}

// granular is an atomic type at a place that is said not to be atomic. A table of places cannot tell that apart from
// nothing known, unless the type has something inside.
func granular(name string, d *definition) (*place, error) {
	for field, of := range d.Properties {
		if of.Ref != "" || of.Type == "array" || of.Type == "object" {
			return nil, fmt.Errorf("a granular %s is not supported: it has the field %s", name, field)
		}
	}
	return nil, nil
}

func listOf(published map[string]*definition, d *definition, retainKeys bool) (*place, error) {
	items, err := placeOf(published, d.Items)
	if err != nil {
		return nil, err
	}
	made := &place{List: d.ListType, Items: items}
	merged := strings.HasPrefix(d.PatchStrategy, "merge")
	switch {
	case d.ListType == "map":
		made.Keys = d.ListMapKeys
	case d.ListType != "":
	case merged && d.PatchMergeKey != "":
		made.List, made.Keys = "map", []string{d.PatchMergeKey}
	case merged && d.Items.Ref == "" && d.Items.Type != "object" && d.Items.Type != "array":
		made.List = "set"
	default:
		made.List = "atomic"
	}
	switch {
	case !slices.Contains([]string{"map", "set", "atomic"}, made.List):
		return nil, fmt.Errorf("unknown list type %q", made.List)
	case (made.List == "map") != (len(made.Keys) > 0):
		return nil, fmt.Errorf("a %s list with the keys %q", made.List, made.Keys)
	case made.List == "atomic":
		// What is taken whole is not looked into.
		made.Items = nil
	case retainKeys && items == nil:
		return nil, fmt.Errorf("retainKeys on items that have no keys")
	case retainKeys:
		items.Whole = true
	}
	return made, nil
}
