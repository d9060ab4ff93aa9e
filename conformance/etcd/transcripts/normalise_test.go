package transcripts

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"trishanku.invalid/conformance/etcd/server"
)

// A normaliser replaces the parts of a transcript that differ between runs. All others must be equal, including the ids
// of cluster and member, all revisions and Raft's term.
type normaliser struct {
	replacements []string // pairs of a text and its replacement
	ids          map[uint64]string
}

// The rules, in the order of their application.
var rules = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	// The client's own log: the attempt, the request and the error.
	{regexp.MustCompile(`\{"level":"warn",[^\n]*"logger":"etcd-client"[^\n]*"method":"/([^"]*)","attempt":([0-9]+),"error":"(.*)"\}`),
		"attempt $2 of $1: $3"},
	// Padding after a short id.
	{regexp.MustCompile(`Member +ID`), "Member ID"},
	// Times.
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ns|µs|ms)\b|\b[0-9]+\.[0-9]+s\b`), "DURATION"},
	{regexp.MustCompile(`"ts":"[^"]*"`), `"ts":"TIME"`},
	// Sizes on disk, and the share in use.
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)? ([kM]?B)\b`), "SIZE"},
	{regexp.MustCompile(`\b[0-9]+%`), "PERCENT"},
	{regexp.MustCompile(`("(?i:dbSize|dbSizeInUse)" ?: ?)[0-9]+`), "${1}SIZE"},
	// Raft's indexes.
	{regexp.MustCompile(`("(?i:raftIndex|raftAppliedIndex)" ?: ?)[0-9]+`), "${1}INDEX"},
	{regexp.MustCompile(`((?:true|false), [0-9]+, )[0-9]+, [0-9]+,`), "${1}INDEX, INDEX,"},
	{regexp.MustCompile(`(\| +(?:true|false) \| +[0-9]+ \| +)[0-9]+ \| +[0-9]+ \|`), "${1}INDEX | INDEX |"},
	// Hashes of the contents, which depend on the program.
	{regexp.MustCompile(`("(?i:hash)" ?: ?)[0-9]+`), "${1}HASH"},
	{regexp.MustCompile(`(ENDPOINT, )[0-9]+,`), "${1}HASH,"},
	{regexp.MustCompile(`(\| +ENDPOINT +\| +)[0-9]+ \|`), "${1}HASH |"},
	// Remaining time of long leases.
	{regexp.MustCompile(`(remaining\(|"(?i:ttl)" ?: ?)[0-9]{3,}`), "${1}REST"},
	// Addresses in etcdctl's memory, and its own port.
	{regexp.MustCompile(`\b0x[0-9a-f]{8,}\b`), "POINTER"},
	{regexp.MustCompile(`127\.0\.0\.1:[0-9]{5}->`), "CLIENT->"},
}

var (
	table   = regexp.MustCompile(`(?m)^\| [+|] ?.*$`)
	padding = regexp.MustCompile(` +|-{2,}`)
	// Ids, for instance of leases: hexadecimal in text, decimal in JSON.
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

// number replaces an id with its number in the order of appearance.
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
