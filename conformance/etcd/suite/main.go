// Command suite runs tests that `go test -c` has compiled, and compares the failures with a list of the tests that cannot
// pass. Each Test function runs in a process of its own, several at a time: a panic affects no other test, and waiting
// costs nothing.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	known := flag.String("known", "", "`file` that lists the tests that cannot pass")
	program := flag.String("program", "gitcd", "tested program: gitcd or etcd")
	jobs := flag.Int("jobs", 8, "number of concurrent processes")
	match := flag.String("run", "", "only tests that match `pattern`, as with go test; unmatched list entries are then no error")
	flag.Parse()

	ok, err := run(*known, *program, *match, *jobs, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// A suite is NAME=BINARY, optionally followed by =ARGUMENT for each argument of the binary.
type suite struct {
	name, binary string
	arguments    []string
}

// A job is one Test function of a suite, or those of its subtests that match.
type job struct {
	suite    *suite
	test     string
	subtests string // a pattern that begins with '/', or empty
}

func run(known, program, match string, jobs int, names []string) (ok bool, err error) {
	if len(names) == 0 {
		return false, errors.New("no suite given")
	}
	functions, subtests := match, ""
	if i := strings.IndexByte(match, '/'); i >= 0 {
		functions, subtests = match[:i], match[i:]
	}
	var queue []job
	var suites []*suite
	for _, name := range names {
		words := strings.Split(name, "=")
		if len(words) < 2 {
			return false, fmt.Errorf("%q is not of the form NAME=BINARY", name)
		}
		s := &suite{name: words[0], binary: words[1], arguments: words[2:]}
		tests, err := s.tests(cmp.Or(functions, "^Test"))
		if err != nil {
			return false, err
		}
		suites = append(suites, s)
		for _, test := range tests {
			queue = append(queue, job{s, test, subtests})
		}
	}
	list, err := readList(known, program)
	if err != nil {
		return false, err
	}

	started := time.Now()
	results := perform(slowFirst(queue), jobs)
	ok = true
	for _, s := range suites {
		own := list.of(s.name)
		outcomes, flaky := own.repeat(results[s], func(test string) []outcome { return job{s, test, subtests}.perform() })
		verdict := judge(own, outcomes, match == "")
		for _, o := range results[s] {
			if slices.Contains(flaky, o.test) && o.result == failed {
				fmt.Printf("\n--- %s %s, which passed when it was repeated\n%s", s.name, o.test, o.output)
			}
		}
		verdict.print(os.Stdout, s.name, time.Since(started))
		ok = ok && verdict.ok()
		if err := verdict.appendTo(os.Getenv("TRISHANKU_TEST_REPORT"), s.name, flaky); err != nil {
			return false, err
		}
	}
	return ok, nil
}

// slowFirst puts tests that wait for seconds first, so that none of them runs alone at the end.
func slowFirst(queue []job) []job {
	var slow, others []job
	for _, j := range queue {
		if strings.HasPrefix(j.test, "TestMember") || strings.HasPrefix(j.test, "TestLease") {
			slow = append(slow, j)
		} else {
			others = append(others, j)
		}
	}
	return append(slow, others...)
}

// perform runs the queue and returns the outcomes by suite.
func perform(queue []job, jobs int) map[*suite][]outcome {
	todo := make(chan job)
	results := map[*suite][]outcome{}
	var lock sync.Mutex
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for j := range todo {
				outcomes := j.perform()
				lock.Lock()
				results[j.suite] = append(results[j.suite], outcomes...)
				lock.Unlock()
			}
		})
	}
	for _, j := range queue {
		todo <- j
	}
	close(todo)
	workers.Wait()
	return results
}

func (s *suite) tests(match string) ([]string, error) {
	output, err := exec.Command(s.binary, append(s.arguments, "-test.list="+match)...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w\n%s", s.binary, err, output)
	}
	return strings.Fields(string(output)), nil
}

func (j job) perform() []outcome {
	arguments := append(slices.Clone(j.suite.arguments),
		"-test.run=^"+j.test+"$"+j.subtests, "-test.v=test2json", "-test.timeout=10m")
	output, err := exec.Command(j.suite.binary, arguments...).CombinedOutput()
	return outcomes(j.test, string(output), err)
}
