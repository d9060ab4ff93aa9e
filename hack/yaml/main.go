// Yaml parses YAML documents as Kubernetes does, and as a YAML 1.2 parser does, for the differential test of gitcd-merge.
//
// Standard input: documents, each preceded by its length in four bytes (big endian). Standard output: one line of JSON for each.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	yaml3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// answer is the result of each parser for a document.
type answer struct {
	Kube      json.RawMessage `json:"kube,omitempty"`
	KubeError string          `json:"kubeError,omitempty"`
	Later     json.RawMessage `json:"later,omitempty"`
	LaterErr  string          `json:"laterError,omitempty"`
}

func main() {
	if err := run(bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in *bufio.Reader, out *bufio.Writer) error {
	encoder := json.NewEncoder(out)
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); errors.Is(err, io.EOF) {
			return out.Flush()
		} else if err != nil {
			return err
		}
		document := make([]byte, length)
		if _, err := io.ReadFull(in, document); err != nil {
			return err
		}
		if err := encoder.Encode(read(document)); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func read(document []byte) (a answer) {
	var err error
	if a.Kube, err = kube(document); err != nil {
		a.KubeError = err.Error()
	}
	if a.Later, err = later(document); err != nil {
		a.LaterErr = err.Error()
	}
	return a
}

func kube(document []byte) (read json.RawMessage, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	return yaml.YAMLToJSON(document)
}

func later(document []byte) (read json.RawMessage, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	var value any
	if err := yaml3.Unmarshal(document, &value); err != nil {
		return nil, err
	}
	plain, err := jsonable(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// jsonable returns the value for JSON: maps must have string keys, and times, which JSON lacks, are wrapped in a map.
func jsonable(value any) (any, error) {
	var err error
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			if value[name], err = jsonable(below); err != nil {
				return nil, err
			}
		}
		return value, nil
	case map[any]any:
		return nil, errors.New("a key is not a string")
	case []any:
		for index, below := range value {
			if value[index], err = jsonable(below); err != nil {
				return nil, err
			}
		}
		return value, nil
	case time.Time:
		return map[string]any{"time": value}, nil
	default:
		return value, nil
	}
}
