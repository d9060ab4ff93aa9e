// Command suite runs tests that `go test -c` has compiled, and compares what fails with a list of
// the tests that cannot pass. Each Test function is a process of its own, several at a time: one that
// panics takes no other along, and waiting costs nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

func main() {
	known := flag.String("known", "", "the `file` with the tests that cannot pass")
	program := flag.String("program", "gitcd", "what is tested: gitcd or etcd")
	jobs := flag.Int("jobs", 8, "processes at a time")
	match := flag.String("run", "", "only Test functions that `regexp` matches; the list need not be complete then")
	flag.Parse()

	ok, err := run(*known, *program, *match, *jobs, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// A suite is NAME=BINARY, with arguments for the binary after further '='.
type suite struct {
	name, binary string
	arguments    []string
}

// A job is one Test function of a suite.
type job struct {
	suite *suite
	test  string
}

func run(known, program, match string, jobs int, names []string) (ok bool, err error) {
	if len(names) == 0 {
		return false, errors.New("no suite is named")
	}
	var queue []job
	var suites []*suite
	for _, name := range names {
		words := strings.Split(name, "=")
		if len(words) < 2 {
			return false, fmt.Errorf("%q is not NAME=BINARY", name)
		}
		s := &suite{name: words[0], binary: words[1], arguments: words[2:]}
		tests, err := s.tests(match)
		if err != nil {
			return false, err
		}
		suites = append(suites, s)
		for _, test := range tests {
			queue = append(queue, job{s, test})
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
		verdict := judge(list.of(s.name), results[s], match == "")
		verdict.print(os.Stdout, s.name, time.Since(started))
		ok = ok && verdict.ok()
	}
	return ok, nil
}

// slowFirst lets those tests begin first that wait for seconds, so that none of them is the last alone.
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

// perform runs the queue and gives what each suite's tests came to.
func perform(queue []job, jobs int) map[*suite][]outcome {
	todo := make(chan job)
	results := map[*suite][]outcome{}
	var lock sync.Mutex
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for j := range todo {
				outcomes := j.suite.perform(j.test)
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
	if match == "" {
		match = "^Test"
	}
	output, err := exec.Command(s.binary, append(s.arguments, "-test.list="+match)...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w\n%s", s.binary, err, output)
	}
	return strings.Fields(string(output)), nil
}

func (s *suite) perform(test string) []outcome {
	arguments := append(s.arguments[:len(s.arguments):len(s.arguments)],
		"-test.run=^"+test+"$", "-test.v=test2json", "-test.timeout=3m")
	output, err := exec.Command(s.binary, arguments...).CombinedOutput()
	return outcomes(test, string(output), err)
}
