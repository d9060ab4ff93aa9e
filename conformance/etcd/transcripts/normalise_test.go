package transcripts

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"trishanku.invalid/conformance/etcd/server"
)

// A normaliser takes out of a transcript what is different each time. What it leaves has to be equal,
// and that includes the ids of cluster and member, all revisions and raft's term.
type normaliser struct {
	replacements []string // pairs of a text and what it becomes
	ids          map[uint64]string
}

// The rules, from first to last.
var rules = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	// The client's own log: which attempt of which request failed with what.
	{regexp.MustCompile(`\{"level":"warn",[^\n]*"logger":"etcd-client"[^\n]*"method":"/([^"]*)","attempt":([0-9]+),"error":"(.*)"\}`),
		"attempt $2 of $1: $3"},
	// What fills up a short id.
	{regexp.MustCompile(`Member +ID`), "Member ID"},
	// Times.
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ns|µs|ms)\b|\b[0-9]+\.[0-9]+s\b`), "DURATION"},
	{regexp.MustCompile(`"ts":"[^"]*"`), `"ts":"TIME"`},
	// Sizes on disk, and how much of them is in use.
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)? ([kM]?B)\b`), "SIZE"},
	{regexp.MustCompile(`\b[0-9]+%`), "PERCENT"},
	{regexp.MustCompile(`("(?i:dbSize|dbSizeInUse)" ?: ?)[0-9]+`), "${1}SIZE"},
	// How far raft's log has come.
	{regexp.MustCompile(`("(?i:raftIndex|raftAppliedIndex)" ?: ?)[0-9]+`), "${1}INDEX"},
	{regexp.MustCompile(`((?:true|false), [0-9]+, )[0-9]+, [0-9]+,`), "${1}INDEX, INDEX,"},
	{regexp.MustCompile(`(\| +(?:true|false) \| +[0-9]+ \| +)[0-9]+ \| +[0-9]+ \|`), "${1}INDEX | INDEX |"},
	// Hashes of the contents: each program has its own.
	{regexp.MustCompile(`("(?i:hash)" ?: ?)[0-9]+`), "${1}HASH"},
	{regexp.MustCompile(`(ENDPOINT, )[0-9]+,`), "${1}HASH,"},
	{regexp.MustCompile(`(\| +ENDPOINT +\| +)[0-9]+ \|`), "${1}HASH |"},
	// What is left of long leases.
	{regexp.MustCompile(`(remaining\(|"(?i:ttl)" ?: ?)[0-9]{3,}`), "${1}REST"},
	// Where something is in the memory of etcdctl, and the port that it got.
	{regexp.MustCompile(`\b0x[0-9a-f]{8,}\b`), "POINTER"},
	{regexp.MustCompile(`127\.0\.0\.1:[0-9]{5}->`), "CLIENT->"},
}

var (
	table   = regexp.MustCompile(`(?m)^\| [+|] ?.*$`)
	padding = regexp.MustCompile(` +|-{2,}`)
	// Ids, of leases for instance, in hexadecimal as text has them and in decimal as JSON has.
	id = regexp.MustCompile(`(: ?)?\b([0-9a-f]{12,16}|[0-9]{12,20})\b`)
)

func (n *normaliser) normalise(text string) transcript {
	text = strings.NewReplacer(n.replacements...).Replace(text)
	text = id.ReplaceAllStringFunc(text, n.number)
	for _, rule := range rules {
		text = rule.pattern.ReplaceAllString(text, rule.replacement)
	}
	text = table.ReplaceAllStringFunc(text, func(line string) string {
		return padding.ReplaceAllStringFunc(line, func(run string) string { return run[:1] })
	})
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// number numbers ids in the order in which they appear.
func (n *normaliser) number(text string) string {
	parts := id.FindStringSubmatch(text)
	colon, digits, base := parts[1], parts[2], 16
	if colon != "" || len(digits) > 16 {
		base = 10
	}
	number, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		return text
	}
	if number == server.ClusterID || number == server.MemberID {
		return text
	}
	if n.ids == nil {
		n.ids = map[uint64]string{}
	}
	if n.ids[number] == "" {
		n.ids[number] = fmt.Sprintf("ID%d", len(n.ids)+1)
	}
	return colon + n.ids[number]
}
