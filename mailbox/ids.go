package mailbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// reserved is the name that stands for the agent itself in the local API
// (/v1/peers/self/…).
const reserved = "self"

// CheckAgent reports why id cannot name an agent, as an [*Error] without a
// field. A name becomes that of a folder and a part of keys, beside
// _registry.json and hidden files: 1 to 64 bytes of printed characters without
// spaces and without / \ @ < > " ' * : | ?, not beginning with a dot or an
// underscore, and not "self".
func CheckAgent(id AgentID) error {
	if err := agentMistake(string(id)); err != nil {
		return Invalid("", "%v", err)
	}
	return nil
}

func agentMistake(id string) error {
	switch {
	case id == "":
		return errors.New("want an agent's name")
	case len(id) > MaxAgentID:
		return fmt.Errorf("an agent's name has at most %d bytes, this one %d", MaxAgentID, len(id))
	case !utf8.ValidString(id):
		return errors.New("an agent's name is UTF-8")
	case strings.ContainsFunc(id, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return errors.New("an agent's name has no control or invisible characters")
	case strings.ContainsFunc(id, unicode.IsSpace):
		return errors.New("an agent's name has no spaces; write - or _ instead")
	case strings.ContainsAny(id, `/\@<>"'*:|?`):
		return errors.New(`an agent's name has none of / \ @ < > " ' * : | ?`)
	case id[0] == '.' || id[0] == '_':
		return errors.New("an agent's name does not begin with . or _")
	case id == reserved:
		return errors.New(`"self" is no agent's name: it stands for the agent itself in the API`)
	}
	return nil
}

// CheckID reports why id cannot be the id of a message, a task, a goal or a
// correlation, as an [*Error] without a field. Other programs' ids may have any
// form, also that of a path: 1 to 200 bytes of UTF-8 without control characters.
func CheckID(id string) error {
	if err := checkID(id); err != nil {
		return Invalid("", "%v", err)
	}
	return nil
}

var (
	errEmpty   = errors.New("must not be empty")
	errControl = errors.New("must have no control characters")
)

// checkID tells what is wrong with an id that another program made up.
func checkID(id string) error {
	switch {
	case id == "":
		return errEmpty
	case len(id) > MaxID:
		return fmt.Errorf("has %d bytes, at most %d", len(id), MaxID)
	case !utf8.ValidString(id):
		return errors.New("must be UTF-8")
	case strings.ContainsFunc(id, unicode.IsControl):
		return errControl
	}
	return nil
}

// NewID makes the id of an envelope: msg_<ms>_<from>_<random>. Two of the same
// millisecond differ.
func NewID(from AgentID, at time.Time) string {
	return fmt.Sprintf("msg_%d_%s_%s", at.UnixMilli(), from, strings.ToLower(rand.Text()[:10]))
}
