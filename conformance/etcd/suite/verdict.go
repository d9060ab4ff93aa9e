package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

type verdict struct {
	passed, ignored int
	wrong           []string       // one sentence each
	unexpected      []outcome      // failures that are not listed
	listed          map[string]int // number of tests, by heading
}

// judge compares outcomes with the list. If all tests ran, entries that match no test are wrong.
func judge(known list, outcomes []outcome, all bool) verdict {
	v := verdict{listed: map[string]int{}}
	used := map[entry]bool{}
	for _, o := range outcomes {
		e, found := known.covering(o.test)
		if !found {
			v.unlisted(o)
			continue
		}
		used[e] = true
		if o.result != e.expected {
			v.wrong = append(v.wrong, fmt.Sprintf("%s is listed below [%s], but it %s", o.test, e.heading, o.result))
			continue
		}
		v.ignored++
		v.listed[e.heading]++
	}
	for _, e := range known {
		if all && !used[e] {
			v.wrong = append(v.wrong, e.test+" is listed, but there is no such test")
		}
	}
	return v
}

func (v *verdict) unlisted(o outcome) {
	if o.result == passed {
		v.passed++
		return
	}
	v.wrong = append(v.wrong, fmt.Sprintf("%s %s", o.test, o.result))
	v.unexpected = append(v.unexpected, o)
}

func (v *verdict) ok() bool { return len(v.wrong) == 0 && v.passed > 0 }

func (v *verdict) print(to io.Writer, suite string, elapsed time.Duration) {
	for _, o := range v.unexpected {
		fmt.Fprintf(to, "\n--- %s %s\n%s", suite, o.test, o.output)
	}
	for _, sentence := range v.wrong {
		fmt.Fprintf(to, "%s: %s\n", suite, sentence)
	}
	for _, heading := range slices.Sorted(maps.Keys(v.listed)) {
		fmt.Fprintf(to, "%s: %d ignored: [%s]\n", suite, v.listed[heading], heading)
	}
	word := "ok"
	if !v.ok() {
		word = "FAILED"
	}
	// The format of Rust's tests, so that one script sums up both.
	fmt.Fprintf(to, "test result: %s. %d passed; %d failed; %d ignored; 0 measured; 0 filtered out; finished in %.2fs\n",
		word, v.passed, len(v.wrong), v.ignored, elapsed.Seconds())
}
