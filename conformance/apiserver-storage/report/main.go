// Command report reads the output of `go test -json`. It prints a line of totals for each package and the whole output of
// failed tests, and exits with status 1 if anything failed or no test ran.
//
// Its arguments are a command such as `go test -json`: failed tests are repeated with it once, after all others, with -run
// and the package appended. Tests that failed twice, and those that passed when repeated, are appended to the file
// $TRISHANKU_TEST_REPORT.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// repeatAtMost is the number of failed tests in a package above which none is repeated.
const repeatAtMost = 10

// An event as described by `go doc test2json`; packages that fail to build have events, too.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// The outcome of a package's tests so far.
type outcome struct {
	name                    string
	passed, failed, skipped int // of Test functions
	subtests                int // of those functions, at any depth
	failures, flaky         []string
	said                    map[string]*strings.Builder // output by test; output of no test is under ""
	elapsed                 float64                     // seconds
}

// A repeat reruns Test functions of a package, and returns the output of `go test -json`.
type repeat func(name string, tests []string) []byte

func main() {
	var again repeat
	if command := os.Args[1:]; len(command) > 0 {
		again = func(name string, tests []string) []byte {
			run := "-run=^(" + strings.Join(tests, "|") + ")$"
			c := exec.Command(command[0], append(slices.Clone(command[1:]), run, name)...)
			c.Stderr = os.Stderr
			output, _ := c.Output() // the events include failures
			return output
		}
	}
	ok, outcomes, err := report(os.Stdin, os.Stdout, again)
	if err == nil {
		err = appendTo(os.Getenv("TRISHANKU_TEST_REPORT"), outcomes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// appendTo appends a line to file for each test that failed, or passed only when repeated.
func appendTo(file string, outcomes []*outcome) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, o := range outcomes {
		for _, test := range o.flaky {
			fmt.Fprintf(f, "flaky: %s %s\n", o.name, test)
		}
		for _, test := range o.failures {
			fmt.Fprintf(f, "failed: %s %s\n", o.name, test)
		}
	}
	return nil
}

// report prints each package as soon as all its tests have passed, and packages with failures at the end.
func report(from io.Reader, to io.Writer, again repeat) (ok bool, all []*outcome, err error) {
	ran, failed := 0, 0
	var failing []*outcome
	err = read(from, to, func(o *outcome) {
		all = append(all, o)
		ran += o.passed
		if o.failed > 0 {
			failing = append(failing, o)
		} else if o.passed+o.skipped > 0 {
			o.print(to)
		}
	})
	if err != nil {
		return false, all, err
	}
	for _, o := range failing {
		if err := o.repeat(to, again); err != nil {
			return false, all, err
		}
		ran, failed = ran+len(o.flaky), failed+o.failed
		o.print(to)
	}
	return ran > 0 && failed == 0, all, nil
}

// read parses events, and calls ended for each package after its last event.
func read(from io.Reader, to io.Writer, ended func(*outcome)) error {
	outcomes := map[string]*outcome{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		} else if err != nil && err != io.EOF {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			// A message of the go command itself, for instance about a missing package.
			fmt.Fprintf(to, "%s", line)
			continue
		}
		if e.Package == "" {
			fmt.Fprint(to, e.Output) // of the compiler
			continue
		}
		o := outcomes[e.Package]
		if o == nil {
			o = &outcome{name: e.Package, said: map[string]*strings.Builder{}}
			outcomes[e.Package] = o
		}
		if o.take(e) {
			o.elapsed = e.Elapsed
			ended(o)
		}
	}
}

// repeat reruns the failed Test functions once; those that then pass are flaky.
func (o *outcome) repeat(to io.Writer, again repeat) error {
	var tests []string
	for _, test := range o.failures {
		if test != "" && !strings.Contains(test, "/") {
			tests = append(tests, test)
		}
	}
	if again == nil || len(tests) == 0 || len(tests) > repeatAtMost {
		return nil
	}
	fmt.Fprintf(to, "\n--- %s: repeating %s\n", o.name, strings.Join(tests, " "))
	passed := map[string]bool{}
	err := read(bytes.NewReader(again(o.name, tests)), to, func(second *outcome) {
		for _, test := range tests {
			// A test that did not run has not passed.
			passed[test] = second.passed+second.failed+second.skipped == len(tests) && !slices.Contains(second.failures, test)
		}
	})
	if err != nil {
		return err
	}
	for _, test := range tests {
		if passed[test] {
			o.flaky = append(o.flaky, test)
			o.passed, o.failed = o.passed+1, o.failed-1
		}
	}
	o.failures = slices.DeleteFunc(o.failures, func(test string) bool {
		top, _, _ := strings.Cut(test, "/")
		return passed[top]
	})
	for _, test := range o.flaky {
		fmt.Fprintf(to, "%s: %s failed, and passed when it was repeated\n", o.name, test)
	}
	return nil
}

// take records an event and reports whether it was the package's last.
func (o *outcome) take(e event) (last bool) {
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "output":
		if o.said[e.Test] == nil {
			o.said[e.Test] = &strings.Builder{}
		}
		o.said[e.Test].WriteString(e.Output)
		return false
	case "pass", "skip":
	case "fail":
		if e.Test == "" {
			o.blame()
		} else {
			o.failures = append(o.failures, e.Test)
		}
	default:
		return false
	}
	switch {
	case e.Test == "":
		return true
	case !top:
		o.subtests++
	case e.Action == "pass":
		o.passed++
	case e.Action == "fail":
		o.failed++
	default:
		o.skipped++
	}
	if e.Action != "fail" {
		delete(o.said, e.Test) // only the output of failures is printed
	}
	return false
}

// blame adds the causes of a failed package: the tests that a panic or a timeout interrupted, which are those with output
// but without a result. If no test failed, the package itself did, for instance in its build.
func (o *outcome) blame() {
	for _, test := range slices.Sorted(maps.Keys(o.said)) {
		if test == "" || slices.Contains(o.failures, test) {
			continue
		}
		o.failures = append(o.failures, test)
		if !strings.Contains(test, "/") {
			o.failed++
		}
	}
	if o.failed == 0 {
		o.failures, o.failed = append(o.failures, ""), 1
	}
}

func (o *outcome) print(to io.Writer) {
	for _, test := range o.failures {
		fmt.Fprintf(to, "\n--- %s %s\n", o.name, test)
		if said := o.said[test]; said != nil {
			fmt.Fprint(to, said)
		}
	}
	fmt.Fprintf(to, "\n%s: %d tests with %d subtests in %.0f s\n",
		o.name, o.passed+o.failed+o.skipped, o.subtests, o.elapsed)
	word := "ok"
	if o.failed > 0 {
		word = "FAILED"
	}
	// The format of Rust's tests, so that one script sums up both.
	fmt.Fprintf(to, "test result: %s. %d passed; %d failed; %d ignored; 0 measured; 0 filtered out; finished in %.2fs\n",
		word, o.passed, o.failed, o.skipped, o.elapsed)
}
