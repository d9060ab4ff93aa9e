// Command report reads the output of `go test -json`. It prints a line of totals for each package and
// all that failing tests said, and ends with status 1 if anything failed or no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// An event as `go doc test2json` describes it; a package that cannot be built has events, too.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// The outcome of a package's tests so far.
type outcome struct {
	passed, failed, skipped int // of Test functions
	subtests                int // of those, at any depth
	failures                []string
	said                    map[string]*strings.Builder // by test; what belongs to none is under ""
}

func main() {
	ok, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func report(from io.Reader, to io.Writer) (ok bool, err error) {
	outcomes := map[string]*outcome{}
	ran, failed := 0, 0
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return ran > 0 && failed == 0, nil
		} else if err != nil && err != io.EOF {
			return false, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			// The go command's own words, such as those on a package that it cannot find.
			fmt.Fprintf(to, "%s", line)
			continue
		}
		if e.Package == "" {
			fmt.Fprint(to, e.Output) // of the compiler
			continue
		}
		o := outcomes[e.Package]
		if o == nil {
			o = &outcome{said: map[string]*strings.Builder{}}
			outcomes[e.Package] = o
		}
		if o.take(e) {
			if o.passed+o.failed+o.skipped > 0 {
				o.print(to, e)
			}
			ran, failed = ran+o.passed, failed+o.failed
		}
	}
}

// take records an event and says whether it was the package's last.
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
		if e.Test != "" {
			o.failures = append(o.failures, e.Test)
		} else if o.failed == 0 {
			// Not built, a panic outside of tests, or a timeout: no test says so.
			o.failures, o.failed = append(o.failures, ""), 1
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
		delete(o.said, e.Test) // nobody will ask
	}
	return false
}

func (o *outcome) print(to io.Writer, e event) {
	for _, test := range o.failures {
		fmt.Fprintf(to, "\n--- %s %s\n", e.Package, test)
		if said := o.said[test]; said != nil {
			fmt.Fprint(to, said)
		}
	}
	fmt.Fprintf(to, "\n%s: %d tests with %d subtests in %.0f s\n",
		e.Package, o.passed+o.failed+o.skipped, o.subtests, e.Elapsed)
	word := "ok"
	if o.failed > 0 {
		word = "FAILED"
	}
	// The form in which Rust's tests report, so that one sum covers both.
	fmt.Fprintf(to, "test result: %s. %d passed; %d failed; %d ignored; 0 measured; 0 filtered out; finished in %.2fs\n",
		word, o.passed, o.failed, o.skipped, e.Elapsed)
}
