package main

import "time"

// check runs all checks on a history. If its operations are not linearizable, a visualization is written to folder, unless
// that is empty.
func check(h *History, patience time.Duration, folder string) *Findings {
	f := NewFindings()
	log, ok := buildLog(h, f)
	if !ok {
		return f
	}
	p := NewPlan(h, log, f)
	checkOperations(p, f)
	checkOrder(p, f)
	checkFailures(p, f)
	checkWatches(p, f)
	checkLinearizable(p, f, patience, folder)
	return f
}
