// Schema generates gitcd's merge schema of the built-in kinds of Kubernetes from the published OpenAPI.
//
//	go run . VERSION FOLDER >kubernetes.json
//
// FOLDER is api/openapi-spec of Kubernetes: swagger.json has the types of lists, v3 the default values.
//
// docs/design/merge-schema.md describes the table; hack/schema.sh finds the OpenAPI and runs this.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: schema VERSION FOLDER >kubernetes.json"))
	}
	published, err := read(os.Args[2])
	if err != nil {
		fail(err)
	}
	made, err := build(published)
	if err != nil {
		fail(err)
	}
	out := bufio.NewWriter(os.Stdout)
	if err := write(out, os.Args[1], made); err != nil {
		fail(err)
	}
	if err := out.Flush(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "schema:", err)
	os.Exit(1)
}

// definition is a published type, or the type of a field.
type definition struct {
	Description          string
	Type                 string
	Format               string
	Ref                  string `json:"$ref"`
	Properties           map[string]*definition
	AdditionalProperties *definition
	Items                *definition

	ListType      string   `json:"x-kubernetes-list-type"`
	ListMapKeys   []string `json:"x-kubernetes-list-map-keys"`
	MapType       string   `json:"x-kubernetes-map-type"`
	PatchStrategy string   `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey string   `json:"x-kubernetes-patch-merge-key"`
	Unions        []struct {
		Discriminator string
		Fields        map[string]string `json:"fields-to-discriminateBy"`
	} `json:"x-kubernetes-unions"`
	Kinds []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// documents are the published OpenAPI of a version of Kubernetes.
type documents struct {
	// By their short names.
	types map[string]*definition
	// By the short name of the type, a dot, and the field.
	defaults map[string]any
	// Kinds whose objects can be deleted by name, by the path of that request.
	resources map[string]kind
}

type kind struct{ Group, Version, Kind string }

func read(folder string) (*documents, error) {
	var document struct {
		Definitions map[string]*definition
		Paths       map[string]struct {
			Delete *struct {
				Action string `json:"x-kubernetes-action"`
				Kind   kind   `json:"x-kubernetes-group-version-kind"`
			}
		}
	}
	if err := decode(filepath.Join(folder, "swagger.json"), &document); err != nil {
		return nil, err
	}
	made := &documents{make(map[string]*definition), make(map[string]any), make(map[string]kind)}
	for name, d := range document.Definitions {
		if made.types[short(name)] != nil {
			return nil, fmt.Errorf("two types have the short name %s", short(name))
		}
		made.types[short(name)] = d
	}
	for path, operations := range document.Paths {
		if operations.Delete != nil && operations.Delete.Action == "delete" {
			made.resources[path] = operations.Delete.Kind
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "v3", "api*__v*_openapi.json"))
	if err != nil {
		return nil, err
	}
	if len(made.types) == 0 || len(made.resources) == 0 || len(files) == 0 {
		return nil, fmt.Errorf("%s: no definitions, paths or documents of version 3", folder)
	}
	for _, file := range files {
		if err := made.addDefaults(file); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// addDefaults reads the default values from a document of version 3; the one of version 2 has none.
func (docs *documents) addDefaults(file string) error {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Default any }
			}
		}
	}
	if err := decode(file, &document); err != nil {
		return err
	}
	for name, schema := range document.Components.Schemas {
		for field, of := range schema.Properties {
			if of.Default != nil {
				docs.defaults[short(name)+"."+field] = of.Default
			}
		}
	}
	return nil
}

func decode(file string, into any) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := json.NewDecoder(bufio.NewReader(from)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// short returns core.v1.Pod for io.k8s.api.core.v1.Pod and for a reference to it.
func short(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-3):], ".")
}

// write writes one line for each kind, folder and type, sorted by name.
func write(to io.Writer, version string, made *table) error {
	header, err := marshal(version)
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintf(to, "{\n\"kubernetes\": %s,\n\"kinds\": {\n", header); err != nil {
		return err
	}
	if err = lines(to, made.kinds); err != nil {
		return err
	}
	if _, err = io.WriteString(to, "},\n\"folders\": {\n"); err != nil {
		return err
	}
	if err = lines(to, made.folders); err != nil {
		return err
	}
	if _, err = io.WriteString(to, "},\n\"types\": {\n"); err != nil {
		return err
	}
	if err = lines(to, made.types); err != nil {
		return err
	}
	_, err = io.WriteString(to, "}\n}\n")
	return err
}

func lines[V any](to io.Writer, of map[string]V) error {
	names := slices.Sorted(maps.Keys(of))
	for i, name := range names {
		key, err := marshal(name)
		if err != nil {
			return err
		}
		value, err := marshal(of[name])
		if err != nil {
			return err
		}
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		if _, err := fmt.Fprintf(to, "%s: %s%s\n", key, value, end); err != nil {
			return err
		}
	}
	return nil
}

func marshal(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(buffer.Bytes()), err
}
