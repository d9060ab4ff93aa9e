package main

import (
	"fmt"
	"slices"
)

// differs describes how an answer differs from the expected one; empty if it does not.
func differs(request Request, want, got Answer) string {
	if want.Error != got.Error {
		return fmt.Sprintf("answered %q instead of %q", outcome(got.Error), outcome(want.Error))
	}
	if want.Error != "" {
		return ""
	}
	if want.Revision != got.Revision {
		return fmt.Sprintf("the header has revision %d instead of %d", got.Revision, want.Revision)
	}
	if want.Succeeded != got.Succeeded {
		return fmt.Sprintf("succeeded is %v instead of %v", got.Succeeded, want.Succeeded)
	}
	if want.Count != got.Count {
		return fmt.Sprintf("the count is %d instead of %d", got.Count, want.Count)
	}
	if want.More != got.More {
		return fmt.Sprintf("more is %v instead of %v", got.More, want.More)
	}
	if text := differentPairs(request, want, got.Pairs); text != "" {
		return text
	}
	if len(want.Answers) != len(got.Answers) {
		return fmt.Sprintf("%d answers instead of %d", len(got.Answers), len(want.Answers))
	}
	for i := range want.Answers {
		if text := differs(branchOf(request, got)[i], want.Answers[i], got.Answers[i]); text != "" {
			return fmt.Sprintf("operation %d: %s", i, text)
		}
	}
	return ""
}

func outcome(refusal string) string {
	if refusal == "" {
		return "ok"
	}
	return refusal
}

func branchOf(request Request, answer Answer) []Request {
	if request.Txn == nil {
		return nil
	}
	if answer.Succeeded {
		return request.Txn.Then
	}
	return request.Txn.Else
}

func differentPairs(request Request, want Answer, got []Pair) string {
	if len(want.Pairs) != len(got) {
		return fmt.Sprintf("%d pairs instead of %d: %v instead of %v", len(got), len(want.Pairs), got, want.Pairs)
	}
	if slices.Equal(want.Pairs, got) || request.Range != nil && sameBut(request.Range, want.Pairs, got, want.candidates) {
		return ""
	}
	return fmt.Sprintf("the pairs are %v instead of %v", got, want.Pairs)
}

// sameBut allows for ties: pairs that are equal in the requested order may come in any order, and a limit may cut any of
// them. So every rank must be right, and every pair must be a candidate and appear only once.
func sameBut(q *Range, want, got, candidates []Pair) bool {
	for i := range want {
		if q.order(want[i], got[i]) != 0 || !slices.Contains(candidates, got[i]) || slices.Contains(got[:i], got[i]) {
			return false
		}
	}
	return true
}

// sameChanges reports whether a revision has exactly the expected changes, in any order.
func sameChanges(want, got []Change) bool {
	if len(want) != len(got) {
		return false
	}
	for _, change := range want {
		if change.Delete {
			change.Pair = Pair{Key: change.Key, Mod: change.Mod}
		}
		if !slices.Contains(got, change) {
			return false
		}
	}
	return true
}
