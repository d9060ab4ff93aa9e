package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// turn is a stretch of load, as gitcd-bench requests it.
type turn struct {
	// Its length; operations in flight are finished.
	Nanoseconds int64 `json:"nanoseconds"`
	// The number of the next new key.
	NextNew uint64 `json:"next_new"`
	// The revision at which gitcd-bench compacts next, and the revisions from there to the compaction after it.
	Mark  int64 `json:"mark"`
	Every int64 `json:"every"`
}

// result is the result of a turn.
type result struct {
	Operations  uint64 `json:"operations"`
	Conflicts   uint64 `json:"conflicts"`
	Nanoseconds int64  `json:"nanoseconds"`
	NextNew     uint64 `json:"next_new"`
	// The times of all operations: nanoseconds, to 0.1 %, and how many operations took that long. Percentiles of several turns
	// cannot be computed from the percentiles of each.
	Latency [][2]uint64 `json:"latency"`
}

// message is a line on standard output; one of its fields is set.
type message struct {
	// The server has reached the turn's mark, or a later one.
	Reached int64 `json:"reached,omitempty"`
	// The turn has ended.
	Done *result `json:"done,omitempty"`
	// An operation has failed, and the program exits.
	Failed string `json:"failed,omitempty"`
}

var output sync.Mutex

// send writes a line to standard output.
func send(line message) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "bench-client-go: cannot write to standard output:", err)
		os.Exit(1)
	}
}

// fail reports an error and exits: a workload with a failed operation has no result.
func fail(err error) {
	send(message{Failed: err.Error()})
	os.Exit(1)
}
