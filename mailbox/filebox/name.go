package filebox

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"feishu-relay/mailbox"
)

const (
	suffix = ".msg.json"
	temp   = ".tmp"
)

// clock gives each message of this process a time of its own.
type clock struct {
	mu   sync.Mutex
	last int64
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, time.Now().UnixNano())
	return time.Unix(0, c.last)
}

// Our suffix: six digits of nanoseconds behind the milliseconds, and random letters.
const (
	fineDigits  = 6
	randomChars = 8
)

// newName names a message: <ms>_<from>_<suffix>.msg.json.
func newName(from mailbox.AgentID, at time.Time) string {
	return fmt.Sprintf("%d_%s_%0*d%s%s", at.UnixMilli(), from,
		fineDigits, at.Nanosecond()%1e6, strings.ToLower(rand.Text()[:randomChars]), suffix)
}

// isMail reports whether name is that of a message.
func isMail(name string) bool { return strings.HasSuffix(name, suffix) }

// isKey reports whether key can be the name of a message in a folder.
func isKey(key string) bool {
	return isMail(key) && filepath.IsLocal(key) && filepath.Base(key) == key && !strings.Contains(key, "\x00")
}

// age is what the order of names goes by.
type age struct {
	ms   int64 // since 1970; 0 where a name does not begin with a number
	fine int   // nanoseconds behind it, in names of ours
	name string
}

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.fine, b.fine), cmp.Compare(a.name, b.name))
}

func compareNames(a, b string) int { return ageOf(a).compare(ageOf(b)) }

// ageOf reads the time that a name begins with: in seconds below 10^11, in
// milliseconds below 10^14, else in something finer.
func ageOf(name string) age {
	stem := strings.TrimSuffix(name, suffix)
	a := age{name: name}
	digits := stem[:len(stem)-len(strings.TrimLeft(stem, "0123456789"))]
	a.ms, _ = strconv.ParseInt(digits, 10, 64) // none: 0; too many: the largest
	switch {
	case a.ms < 1e11:
		a.ms *= 1000
	default:
		for a.ms >= 1e14 {
			a.ms /= 1000
		}
	}
	own := stem[strings.LastIndexByte(stem, '_')+1:]
	if len(own) == fineDigits+randomChars && len(own) < len(stem) {
		if fine, err := strconv.ParseUint(own[:fineDigits], 10, 32); err == nil {
			a.fine = int(fine)
		}
	}
	return a
}
