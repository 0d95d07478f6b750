package mcptools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// The most open tasks and conversations that who_am_i names; the rest is left
// out, the oldest tasks and the last of the conversations given.
const (
	maxTasks         = 50
	maxConversations = 200
)

// Identity is the answer of who_am_i. AgentID, Goals and OpenTasks come from the
// [Mailbox] where there is one; the rest is what Options.WhoAmI says.
type Identity struct {
	AgentID      mailbox.AgentID `json:"agent_id"`
	BotName      string          `json:"bot_name,omitempty"` // "": not known yet
	Description  string          `json:"description,omitempty"`
	Capabilities []string        `json:"capabilities"`
	Goals        []string        `json:"goals"`
	// OpenTasks: the newest first.
	OpenTasks     []agent.TaskRecord `json:"open_tasks"`
	Conversations []Conversation     `json:"conversations"`
	Limits        Limits             `json:"limits"`
}

// Conversation is a chat that the bot is in.
type Conversation struct {
	Channel       string    `json:"channel"`
	ChatID        string    `json:"chat_id"`
	ChatType      string    `json:"chat_type,omitempty"` // group or p2p
	Name          string    `json:"name,omitempty"`
	LastMessageAt time.Time `json:"last_message_at,omitzero"`
}

// Limits is what this agent is held to.
type Limits struct {
	MaxMessageBytes    int `json:"max_message_bytes"`
	MaxConcurrentTasks int `json:"max_concurrent_tasks"`
	MaxExchanges       int `json:"max_exchanges_per_peer"`
}

func whoAmI(s *service, ctx context.Context, _ struct{}) (Identity, error) {
	me := s.WhoAmI(ctx)
	if s.Mailbox != nil {
		me.AgentID, me.Goals = s.Mailbox.Self(), s.Mailbox.Goals()
		me.OpenTasks = slices.DeleteFunc(slices.Clone(s.Mailbox.Tasks()),
			func(t agent.TaskRecord) bool { return t.State.Ended() })
	}
	me.OpenTasks = atMost(me.OpenTasks, maxTasks)
	for i, t := range me.OpenTasks {
		me.OpenTasks[i] = shown(t)
	}
	me.Conversations = atMost(me.Conversations, maxConversations)
	me.Capabilities, me.Goals = list(me.Capabilities), list(me.Goals)
	return me, nil
}

// atMost is the first n of list, and no null in JSON.
func atMost[T any](all []T, n int) []T { return list(all[:min(len(all), n)]) }

// list is a copy of all that is not null in JSON.
func list[T any](all []T) []T { return append([]T{}, all...) }

// How many messages read_transcript shows, unless told, and at most; maxText is
// the most bytes of one message's text, and maxTexts of all together: the
// oldest are left out then, and the text says so.
const (
	usualEntries = 20
	maxEntries   = 200
	maxText      = 16 << 10
	maxTexts     = 128 << 10
)

// maxChats is the most chats that are listed, the newest first.
const maxChats = 200

type readTranscriptArguments struct {
	ChatID  name         `json:"chat_id,omitempty"`
	Channel name         `json:"channel,omitempty"`
	Limit   messageCount `json:"limit,omitempty"`
}

// conversation is the messages of a group, or without one the list of groups.
type conversation struct {
	Chats    []Conversation `json:"chats,omitzero"` // without a type
	Channel  string         `json:"channel,omitempty"`
	ChatID   string         `json:"chat_id,omitempty"`
	Messages []spoken       `json:"messages,omitzero"`
	LeftOut  int            `json:"left_out,omitempty"`
}

type spoken struct {
	Role       string    `json:"role"`
	Sender     string    `json:"sender"`
	SenderName string    `json:"sender_name,omitempty"`
	Text       string    `json:"text"`
	MessageID  string    `json:"message_id,omitempty"`
	ParentID   string    `json:"parent_id,omitempty"`
	SentAt     time.Time `json:"sent_at,omitzero"`
	Recalled   bool      `json:"recalled,omitempty"`
	Edited     bool      `json:"edited,omitempty"`

	Files []relay.File `json:"files,omitempty"`
}

func readTranscript(s *service, _ context.Context, in readTranscriptArguments) (conversation, error) {
	if in.ChatID == "" {
		return s.listChats(string(in.Channel))
	}
	c := conversation{Channel: string(cmp.Or(in.Channel, relay.DefaultChannel)), ChatID: string(in.ChatID),
		Messages: []spoken{}}
	if !s.Visible(c.Channel, c.ChatID) {
		return c, refuse("chat_id: you are in no such group; without chat_id this tool lists your groups")
	}
	entries, err := s.Transcripts.Tail(c.Channel, c.ChatID, cmp.Or(int(in.Limit), usualEntries))
	if err != nil {
		return c, err
	}
	size := 0
	for i, e := range slices.Backward(entries) {
		e.Content = cut(e.Content, maxText)
		if size += len(e.Content); size > maxTexts {
			c.LeftOut = i + 1
			break
		}
		c.Messages = append(c.Messages, spoken{e.Role, e.Sender, e.SenderName, e.Content, e.MessageID, e.ParentID,
			timeOf(e.TS), e.Recalled, e.Edited, e.Files})
	}
	slices.Reverse(c.Messages)
	return c, nil
}

// listChats lists the chats that the bot is in, of one channel or of all.
func (s *service) listChats(channel string) (conversation, error) {
	all, err := s.Transcripts.Chats()
	if err != nil {
		return conversation{}, err
	}
	chats := conversation{}
	for _, c := range all {
		if (channel == "" || channel == c.Channel) && s.Visible(c.Channel, c.ChatID) {
			chats.Chats = append(chats.Chats, Conversation{c.Channel, c.ChatID, "", "", timeOf(c.LastTS)})
		}
	}
	slices.SortStableFunc(chats.Chats, func(a, b Conversation) int { return b.LastMessageAt.Compare(a.LastMessageAt) })
	chats.Chats = atMost(chats.Chats, maxChats)
	return chats, nil
}

// timeOf is zero where the time is unknown.
func timeOf(ts int64) (at time.Time) {
	if ts != 0 {
		at = time.UnixMilli(ts).UTC()
	}
	return at
}

func (c conversation) content(asJSON string) []mcp.Content {
	if c.Chats != nil {
		return textContent(asJSON)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# TRANSCRIPT OF %s, THE OLDEST FIRST\n", mailbox.EscapeValue(c.Channel+"/"+c.ChatID))
	if c.LeftOut != 0 {
		fmt.Fprintf(&b, "%d older messages are left out for their size.\n", c.LeftOut)
	}
	if len(c.Messages) == 0 {
		b.WriteString("Nothing has been said there yet.\n")
	}
	for _, m := range c.Messages {
		name, at := m.SenderName, ""
		if name == m.Sender {
			name = ""
		}
		if !m.SentAt.IsZero() {
			at = m.SentAt.Format(time.RFC3339)
		}
		openTag(&b, "message", "from", m.Sender, "role", m.Role, "name", name, "sent_at", at, "recalled", flag(m.Recalled),
			"edited", flag(m.Edited), "id", m.MessageID)
		fmt.Fprintf(&b, ">\n%s\n", mailbox.EscapeText(m.Text))
		for _, f := range m.Files {
			openTag(&b, "file", "key", f.Key, "type", f.Type, "name", f.Name)
			b.WriteString("/>\n")
		}
		b.WriteString("</message>\n")
	}
	return textContent(b.String())
}

// openTag begins a tag with pairs of attributes, of which the empty ones are left out.
func openTag(b *strings.Builder, name string, pairs ...string) {
	b.WriteString("<" + name)
	for i := 0; i < len(pairs); i += 2 {
		mailbox.WriteAttribute(b, pairs[i], pairs[i+1])
	}
}

func flag(set bool) string {
	if set {
		return "true"
	}
	return ""
}

// maxFile is the most bytes of a file that a result holds: as base64 it is a third longer,
// and clients keep results in memory and give them to a model.
const maxFile = 4 << 20

func fileRoute(message, key string) string { return "GET /v1/messages/" + message + "/files/" + key }

type getFileArguments struct {
	MessageID name `json:"message_id"`
	Key       name `json:"key"`
}

type gotFile struct {
	MessageID name   `json:"message_id"`
	Key       name   `json:"key"`
	Type      string `json:"type,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type"`
	Bytes     int    `json:"bytes"`
	data      []byte
}

func (f gotFile) content(asJSON string) []mcp.Content {
	return append(textContent(asJSON), &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
		URI:      "feishu://messages/" + url.PathEscape(string(f.MessageID)) + "/files/" + url.PathEscape(string(f.Key)),
		MIMEType: f.MediaType, Blob: f.data,
	}})
}

func getFile(s *service, ctx context.Context, in getFileArguments) (out gotFile, err error) {
	if in.MessageID == "" || in.Key == "" {
		return out, refuse("message_id and key are needed; read_transcript shows them")
	}
	id, key := string(in.MessageID), string(in.Key)
	if err := errors.Join(relay.CheckID(id), relay.CheckID(key)); err != nil {
		return out, refuse("message_id or key %v", err)
	}
	f, err := s.File(ctx, relay.MessageID(id), key)
	if err != nil {
		return out, err
	}
	defer f.Body.Close()
	data, err := io.ReadAll(io.LimitReader(f.Body, maxFile+1))
	if err != nil {
		return out, err
	}
	if len(data) > maxFile {
		return out, refuse("the file is larger than %d bytes, the most that this tool returns; fetch it from the "+
			"sidecar's local API: %s", maxFile, fileRoute(url.PathEscape(id), url.PathEscape(key)))
	}
	return gotFile{in.MessageID, in.Key, f.Type, f.Name, f.Served(), len(data), data}, nil
}
