package main

import "fmt"

// The promises of a server; each is one test in the report.
const (
	claimLinearizable = "operations_are_linearizable"
	claimAnswers      = "answers_are_those_of_the_state_at_their_revision"
	claimOldReads     = "old_revisions_read_as_they_were"
	claimRevisions    = "every_revision_was_made_by_one_operation"
	claimMonotonic    = "revisions_never_go_back"
	claimDurable      = "what_was_seen_before_a_failure_is_there_after_it"
	claimLeases       = "leases_end_in_time_and_take_their_keys_at_once"
	claimRunning      = "a_server_that_runs_answers"
	claimOrdered      = "watch_ordered"
	claimUnique       = "watch_unique"
	claimReliable     = "watch_reliable"
	claimAtomic       = "watch_atomic"
	claimResumable    = "watch_resumable"
	claimBookmarkable = "watch_bookmarkable"
	claimPrevious     = "watch_previous_pairs"
	claimFilters      = "watch_ranges_and_filters"
	claimCompacted    = "watch_of_compacted_revisions_is_refused"
)

// claims lists all claims, in the order of the report.
var claims = []string{
	claimLinearizable, claimAnswers, claimOldReads, claimRevisions, claimMonotonic, claimDurable, claimLeases,
	claimRunning, claimOrdered, claimUnique, claimReliable, claimAtomic, claimResumable, claimBookmarkable,
	claimPrevious, claimFilters, claimCompacted,
}

// A Violation is a broken promise.
type Violation struct {
	Claim string `json:"claim"`
	Text  string `json:"text"`
}

// Findings are the violations in one history, and how often each claim was checked.
type Findings struct {
	Violations []Violation    `json:"violations"`
	Checked    map[string]int `json:"checked"`
	// Expired counts expired leases whose keys were deleted.
	Expired int `json:"expired"`
	// Pinned counts unanswered operations that were found to have happened.
	Pinned int `json:"pinned"`
	// Events counts events compared with the reference.
	Events int `json:"events"`
}

// NewFindings returns empty findings.
func NewFindings() *Findings { return &Findings{Checked: map[string]int{}} }

// checked adds n checks of a claim.
func (f *Findings) checked(claim string, n int) { f.Checked[claim] += n }

// violated records a violation, up to ten of each claim.
func (f *Findings) violated(claim, format string, arguments ...any) {
	const enough = 10
	same := 0
	for _, violation := range f.Violations {
		if violation.Claim == claim {
			same++
		}
	}
	if same < enough {
		f.Violations = append(f.Violations, Violation{claim, fmt.Sprintf(format, arguments...)})
	}
}

// Violates reports whether a claim was violated.
func (f *Findings) Violates(claim string) bool {
	for _, violation := range f.Violations {
		if violation.Claim == claim {
			return true
		}
	}
	return false
}

// add adds the findings of another round.
func (f *Findings) add(other *Findings) {
	f.Violations = append(f.Violations, other.Violations...)
	for claim, n := range other.Checked {
		f.Checked[claim] += n
	}
	f.Expired += other.Expired
	f.Pinned += other.Pinned
	f.Events += other.Events
}
