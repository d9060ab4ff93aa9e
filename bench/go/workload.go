package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// workload is the definition of a workload in bench/src/workload/mod.rs.
type workload struct {
	Name    string   `json:"name"`
	Clients int      `json:"clients"`
	Load    load     `json:"load"`
	Keys    keySpace `json:"keys"`
	// Generations of written values are random, at least 1 and less than this.
	Generations uint64 `json:"generations"`
}

// load is what the clients of a workload do.
type load struct {
	Kind string `json:"kind"`
	// Of pages.
	Limit int64 `json:"limit"`
	// Of watches.
	Streams           int    `json:"streams"`
	WatchersPerStream int    `json:"watchers_per_stream"`
	Window            uint64 `json:"window"`
	PrevKV            bool   `json:"prev_kv"`
	CatchUpSeconds    int64  `json:"catch_up_seconds"`
}

// keySpace is a set of numbered keys, and the form of their values.
type keySpace struct {
	Prefix     string   `json:"prefix"`
	End        string   `json:"end"`
	Keys       uint64   `json:"keys"`
	Namespaces uint64   `json:"namespaces"`
	Namespace  numbered `json:"namespace"`
	Name       numbered `json:"name"`
	// Replicas are the stamp modulo this, plus 1.
	Replicas uint64 `json:"replicas"`
	// The value, with $name$, $namespace$, $number$, $generation$, $replicas$ and $stamp$ in the places of these.
	Value string `json:"value"`
	// Value, split at the dollar signs: texts and names of places in turn.
	parts []string
}

// numbered is a name with a number of at least so many digits; without digits it has no number.
type numbered struct {
	Text   string `json:"text"`
	Digits int    `json:"digits"`
}

// stampDigits is the length of a stamp in a value.
const stampDigits = 16

func parse(text string) (*workload, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var parsed workload
	if err := decoder.Decode(&parsed); err != nil {
		return nil, err
	}
	if parsed.Clients < 1 || parsed.Keys.Prefix == "" || parsed.Keys.Namespaces < 1 || parsed.Generations < 2 {
		return nil, errors.New("clients, keys.prefix, keys.namespaces and generations are required")
	}
	parsed.Keys.parts = strings.Split(parsed.Keys.Value, "$")
	places := parsed.Keys.places()
	if len(places) == 0 || places[len(places)-1] != "stamp" {
		return nil, errors.New("keys.value has no $stamp$ as its last place")
	}
	for _, place := range places {
		if _, err := parsed.Keys.appendPlace(nil, place, 0, 0, 0); err != nil {
			return nil, err
		}
	}
	return &parsed, nil
}

func (space *keySpace) places() []string {
	var places []string
	for number := 1; number < len(space.parts); number += 2 {
		places = append(places, space.parts[number])
	}
	return places
}

func (name numbered) of(number uint64) string {
	if name.Digits == 0 {
		return name.Text
	}
	return fmt.Sprintf("%s%0*d", name.Text, name.Digits, number)
}

func (space *keySpace) namespace(number uint64) string {
	return space.Namespace.of(number % space.Namespaces)
}

func (space *keySpace) key(number uint64) string {
	return space.Prefix + space.namespace(number) + "/" + space.Name.of(number)
}

// value returns an object as kube-apiserver stores it.
func (space *keySpace) value(number, generation, stamp uint64) []byte {
	text := make([]byte, 0, 800)
	for at, part := range space.parts {
		if at%2 == 0 {
			text = append(text, part...)
			continue
		}
		// parse has checked the names of all places.
		text, _ = space.appendPlace(text, part, number, generation, stamp)
	}
	return text
}

func (space *keySpace) appendPlace(text []byte, place string, number, generation, stamp uint64) ([]byte, error) {
	switch place {
	case "name":
		return append(text, space.Name.of(number)...), nil
	case "namespace":
		return append(text, space.namespace(number)...), nil
	case "number":
		return fmt.Appendf(text, "%012x", number), nil
	case "generation":
		return strconv.AppendUint(text, generation, 10), nil
	case "replicas":
		return strconv.AppendUint(text, stamp%max(space.Replicas, 1)+1, 10), nil
	case "stamp":
		return fmt.Appendf(text, "%0*x", stampDigits, stamp), nil
	}
	return nil, fmt.Errorf("keys.value has an unknown place $%s$", place)
}

// stampOf returns the stamp in a value.
func (space *keySpace) stampOf(value []byte) (uint64, error) {
	end := len(value) - len(space.parts[len(space.parts)-1])
	if end < stampDigits {
		return 0, errors.New("a value is too short to have a stamp")
	}
	return strconv.ParseUint(string(value[end-stampDigits:end]), 16, 64)
}
