package mailbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

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
