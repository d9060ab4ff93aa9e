package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// A list names tests that cannot pass, under headings that give the reason:
//
//	[members] They need a second member.
//	TestX/PeerTLS
//	client TestY
//
// A name stands for all subtests below it that have no line of their own; after the name of a suite, it applies to that
// suite only.
type list []entry

type entry struct {
	suite, test string
	heading     string
	expected    result
}

// Headings with a meaning to this program.
const (
	// Tests that also fail with a single-member etcd.
	members = "members"
	peers   = "peers"
	// Tests that upstream itself skips.
	skips = "skipped"
)

func readList(file, program string) (list, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all list
	heading := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		words := strings.Fields(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			heading, _, _ = strings.Cut(line[1:], "]")
		case heading == "":
			return nil, fmt.Errorf("%s: %q is under no heading", file, line)
		case program == "etcd" && heading != members && heading != peers && heading != skips:
		default:
			e := entry{test: words[len(words)-1], heading: heading, expected: failed}
			if len(words) > 1 {
				e.suite = words[0]
			}
			if heading == skips {
				e.expected = skipped
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// of returns the entries that apply to a suite.
func (l list) of(suite string) (own list) {
	for _, e := range l {
		if e.suite == "" || e.suite == suite {
			own = append(own, e)
		}
	}
	return own
}

// covering returns the most specific entry that covers a test.
func (l list) covering(test string) (closest entry, found bool) {
	for _, e := range l {
		if e.covers(test) && len(e.test) >= len(closest.test) {
			closest, found = e, true
		}
	}
	return closest, found
}

func (e entry) covers(test string) bool {
	return test == e.test || strings.HasPrefix(test, e.test+"/")
}
