package judge

import (
	"crypto/rand"
	_ "embed" // the prompts
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"feishu-relay/policy"
)

// The most that the model gets. Longer texts are cut in the middle, and the
// oldest messages are left out.
const (
	maxWindow  = 12       // messages before the one in question
	maxText    = 3600     // bytes of a message, and of the agent's role
	maxSpeaker = 64       // bytes of a speaker's id
	maxData    = 16 << 10 // bytes of the encoded data; the message and the role always fit, each byte escaped
)

// systemPrompt is the same for every call; a question is put after the data.
var (
	//go:embed prompt/system.txt
	systemPrompt string
	//go:embed prompt/bot.txt
	botQuestion string
	//go:embed prompt/user.txt
	userQuestion string
)

type promptData struct {
	Agent struct {
		ID   string `json:"id"`
		Name string `json:"name,omitempty"`
		Role string `json:"role,omitempty"`
	} `json:"agent"`
	Transcript []promptMessage `json:"transcript"`
	Message    promptMessage   `json:"message"`
}

type promptMessage struct {
	Speaker   string `json:"speaker"`
	Kind      string `json:"kind"`
	Addressed bool   `json:"addresses_agent,omitempty"`
	Text      string `json:"text"`
}

// promptOf returns the data that the model gets for q, and the question. Equal
// questions give equal strings.
func promptOf(q policy.Question) (data, question string) {
	var d promptData
	d.Agent.ID = speaker(q.AgentName)
	d.Agent.Name = speaker(q.BotName)
	d.Agent.Role = quoted(q.AgentRole, maxText)
	d.Message = messageOf(q.Message, q.AgentName)
	d.Message.Addressed = q.Mentioned
	d.Transcript = []promptMessage{}
	for _, e := range window(q) {
		d.Transcript = append(d.Transcript, messageOf(e, q.AgentName))
	}
	text := encode(d)
	for len(text) > maxData && len(d.Transcript) > 0 {
		d.Transcript = d.Transcript[1:]
		text = encode(d)
	}
	if q.FromUser {
		return text, userQuestion
	}
	return text, botQuestion
}

// window returns the last messages before the one in question, oldest first.
func window(q policy.Question) []policy.Entry {
	before := make([]policy.Entry, 0, maxWindow+1)
	from := max(0, len(q.Transcript)-maxWindow-1)
	for _, e := range q.Transcript[from:] {
		if e.MessageID == "" || e.MessageID != q.Message.MessageID {
			before = append(before, e)
		}
	}
	return before[max(0, len(before)-maxWindow):]
}

func messageOf(e policy.Entry, agent string) promptMessage {
	m := promptMessage{Speaker: speaker(e.Sender), Kind: "bot", Text: quoted(e.Content, maxText)}
	switch {
	case e.Role == policy.RoleUser:
		m.Kind = "person"
	case e.Sender != "" && e.Sender == agent:
		m.Kind = "this agent"
	}
	return m
}

// speaker cleans an id. The model gets no display names, which people choose
// freely, except this agent's own.
func speaker(id string) string { return quoted(id, maxSpeaker) }

// markers matches parts of our delimiters and of those of common chat
// templates. In a text each of them is broken up with a space.
var markers = regexp.MustCompile(`(?i)={4,}|relay-data|<\|+|\|+>|\[/?inst\]|<</?sys|</?s>`)

func quoted(text string, n int) string {
	// Clip before the costly steps as well: a text may have a megabyte.
	text = clip(plain(clip(text, 8*n)), n)
	if !strings.ContainsAny(text, "=<|[-") {
		return text // no marker without one of these
	}
	return markers.ReplaceAllStringFunc(text, func(marker string) string {
		if marker[0] == '=' {
			return "==="
		}
		return marker[:1] + " " + marker[1:]
	})
}

func encode(d promptData) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // code remains readable
	if err := e.Encode(d); err != nil {
		return "{}" // unreachable: strings always encode
	}
	return strings.TrimSpace(b.String())
}

// delimited puts the data between two unpredictable lines. Encoded JSON has no
// line breaks, so a text cannot form such a line.
func delimited(data, question string) string {
	mark := "==== relay-data " + rand.Text() + " ===="
	return fmt.Sprintf("%s\n%s\n%s\n\n%s", mark, data, mark, question)
}
