package main

import (
	"fmt"
	"slices"
	"strings"
)

// table is the output.
type table struct {
	kinds   map[string]string // "apps/v1 Deployment" to the name of its type
	folders map[string]*folder
	types   map[string]*typ
}

// typ describes the merge of a type of objects, and of their fields.
type typ struct {
	Map    string     `json:"map,omitempty"` // "atomic"
	Whole  bool       `json:"whole,omitempty"`
	Unions [][]string `json:"unions,omitempty"`
	// Groups of fields with maps or map lists that share no key.
	Disjoint [][]string        `json:"disjoint,omitempty"`
	Fields   map[string]*place `json:"fields,omitempty"`
}

// place describes the merge of a field, of a list's items or of a map's values.
type place struct {
	Type string   `json:"type,omitempty"`
	Map  string   `json:"map,omitempty"`  // "atomic", "granular"
	List string   `json:"list,omitempty"` // "map", "set", "atomic"
	Keys []string `json:"keys,omitempty"` // of a map list
	// Defaults of optional keys.
	Defaults map[string]any `json:"defaults,omitempty"`
	Items    *place         `json:"items,omitempty"`
	Values   *place         `json:"values,omitempty"`
	Whole    bool           `json:"whole,omitempty"`
}

// MarshalJSON writes the most frequent place, a scalar or an object of some type, as the name of the type.
func (p *place) MarshalJSON() ([]byte, error) {
	if p.Type != "" && !p.Whole && p.Map == "" {
		return marshal(p.Type)
	}
	type plain place
	return marshal((*plain)(p))
}

// metadata is the type of every object's metadata, also of custom resources.
const metadata = "meta.v1.ObjectMeta"

// scalars are the types with a special JSON representation, whatever the OpenAPI says.
var scalars = map[string]string{
	"api.resource.Quantity":    "quantity",
	"meta.v1.FieldsV1":         "any",
	"meta.v1.MicroTime":        "microtime",
	"meta.v1.Time":             "time",
	"pkg.runtime.RawExtension": "any",
	"util.intstr.IntOrString":  "intOrString",

	"apiextensions.v1.JSON":                         "any",
	"apiextensions.v1.JSONSchemaPropsOrArray":       "any",
	"apiextensions.v1.JSONSchemaPropsOrBool":        "objectOrBoolean",
	"apiextensions.v1.JSONSchemaPropsOrStringArray": "any",
}

// scalarOf maps the type and format of the OpenAPI to the name of a scalar's type.
var scalarOf = map[string]string{
	"boolean ":      "boolean",
	"integer int32": "int32",
	"integer int64": "int64",
	"number double": "number",
	"string ":       "string",
	"string byte":   "bytes",
}

func build(d *documents) (*table, error) {
	published := d.types
	types := make(map[string]*typ, len(published))
	for name, of := range published {
		if scalars[name] != "" {
			continue
		}
		made, err := d.typeOf(name, of)
		if err != nil {
			return nil, err
		}
		types[name] = made
	}
	if err := addUnions(published, types); err != nil {
		return nil, err
	}
	if err := addDisjoint(types); err != nil {
		return nil, err
	}
	kinds := make(map[string]string)
	for name, d := range published {
		// Lists, options of requests and watch events are not stored.
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
	folders, err := foldersOf(d.resources)
	if err != nil {
		return nil, err
	}
	return &table{kinds, folders, reachable(types, kinds)}, nil
}

func (docs *documents) typeOf(name string, d *definition) (*typ, error) {
	if d.Type != "object" && d.Type != "" {
		return nil, fmt.Errorf("%s: a type %s; only objects are supported", name, d.Type)
	}
	made := &typ{Fields: make(map[string]*place)}
	switch d.MapType {
	case "", "granular":
	case "atomic":
		made.Map = "atomic"
	default:
		return nil, fmt.Errorf("%s: unknown map type %q", name, d.MapType)
	}
	for field, of := range d.Properties {
		p, err := docs.placeOf(of)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, field, err)
		}
		made.Fields[field] = p
	}
	return made, nil
}

func (docs *documents) placeOf(d *definition) (*place, error) {
	strategies := strings.FieldsFunc(d.PatchStrategy, func(r rune) bool { return r == ',' })
	for _, strategy := range strategies {
		if !slices.Contains([]string{"merge", "retainKeys", "replace"}, strategy) {
			return nil, fmt.Errorf("unknown patch strategy %q", d.PatchStrategy)
		}
	}
	retainKeys := slices.Contains(strategies, "retainKeys")
	if d.Type == "array" {
		return docs.listOf(d, retainKeys)
	}
	made := &place{}
	switch {
	case d.Ref != "" && scalars[short(d.Ref)] != "":
		made.Type = scalars[short(d.Ref)]
	case d.Ref != "":
		made.Type = short(d.Ref)
		if docs.types[made.Type] == nil {
			return nil, fmt.Errorf("unknown type %s", made.Type)
		}
	case d.AdditionalProperties != nil:
		values, err := docs.placeOf(d.AdditionalProperties)
		if err != nil {
			return nil, err
		}
		made.Values = values
	default:
		made.Type = scalarOf[d.Type+" "+d.Format]
		if made.Type == "" {
			return nil, fmt.Errorf("unknown type %q of the format %q", d.Type, d.Format)
		}
	}
	isMap := made.Values != nil || strings.Contains(made.Type, ".")
	switch {
	case d.MapType == "atomic" || slices.Contains(strategies, "replace"):
		made.Map = "atomic"
	case d.MapType != "" && d.MapType != "granular":
		return nil, fmt.Errorf("unknown map type %q", d.MapType)
	case d.MapType == "granular" && made.Type != "" && docs.types[made.Type].MapType == "atomic":
		made.Map = "granular"
	}
	made.Whole = retainKeys
	if (made.Map != "" || made.Whole) && !isMap {
		return nil, fmt.Errorf("a map type or retainKeys on something without keys")
	}
	return made, nil
}

func (docs *documents) listOf(d *definition, retainKeys bool) (*place, error) {
	items, err := docs.placeOf(d.Items)
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
	case retainKeys && !strings.Contains(items.Type, "."):
		return nil, fmt.Errorf("retainKeys on items without keys")
	case retainKeys && made.List != "atomic":
		items.Whole = true
	}
	for _, key := range made.Keys {
		// A required key has a default too: the zero value of its Go type, which is not recorded.
		switch of := docs.defaults[items.Type+"."+key].(type) {
		case nil:
		case string:
			if of != "" {
				made.Defaults = map[string]any{key: of}
			}
		case float64, bool:
			if of != 0.0 && of != false {
				made.Defaults = map[string]any{key: of}
			}
		default:
			return nil, fmt.Errorf("the key %s has the default %v, which is not a scalar", key, of)
		}
	}
	return made, nil
}
