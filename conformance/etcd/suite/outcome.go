package main

import (
	"regexp"
	"strings"
)

type result string

const (
	passed  result = "passed"
	failed  result = "failed"
	skipped result = "skipped"
)

// An outcome is what came of a test that has no subtests, or of a subtest that has none.
type outcome struct {
	test   string
	result result
	output string // of its whole Test function; empty unless something in it failed
}

// A line that the testing package itself wrote begins with a control character.
var marked = regexp.MustCompile("(?m)\x16(?:=== RUN   (\\S+)|--- (PASS|FAIL|SKIP): (\\S+) \\()")

// outcomes reads the output of the Test function test, whose process ended with err.
func outcomes(test, output string, err error) []outcome {
	ended := map[string]result{}
	started := []string{test} // even if its process did not come that far
	for _, m := range marked.FindAllStringSubmatch(output, -1) {
		if name := m[1]; name != "" && name != test {
			started = append(started, name)
		}
		if name := m[3]; name != "" {
			ended[name] = map[string]result{"PASS": passed, "FAIL": failed, "SKIP": skipped}[m[2]]
		}
	}
	if err == nil && !strings.Contains(output, "FAIL") {
		output = ""
	}
	var all []outcome
	for _, name := range started {
		if isParent(name, started) {
			continue
		}
		o := outcome{test: name, result: ended[name], output: output}
		if o.result == "" {
			o.result = failed // by a panic, or because it ran out of time
		}
		all = append(all, o)
	}
	// A leak, for instance, that the process itself complains about after its tests.
	if err != nil && noneFailed(all) {
		all = append(all, outcome{test: test + " (its process)", result: failed, output: output})
	}
	return all
}

func isParent(name string, of []string) bool {
	for _, other := range of {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

func noneFailed(all []outcome) bool {
	for _, o := range all {
		if o.result == failed {
			return false
		}
	}
	return true
}
