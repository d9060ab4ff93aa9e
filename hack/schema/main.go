// Schema makes gitcd's table of how the built-in kinds of Kubernetes are merged from the published OpenAPI.
//
//	go run . VERSION <swagger.json >kubernetes.json
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
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: schema VERSION <swagger.json >kubernetes.json"))
	}
	published, err := read(os.Stdin)
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

// definition is a type, or the type of a field, as it is published.
type definition struct {
	Description          string
	Type                 string
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

// read gives the published types by their short names.
func read(from io.Reader) (map[string]*definition, error) {
	var document struct{ Definitions map[string]*definition }
	if err := json.NewDecoder(from).Decode(&document); err != nil {
		return nil, err
	}
	published := make(map[string]*definition, len(document.Definitions))
	for name, d := range document.Definitions {
		if published[short(name)] != nil {
			return nil, fmt.Errorf("two types have the short name %s", short(name))
		}
		published[short(name)] = d
	}
	if len(published) == 0 {
		return nil, fmt.Errorf("no definitions in the OpenAPI document")
	}
	return published, nil
}

// short makes core.v1.Pod of io.k8s.api.core.v1.Pod and of a reference to it.
func short(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-3):], ".")
}

// write puts every kind and every type on a line of its own, in the order of their names.
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
