package transcripts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A transcript is the recorded output of a script.
type transcript []string

// A scenario is a script that runs against etcd and gitcd, and the expected differences.
type scenario struct {
	name    string
	quota   int64 // bytes; 0 is the default
	servers int
	// Whether the servers advertise their real addresses.
	advertise bool
	// More arguments, for both programs and for etcd alone.
	serve, etcd []string
	script      string
	// Lines that only etcd's transcript has, after '-', or only gitcd's, after '+'.
	differences []string
	reason      string
}

// Files of scenarios have this format, in which all but the name and the script is optional:
//
//	== the claim, which is the name
//	:quota 65536
//	:servers 2
//	:advertise
//	:serve --max-txn-ops=1
//	:etcd --election-timeout=1000
//	etcdctl put a 1
//	-- why gitcd differs
//	-| OK
//	+! refused
func scenarios(t *testing.T) []scenario {
	t.Helper()
	files, err := filepath.Glob("cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var all []scenario
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Text above the first name is a comment.
		for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
			s, err := parse(part)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if slices.ContainsFunc(all, func(other scenario) bool { return other.name == s.name }) {
				t.Fatalf("%s: duplicate scenario %q", file, s.name)
			}
			all = append(all, s)
		}
	}
	return all
}

func parse(text string) (s scenario, err error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	s = scenario{name: lines[0], servers: 1}
	for _, line := range lines[1:] {
		switch {
		case strings.HasPrefix(line, "-- "):
			s.reason = line[len("-- "):]
		case s.reason != "" && (strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+")):
			s.differences = append(s.differences, line)
		case s.reason != "":
			return s, fmt.Errorf("%q: %q does not begin with '-' or '+'", s.name, line)
		case strings.HasPrefix(line, ":quota "):
			s.quota, err = strconv.ParseInt(line[len(":quota "):], 10, 64)
		case strings.HasPrefix(line, ":servers "):
			s.servers, err = strconv.Atoi(line[len(":servers "):])
		case line == ":advertise":
			s.advertise = true
		case strings.HasPrefix(line, ":serve "):
			s.serve = strings.Fields(line[len(":serve "):])
		case strings.HasPrefix(line, ":etcd "):
			s.etcd = strings.Fields(line[len(":etcd "):])
		default:
			s.script += line + "\n"
		}
		if err != nil {
			return s, fmt.Errorf("%q: %w", s.name, err)
		}
	}
	if s.reason != "" && len(s.differences) == 0 {
		return s, fmt.Errorf("%q: has a reason but no differences", s.name)
	}
	return s, nil
}
