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

// An outcome is the result of a test or subtest without subtests of its own.
type outcome struct {
	test   string
	result result
	output string // empty unless it failed
}

// Lines of the testing package itself begin with a control character, and name the test that the following lines belong
// to.
var marked = regexp.MustCompile("\x16(?:=== [A-Z]+ +(\\S+)|--- (PASS|FAIL|SKIP): (\\S+) \\()")

// outcomes parses the output of a Test function whose process ended with err.
func outcomes(test, output string, err error) []outcome {
	said := map[string]string{}
	ended := map[string]result{}
	started := []string{test} // even if its process failed earlier
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
		o := outcome{test: name, result: cmp.Or(ended[name], failed)} // without a result, it panicked or timed out
		if o.result == failed {
			anyFailed = true
			o.output = said[name]
		}
		all = append(all, o)
	}
	if err != nil && !anyFailed {
		// The process failed after its tests, for instance because of a leak.
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
