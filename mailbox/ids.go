package mailbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// reserved is the name that means the agent itself in the local API
// (/v1/peers/self/…).
const reserved = "self"

// CheckAgent reports why id cannot name an agent, as an [*Error] without a
// field. A name becomes that of a folder and a part of keys, beside
// _registry.json and hidden files: 1 to 64 bytes of printed characters without
// spaces and without / \ @ < > " ' * : | ?, not beginning with a dot or an
// underscore, and not "self".
func CheckAgent(id AgentID) error { return checkAgent(string(id)) }

func checkAgent(id string) error {
	switch {
	case id == "":
		return Invalid("", "want an agent's name")
	case len(id) > MaxAgentID:
		return Invalid("", "an agent's name has at most %d bytes, this one %d", MaxAgentID, len(id))
	case !utf8.ValidString(id):
		return Invalid("", "an agent's name is UTF-8")
	case strings.ContainsFunc(id, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return Invalid("", "an agent's name has no control or invisible characters")
	case strings.ContainsFunc(id, unicode.IsSpace):
		return Invalid("", "an agent's name has no spaces; write - or _ instead")
	case strings.ContainsAny(id, `/\@<>"'*:|?`):
		return Invalid("", `an agent's name has none of / \ @ < > " ' * : | ?`)
	case id[0] == '.' || id[0] == '_':
		return Invalid("", "an agent's name does not begin with . or _")
	case id == reserved:
		return Invalid("", `"self" is not a name: it stands for the agent itself in the API`)
	}
	return nil
}

// CheckID reports why id cannot be the id of a message, a task, a goal or a
// correlation, as an [*Error] without a field. Other programs' ids may have any
// form, also that of a path: 1 to 200 bytes of UTF-8 without control characters.
func CheckID(id string) error {
	if !utf8.ValidString(id) {
		return Invalid("", "must be UTF-8")
	}
	return checkText(id, MaxID)
}

// checkText reports why a text is not one of 1 to limit bytes without control characters.
func checkText(s string, limit int) error {
	switch {
	case s == "":
		return Invalid("", "must not be empty")
	case len(s) > limit:
		return Invalid("", "has %d bytes, at most %d", len(s), limit)
	case strings.ContainsFunc(s, unicode.IsControl):
		return Invalid("", "must have no control characters")
	}
	return nil
}

// NewID makes the id of an envelope: msg_<ms>_<from>_<random>. Two of the same
// millisecond differ.
func NewID(from AgentID, at time.Time) string {
	return fmt.Sprintf("msg_%d_%s_%s", at.UnixMilli(), from, strings.ToLower(rand.Text()[:10]))
}

// fingerprintBytes is how many bytes of a hash a fingerprint has.
const fingerprintBytes = 8

// Fingerprint is a hash, in hex, of what e says, from whom and to whom. Other
// programs make ids that two messages can share; such messages differ in their
// fingerprints. What changes when a message is sent again (timestamp, retries) is
// not part of it, nor is the session that it is for.
func (e *Envelope) Fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q", e.From, e.To, e.Type, e.ReplyTo, e.Metadata.CorrelationID)
	if t := e.Task; t != nil {
		fmt.Fprintf(h, " task %q %q %d", t.ID, t.State, t.Deadline.UnixMilli())
	}
	if c := e.Callback; c != nil {
		fmt.Fprintf(h, " callback %q %q %q", c.Channel, c.ChatID, c.SessionID)
	}
	for _, p := range e.Content.Parts {
		fmt.Fprintf(h, " part %q %q %q %q", p.Type, p.Text, p.Data, p.Path)
	}
	return hex.EncodeToString(h.Sum(nil)[:fingerprintBytes])
}

// Names reports whether name is the id of a message or what [Envelope.UniqueID]
// makes of it.
func Names(name, id string) bool {
	sum, ok := strings.CutPrefix(name, id)
	return ok && (sum == "" || sum[0] == '_' && len(sum) == 1+2*fingerprintBytes)
}

// UniqueID is an id for e that no other message has: its own, with its
// fingerprint behind it.
func (e *Envelope) UniqueID() string {
	sum := e.Fingerprint()
	if len(e.ID)+1+len(sum) > MaxID {
		return "msg_" + sum
	}
	return e.ID + "_" + sum
}

// SharedID reports whether e's id is of the form msg_<ms>_<from>, which another
// program gives to all messages of one millisecond.
func (e *Envelope) SharedID() bool {
	ms, ok := strings.CutSuffix(e.ID, "_"+string(e.From))
	return ok && millisecondForm.MatchString(ms)
}

var millisecondForm = regexp.MustCompile(`^msg_[0-9]+$`)
