package main

import (
	"sync"
	"time"
)

// A Pair is a key with its value and metadata. Key and Value are in their printable form (see value.go).
type Pair struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Create  int64  `json:"create"`
	Mod     int64  `json:"mod"`
	Version int64  `json:"version"`
	Lease   int64  `json:"lease,omitempty"`
}

// A Change is the effect of one revision on one key: a put, or a deletion (in which only Key and Mod count).
type Change struct {
	Delete bool `json:"delete,omitempty"`
	Pair
}

// A Request has exactly one of its fields set; transactions contain further requests.
type Request struct {
	Range      *Range   `json:"range,omitempty"`
	Put        *Put     `json:"put,omitempty"`
	Delete     *Delete  `json:"delete,omitempty"`
	Txn        *Txn     `json:"txn,omitempty"`
	Compact    *Compact `json:"compact,omitempty"`
	Grant      *Grant   `json:"grant,omitempty"`
	Revoke     int64    `json:"revoke,omitempty"`
	KeepAlive  int64    `json:"keepAlive,omitempty"`
	TimeToLive int64    `json:"timeToLive,omitempty"`
	Leases     bool     `json:"leases,omitempty"`
	// Expire is not a client's request: it is the expiry of a lease.
	Expire int64 `json:"expire,omitempty"`
}

// A Range reads keys. End is as in etcd: empty for one key, "\x00" for everything from Key on.
type Range struct {
	Key          string `json:"key"`
	End          string `json:"end,omitempty"`
	Revision     int64  `json:"revision,omitempty"`
	Limit        int64  `json:"limit,omitempty"`
	Serializable bool   `json:"serializable,omitempty"`
	KeysOnly     bool   `json:"keysOnly,omitempty"`
	CountOnly    bool   `json:"countOnly,omitempty"`
	SortBy       string `json:"sortBy,omitempty"`
	Descending   bool   `json:"descending,omitempty"`
	MinMod       int64  `json:"minMod,omitempty"`
	MaxMod       int64  `json:"maxMod,omitempty"`
	MinCreate    int64  `json:"minCreate,omitempty"`
	MaxCreate    int64  `json:"maxCreate,omitempty"`
}

// A Put writes a key. The values that clients put are unique in a history.
type Put struct {
	Key         string `json:"key"`
	Value       string `json:"value,omitempty"`
	Lease       int64  `json:"lease,omitempty"`
	Prev        bool   `json:"prev,omitempty"`
	IgnoreValue bool   `json:"ignoreValue,omitempty"`
	IgnoreLease bool   `json:"ignoreLease,omitempty"`
}

// A Delete deletes a range.
type Delete struct {
	Key  string `json:"key"`
	End  string `json:"end,omitempty"`
	Prev bool   `json:"prev,omitempty"`
}

// A Txn runs Then if all compares hold, otherwise Else.
type Txn struct {
	If   []Compare `json:"if"`
	Then []Request `json:"then"`
	Else []Request `json:"else"`
}

// A Compare holds if it holds for every key of its range.
type Compare struct {
	Key      string `json:"key"`
	End      string `json:"end,omitempty"`
	Target   string `json:"target"`   // version, create, mod, value, lease
	Relation string `json:"relation"` // =, !=, <, >
	Number   int64  `json:"number,omitempty"`
	Value    string `json:"value,omitempty"`
}

// A Compact compacts the history below a revision.
type Compact struct {
	Revision int64 `json:"revision"`
	Physical bool  `json:"physical,omitempty"`
}

// A Grant asks for a lease with an id of the client's choice.
type Grant struct {
	Lease int64 `json:"lease"`
	TTL   int64 `json:"ttl"`
}

// Errors that are answers: the server has processed and refused the request.
const (
	errCompacted     = "compacted"
	errFuture        = "future revision"
	errLeaseNotFound = "lease not found"
	errLeaseExists   = "lease exists"
	errKeyNotFound   = "key not found"
)

// An Answer is the response to a request. Only fields for the kind of the request are set.
type Answer struct {
	Error    string `json:"error,omitempty"`
	Revision int64  `json:"revision"` // of the header

	Pairs []Pair `json:"pairs,omitempty"` // of a range; previous pairs of a put or delete
	Count int64  `json:"count,omitempty"` // of a range; deleted keys
	More  bool   `json:"more,omitempty"`
	// candidates are the pairs of a range before the limit; set only in expected answers.
	candidates []Pair

	Succeeded bool     `json:"succeeded,omitempty"`
	Answers   []Answer `json:"answers,omitempty"`

	TTL     int64    `json:"ttl,omitempty"`
	Granted int64    `json:"granted,omitempty"` // granted TTL; 0 if there is no such lease
	Keys    []string `json:"keys,omitempty"`
	Leases  []int64  `json:"leases,omitempty"`
}

// A Server identifies the server that answered.
type Server struct {
	Cluster uint64 `json:"cluster"`
	Member  uint64 `json:"member"`
	Term    uint64 `json:"term"`
}

// An Operation is a request with its outcome, as far as known. Times are nanoseconds since the start of the round.
type Operation struct {
	ID      int     `json:"id"`
	Client  int     `json:"client"`
	Call    int64   `json:"call"`
	Return  int64   `json:"return"`
	Request Request `json:"request"`
	// Unknown means that there was no answer: the request may or may not have been executed.
	Unknown bool    `json:"unknown,omitempty"`
	Failure string  `json:"failure,omitempty"`
	Answer  Answer  `json:"answer"`
	Server  *Server `json:"server,omitempty"`
}

// A Downtime is a time in which the server was not available throughout: from before it was stopped until it was healthy
// again.
type Downtime struct {
	Kind string `json:"kind"` // kill, kill twice, terminate
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// A History is everything that clients saw in one round.
type History struct {
	Seed       int64       `json:"seed"`
	Program    string      `json:"program"`
	Operations []Operation `json:"operations"`
	Watchers   []*Watcher  `json:"watchers"`
	// Reference is a watch of all keys from the first revision on. Final is the same watch, repeated at the end of the
	// round from the compact revision.
	Reference *Watcher   `json:"reference"`
	Final     *Watcher   `json:"final,omitempty"`
	Downtimes []Downtime `json:"downtimes"`
	// Leftover are keys whose lease should have expired long before the end of the round.
	Leftover []Pair `json:"leftover,omitempty"`
	// Stuck are watchers that did not reach the last revision in time.
	Stuck []string `json:"stuck,omitempty"`
}

// A Recorder records the operations of all clients.
type Recorder struct {
	start      time.Time
	mutex      sync.Mutex
	operations []Operation
}

// NewRecorder starts the clock of a round.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now returns the nanoseconds since the start of the round, on a monotonic clock.
func (r *Recorder) Now() int64 { return int64(time.Since(r.start)) }

// Add records a finished operation and assigns its id.
func (r *Recorder) Add(operation Operation) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	operation.ID = len(r.operations)
	r.operations = append(r.operations, operation)
}

// Count returns the number of recorded operations.
func (r *Recorder) Count() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.operations)
}

// Operations returns all recorded operations, in the order of their return.
func (r *Recorder) Operations() []Operation {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.operations
}
