package mailbox

import (
	"crypto/sha1"
	"fmt"
	"regexp"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Peer is the payload of a peer inbox (docs/protocol.md 6.7).
type Peer struct {
	FromAgentID   AgentID   `json:"from_agent_id"`
	FromGoalID    string    `json:"from_goal_id"`
	ToAgentID     AgentID   `json:"to_agent_id"`
	Body          string    `json:"body"`
	SentAt        time.Time `json:"sent_at"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	ID            string    `json:"id,omitempty"` // the envelope's, ours only: it comes by the stream, too
}

// NoDirectory is the note of list_peers where an agent has no mailbox.
const NoDirectory = "this agent has no PeerDirectory configured"

// FromPeer reads a payload that came for a goal as the message that is put into the inbox. It is signed if the payload
// is signed right. The id of such a message is made of the signature, so that a copy has the same, also one for another
// goal, which the payload does not name. ours is true for what comes by a stream, too.
//
// The error is an [*Error] with INVALID_MESSAGE: the payload is dropped then.
func (s Signing) FromPeer(payload []byte, goal string) (m Sealed, ours bool, err error) {
	p, err := parseFields(payload)
	if err != nil {
		return Sealed{}, false, err
	}
	for name, value := range p {
		if value == "" {
			delete(p, name)
		}
	}
	e, err := decode(fields{"id": "new", "from": p["from_agent_id"], "to": p["to_agent_id"], "timestamp": p["sent_at"],
		"content": p["body"], "metadata": fields{"correlationId": p["correlation_id"], "goal_id": goal}}, len(payload), false)
	if err != nil {
		return Sealed{}, false, err
	}
	if e.ID = NewID(e.From, e.Timestamp); s.Secret != "" {
		if relay.Verify(payload, s.Secret) == nil {
			sig, _ := p[sigField].(string)
			e.ID = fmt.Sprintf("msg_%d_%s_%.16s", e.Timestamp.UnixMilli(), e.From, strings.ToLower(sig))
		} else {
			s = Signing{} // who takes it from the inbox judges that
		}
	}
	raw, err := s.Encode(e)
	return Sealed{e, raw}, p["id"] != nil, err
}

// EncodePeer writes p as one line of JSON without a newline, with a signature.
func (s Signing) EncodePeer(p Peer) ([]byte, error) {
	line, err := relay.Marshal(p)
	if err != nil || s.Secret == "" {
		return line, err
	}
	return relay.Sign(line, s.Secret)
}

// PeerOf is what a reader that knows only peer inboxes gets of e. Such a reader
// may drop what has no UUID where docs/protocol.md 6.7 wants one: so a correlation that is
// none is left out, and the sender's goal is made of its name, always the same. Data and files are written into the
// body, as [Render] does; what is over [MaxBody] then is cut.
func PeerOf(e Envelope) Peer {
	p := Peer{ID: e.ID, FromAgentID: e.From, ToAgentID: e.To, SentAt: e.Timestamp,
		FromGoalID: uuidOf(string(e.From))}
	p.Body = runes.Cut(renderParts(e), MaxBody)
	if isUUID(e.Metadata.CorrelationID) {
		p.CorrelationID = e.Metadata.CorrelationID
	}
	return p
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// UUID is the UUID that s is, in its usual form; "" if s is not a UUID. It may have no
// hyphens, braces around it or urn:uuid: before it.
func UUID(s string) string {
	s = strings.TrimPrefix(s, "urn:uuid:")
	if inner, ok := strings.CutPrefix(s, "{"); ok && strings.HasSuffix(inner, "}") {
		s = strings.TrimSuffix(inner, "}")
	}
	if len(s) == 32 {
		s = s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
	}
	if !isUUID(s) {
		return ""
	}
	return strings.ToLower(s)
}

func isUUID(s string) bool { return uuidForm.MatchString(s) }

// uuidOf makes a UUID of a name (version 5, RFC 9562, without a namespace).
func uuidOf(name string) string {
	h := sha1.Sum([]byte("agent:" + name))
	h[6] = h[6]&0x0f | 0x50
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
