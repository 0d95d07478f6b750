package mailbox

import (
	"crypto/sha1"
	"encoding/json"
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

// fromGoal is the metadata field that keeps the goal a peer message came from.
const fromGoal = "from_goal_id"

// DecodePeer reads a payload. The error is an [*Error] with INVALID_MESSAGE: the
// payload is dropped then.
func DecodePeer(raw []byte) (Peer, error) {
	in, err := parseFields(raw)
	if err != nil {
		return Peer{}, err
	}
	for _, name := range []string{"from_goal_id", "correlation_id", "id"} {
		if in[name] == "" {
			delete(in, name)
		}
	}
	var r reader
	p := Peer{FromAgentID: AgentID(r.text(in["from_agent_id"], "from_agent_id", true, checkAgent)),
		ToAgentID:     AgentID(r.text(in["to_agent_id"], "to_agent_id", true, checkAgent)),
		Body:          r.text(in["body"], "body", true, checkBody),
		FromGoalID:    r.text(in["from_goal_id"], "from_goal_id", false, CheckID),
		CorrelationID: r.text(in["correlation_id"], "correlation_id", false, CheckID),
		ID:            r.text(in["id"], "id", false, CheckID),
		SentAt:        r.time(in["sent_at"], "sent_at", true)}
	return p, r.err
}

func checkBody(body string) error {
	switch {
	case len(body) > MaxBody:
		return Invalid("", "has %d bytes, at most %d", len(body), MaxBody)
	case strings.TrimSpace(body) == "":
		return Invalid("", "want at least one character")
	}
	return nil
}

// EncodePeer writes p as one line of JSON without a newline.
func EncodePeer(p Peer) ([]byte, error) { return relay.Marshal(p) }

// PeerOf is what a reader that knows only peer inboxes gets of e. Such a reader
// may drop what has no UUID where docs/protocol.md 6.7 wants one: so a correlation that is
// none is left out, and a sender without a goal of such a name has one made of
// its own name, always the same. Data and files are written into the body, as [Render]
// does; what is over [MaxBody] then is cut.
func PeerOf(e Envelope) Peer {
	p := Peer{ID: e.ID, FromAgentID: e.From, ToAgentID: e.To, SentAt: e.Timestamp}
	p.Body = runes.Cut(renderParts(e), MaxBody)
	if p.FromGoalID = asText(e.Metadata.Extra[fromGoal]); !isUUID(p.FromGoalID) {
		p.FromGoalID = uuidOf(string(e.From))
	}
	if isUUID(e.Metadata.CorrelationID) {
		p.CorrelationID = e.Metadata.CorrelationID
	}
	return p
}

// Envelope is p as an envelope, for the goal of the subject it came on.
func (p Peer) Envelope(goal string) Envelope {
	e := New(TypeMessage, p.FromAgentID, p.ToAgentID, p.SentAt)
	e.Content.Parts, e.Metadata = []Part{TextPart(p.Body)}, Metadata{CorrelationID: p.CorrelationID, Goal: goal}
	if p.ID != "" {
		e.ID = p.ID
	}
	if p.FromGoalID != "" {
		e.Metadata.Extra = map[string]json.RawMessage{fromGoal: encoded(p.FromGoalID)}
	}
	return e
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
