package main

import (
	"cmp"
	"regexp"
	"slices"
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
	output string // empty unless it failed
}

// What the testing package itself writes begins with a control character; its lines say whose the next are.
var marked = regexp.MustCompile("\x16(?:=== [A-Z]+ +(\\S+)|--- (PASS|FAIL|SKIP): (\\S+) \\()")

// outcomes reads the output of the Test function test, whose process ended with err.
func outcomes(test, output string, err error) []outcome {
	said := map[string]string{}
	ended := map[string]result{}
	started := []string{test} // even if its process did not come that far
	current := test
	for line := range strings.Lines(output) {
		m := marked.FindStringSubmatch(line)
		switch {
		case m == nil:
			said[current] += line
			continue
		case m[1] != "":
			current = m[1]
		default:
			current = m[3]
			ended[current] = map[string]result{"PASS": passed, "FAIL": failed, "SKIP": skipped}[m[2]]
		}
		if !slices.Contains(started, current) {
			started = append(started, current)
		}
	}

	var all []outcome
	anyFailed := false
	for _, name := range started {
		if isParent(name, started) {
			continue
		}
		o := outcome{test: name, result: cmp.Or(ended[name], failed)} // without an end it panicked or ran out of time
		if o.result == failed {
			anyFailed = true
			o.output = said[name]
		}
		all = append(all, o)
	}
	if err != nil && !anyFailed {
		// A leak, for instance, that the process complains about after its tests.
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
