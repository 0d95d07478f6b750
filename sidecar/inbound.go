package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"feishu-relay/dedup"
	"feishu-relay/feishu/content"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// inbound makes of p what the bot gets, and tells which lines of the transcript
// it is thereby given.
func (d *deliverer) inbound(p *arrival) (in relay.Inbound, given []string) {
	m := &p.msg
	meta := make(map[string]any, len(m.Metadata)+12) // most messages lack some
	for k, v := range m.Metadata {
		meta[k] = v
	}
	for _, f := range [...]struct{ key, value string }{
		{"message_id", string(m.MessageID)}, {"parent_id", string(m.ParentID)}, {"root_id", string(m.RootID)},
		{"thread_id", m.ThreadID}, {"sender_name", m.SenderName}, {"msg_type", m.MsgType}, {"sender_app_id", m.SenderAppID},
	} {
		if f.value != "" {
			meta[f.key] = f.value
		}
	}
	fromBot := m.Role != relay.RoleUser
	meta["from_bot"] = fromBot
	meta["is_mentioned"] = p.mentioned
	meta["relay_msg_id"] = m.RelayMsgID
	meta["group_policy"] = d.cfg.groupPolicyFor(p.group)
	meta["mentions"] = append([]relay.Mention{}, m.Mentions...) // a list also where there are none
	if fromBot {
		meta["sender_agent_name"] = m.SenderAgentName
		meta["chat_type"] = "group"
		meta["depth"] = p.decision.Depth
		meta["decision"] = p.decision
	}
	for _, key := range [...]string{metaNative, metaUnion, metaType} {
		delete(meta, key)
	}

	text := d.quoted(m)
	given = []string{givenBy(m.SenderAgentName, p.key), givenAs(m.RelayMsgID)}
	var shows []string
	if n := d.contextLines(m.ChatID); n > 0 {
		if given = append(given, p.key); fromBot || content.IsText(m.MsgType) {
			before, ids := d.context(m, p.sent, n)
			text, shows = before+text, ids
			given = append(given, ids...)
		}
	}
	in = relay.Inbound{Source: m, Shows: shows, Mentioned: p.mentioned, Final: relay.MillisOf(p.final), Channel: m.Channel,
		SenderID: cmp.Or(string(m.SenderID), string(m.SenderBotOpenID), string(m.SenderAgentName)),
		ChatID:   m.ChatID, Content: text, Timestamp: relay.Timestamp(p.sent), Metadata: meta}
	if d.doors.gateway != nil {
		in.ShownAs = d.doors.gateway.idOf(m) // the same on each write, also after a restart
	}
	return in, given
}

// quoted is the text of m. Where a bot says only a name, the message that it replies to stands before it.
func (d *deliverer) quoted(m *relay.Message) string {
	if m.Role == relay.RoleUser || m.ParentID == "" || !d.bare(m.Content) {
		return m.Content
	}
	entries, err := d.chats.transcript.Tail(m.Channel, string(m.ChatID), contextTail)
	if err != nil {
		d.problems.set("context", err) // the message itself goes on
	}
	inTime(entries)
	for _, e := range entries {
		if e.MessageID == string(m.ParentID) && !e.Recalled &&
			!d.chats.recalls.has(m.Channel, m.ChatID, m.ParentID) {
			return "> " + oneLine(cmp.Or(e.SenderName, e.Sender)) + ": " + oneLine(e.Content) + "\n" + m.Content
		}
	}
	return m.Content
}

// bare reports whether a text has no letter or digit but those of names that it addresses.
func (d *deliverer) bare(text string) bool {
	for _, hit := range slices.Backward(d.app.directory().Plain(text)) {
		text = text[:hit.From] + text[hit.To:]
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// contextTail is how far back lines for INJECT_CONTEXT are looked for.
const contextTail = 200

// Bounds of the context in bytes: of one line, whose rest is cut, and of all, beyond which the oldest are left out.
const (
	maxContextLine = 4 << 10
	maxContext     = 16 << 10
)

// contextLines is how many lines that the bot was not given stand before a text in a chat.
func (d *deliverer) contextLines(chat relay.ChatID) int {
	if n := d.chats.group(chat).InjectContext; n != nil {
		return *n
	}
	return d.cfg.InjectContext
}

// context is the last n lines before m that the bot was not given.
func (d *deliverer) context(m *relay.Message, sent time.Time, n int) (text string, ids []string) {
	entries, err := d.chats.transcript.Tail(m.Channel, string(m.ChatID), contextTail)
	if err != nil {
		d.problems.set("context", err) // the message itself goes on
		return "", nil
	}
	inTime(entries)
	var lines []string // the newest first
	size := 0
	for i := len(entries) - 1; i >= 0 && len(lines) < n; i-- {
		e := entries[i]
		if e.MessageID == string(m.ID()) || e.TS > sent.UnixMilli() || e.ThreadID != m.ThreadID ||
			e.Sender == string(d.cfg.Agent) || e.Recalled ||
			d.chats.recalls.has(m.Channel, m.ChatID, relay.MessageID(e.MessageID)) ||
			d.given.has(e.MessageID) {
			continue
		}
		line := oneLine(cmp.Or(e.SenderName, e.Sender)) + ": " + oneLine(e.Content) + "\n"
		if size += len(line); size > maxContext {
			break
		}
		lines, ids = append(lines, line), append(ids, e.MessageID)
	}
	if len(lines) == 0 {
		return "", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[context: %d earlier messages of this group, not addressed to you]\n", len(lines))
	for _, line := range slices.Backward(lines) {
		b.WriteString(line)
	}
	b.WriteString(relay.ContextEnd)
	return b.String(), ids
}

// oneLine keeps a text, or a name that anybody can choose, from ending its line
// and with it the context.
func oneLine(text string) string {
	return runes.Short(strings.Join(strings.Fields(text), " "), maxContextLine)
}

// givenLines remembers which lines of transcripts the bot was given, and which messages
// by whom, as far back as a window reaches.
type givenLines struct{ window *dedup.Window }

// givenBy is what is remembered of a message that was delivered: an edit counts only
// if its sender is that of the message.
func givenBy(sender relay.AgentName, key string) string { return string(sender) + "/" + key }

// givenAs is what is remembered of a message that was delivered, by the id that the
// bot settles it with.
func givenAs(id relay.MessageID) string { return ":id/" + string(id) }

// releasedAs is what is remembered of a message that was released and delivered.
func releasedAs(key string) string { return ":released/" + key }

func (g *givenLines) add(ids ...string) {
	for _, id := range ids {
		if g.window.Claim(id) == dedup.New {
			_ = g.window.Settle(id, true) // lost with a full disk, a line is given twice
		}
	}
	_ = g.window.Flush()
}

func (g *givenLines) has(id string) bool { return g.window.Seen(id) }
