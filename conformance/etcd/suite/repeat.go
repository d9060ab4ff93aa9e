package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// repeatAtMost is the number of failed Test functions above which none is repeated.
const repeatAtMost = 10

// repeat runs each Test function with an unlisted failure once more. It returns the outcomes, with those of the second
// run in place of the first, and the tests that failed only the first time.
func (l list) repeat(outcomes []outcome, again func(test string) []outcome) (all []outcome, flaky []string) {
	failures := map[string][]string{} // by Test function
	var functions []string
	for _, o := range outcomes {
		if _, listed := l.covering(o.test); o.result == failed && !listed {
			f := function(o.test)
			if failures[f] == nil {
				functions = append(functions, f)
			}
			failures[f] = append(failures[f], o.test)
		}
	}
	if len(functions) > repeatAtMost {
		return outcomes, nil
	}
	all = slices.Clone(outcomes)
	for _, f := range functions {
		second := again(f)
		for _, test := range failures[f] {
			if !slices.ContainsFunc(second, func(o outcome) bool { return o.test == test && o.result == failed }) {
				flaky = append(flaky, test)
			}
		}
		all = slices.DeleteFunc(all, func(o outcome) bool { return function(o.test) == f })
		all = append(all, second...)
	}
	return all, flaky
}

// function returns the name of the Test function that a test, or a failed process, belongs to.
func function(test string) string {
	if i := strings.IndexAny(test, "/ "); i >= 0 {
		return test[:i]
	}
	return test
}

// appendTo appends a line to file for each test that failed, or passed only when repeated.
func (v *verdict) appendTo(file, suite string, flaky []string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, test := range flaky {
		fmt.Fprintf(f, "flaky: %s %s\n", suite, test)
	}
	for _, sentence := range v.wrong {
		fmt.Fprintf(f, "failed: %s %s\n", suite, sentence)
	}
	return nil
}
