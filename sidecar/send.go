package sidecar

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/gateway"
	"feishu-relay/internal/wait"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
	"feishu-relay/relay/outbox"
	"feishu-relay/transcript"
)

// sender takes what the bot says, and what it heard from people, to the queue and the
// transcript.
type sender struct {
	*base
	chats     *chats
	app       *app
	watch     *watch
	lanes     *lanes
	steer     *steering
	deliver   *deliverer
	native    *native // nil without a gateway or connector
	given     *givenLines
	sentIDs   *dedup.Window // own messages
	saver     *wait.Saver   // of sentIDs
	sending   chatLocks
	recording sync.WaitGroup // own messages that are recorded after the bot has its answer
}

const (
	// The ids of own messages are saved when saveSent are new, or after saveSentAfter.
	saveSent      = 100
	saveSentAfter = 10 * time.Millisecond
)

func openSender(b *base, c *chats, a *app, w *watch, l *lanes, given *givenLines) (_ *sender, err error) {
	s := &sender{base: b, chats: c, app: a, watch: w, lanes: l, given: given,
		saver: wait.NewSaver(saveSent, saveSentAfter, saveAgain), sending: chatLocks{locks: map[string]*chatLock{}}}
	s.sentIDs, err = b.window(".sent.jsonl", b.cfg.DedupSize)
	return s, err
}

// run writes the ids of own messages soon after they were sent, until ctx is done: the bot
// does not wait for that. Of an id that a crash takes, a repeat by the bot is published
// again, and sidecars drop it.
func (s *sender) run(ctx context.Context) {
	s.saver.Run(ctx, func() error {
		s.saver.Saved()
		err := s.sentIDs.Flush()
		if err != nil {
			s.problems.set("dedup", err)
		}
		return err
	})
}

// Send takes what the bot says that it sent: written to the outbox, from where it
// is sure to reach the other bots, and then recorded. Only group messages are
// relayed; anything else is accepted and stays here.
func (s *sender) Send(_ context.Context, out relay.Outbound) (relay.Sent, error) {
	return s.accept(out, s.recordOwn)
}

// accept sends out, and has record note it in the transcript.
func (s *sender) accept(out relay.Outbound, record func(*relay.Message)) (relay.Sent, error) {
	channel := orDefault(out.Channel)
	now := relay.MillisOf(time.Now())
	ts := now
	if out.TS > 0 {
		ts = out.TS
	}
	id := out.MessageID
	if id == "" {
		id = relay.NewID(s.cfg.Agent, out.ChatID, ts, rand.Text()[:10])
	}
	if !isGroup(out.ChatType) || !ofGroup(out.Metadata) {
		s.metrics.sent.WithLabelValues("false").Inc()
		return relay.Sent{RelayMsgID: id}, nil
	}
	if s.chats.recalls.has(channel, out.ChatID, id, relay.MessageID(out.Metadata.Text(metaEditOf))) {
		s.metrics.sent.WithLabelValues("false").Inc()
		return relay.Sent{RelayMsgID: id}, nil // nobody is to read it any more
	}
	m, err := s.sendOnce(s.message(channel, id, ts, out), record)
	if err == nil {
		err = s.lanes.bots.box.Await() // also of a repeat
	}
	if err != nil {
		s.problems.set("outbox", err)
		s.log.Error("a send was refused", keyMsg, id, keyErr, err)
		return relay.Sent{}, sendError(err)
	}
	if m == nil {
		return relay.Sent{RelayMsgID: id, Relayed: true}, nil
	}
	s.trace("answering")
	s.watch.shown(m, s.chats.peers.sentAt(m, now.Time()), true)
	s.watch.counting.Go(func() { s.noteRefused(m) })
	s.metrics.sent.WithLabelValues("true").Inc()
	s.log.Info("sent", keyChat, m.ChatID, keyMsg, id, "seq", m.Seq)
	return relay.Sent{RelayMsgID: id, Relayed: true}, nil
}

// sendOnce sends m unless a message was sent under its id before; then it returns nil. In one
// chat one call runs at a time, so that its order is the same everywhere.
func (s *sender) sendOnce(m *relay.Message, record func(*relay.Message)) (*relay.Message, error) {
	id := string(m.RelayMsgID)
	defer s.sending.lock(chatKey(m.Channel, m.ChatID))()
	if s.sentIDs.Claim(id) != dedup.New {
		return nil, nil
	}
	put, err := s.lanes.bots.box.Write(*m)
	if err != nil {
		_ = s.sentIDs.Settle(id, false) // forgetting a claim does no I/O
		return nil, err                 // and no transcript has it
	}
	s.trace("accepted")
	record(&put)
	if err := s.sentIDs.Settle(id, true); err != nil {
		s.problems.set("dedup", err)
	}
	s.saver.Note()
	return &put, nil
}

// message is what the bot says that it sent, as it is relayed.
func (s *sender) message(channel string, id relay.MessageID, ts relay.Millis, out relay.Outbound) *relay.Message {
	s.chats.saw(channel, out.ChatID, ts)
	userTS, err := s.steer.spoken(channel, out.ChatID, out.ThreadID, ts)
	if err != nil {
		s.problems.set("transcript", err) // the message goes out without it
	}
	meta := relay.Metadata{}
	for k, v := range out.Metadata {
		if k != "is_mentioned" {
			meta[k] = v
		}
	}
	group := s.chats.group(out.ChatID)
	meta["chat_type"] = groupQuoted
	meta["group_policy"] = quote(s.cfg.groupPolicyFor(group))
	self := s.app.self()
	return &relay.Message{
		RelayMsgID: id, Channel: channel, ChatID: out.ChatID, Content: out.Content,
		SenderBotOpenID: self.OpenID, SenderAgentName: s.cfg.Agent, Metadata: meta,
		MessageID: out.MessageID, TS: ts, SenderAppID: self.AppID, SenderName: self.Name,
		Mentions: s.app.resolve(out.Content, out.MsgType, out.Mentions), MsgType: cmp.Or(out.MsgType, "text"),
		ParentID: out.ParentID, RootID: out.RootID, ThreadID: out.ThreadID, UserTS: userTS,
	}
}

// recordOwn notes the bot's own message. The others get it whatever comes of this; stopOwn tries again.
func (s *sender) recordOwn(m *relay.Message) { s.recorded(m, s.record(s.chats.transcript.Append, m)) }

// record writes m into the transcript. Its ts goes out as the bot reports it, but is believed here as far as
// another's.
func (s *sender) record(add func(channel, chat string, e transcript.Entry) (bool, error), m *relay.Message) error {
	_, err := s.chats.record(add, m.Channel, m.ChatID, entryOf(m, s.chats.peers.sentAt(m, time.Now())))
	return err
}

func (s *sender) recorded(m *relay.Message, err error) {
	if err != nil {
		s.problems.set("transcript", err)
		s.log.Error("the bot's message is not in the transcript", keyMsg, m.ID(), keyErr, err)
	}
	s.trace("recorded")
}

// Hear takes what the bot says that it heard from a person: for the transcript,
// and for the transcripts of those who could not hear it. It tells whether the message is
// for this bot. What asks to steer is refused unless steers is true.
func (s *sender) Hear(ctx context.Context, h relay.Heard, steers bool) (relay.Sent, error) {
	m, group := s.person(h)
	by := sentBy{h.UnionID, cmp.Or(h.SenderType, feishu.SenderUser)}
	if group && !steers && s.steer.asksTo(m, by) != relay.Pass {
		return relay.Sent{}, relay.Errorf(web.CodeAdminToken,
			"commands reported here need ADMIN_TOKEN, the token for people; API_TOKEN is the bot's")
	}
	answer, bots, err := s.hear(ctx, m, group, by)
	if err != nil || !group {
		return answer, err
	}
	if bots != nil {
		answer.Reason = s.oneOf(ctx, m, bots)
		answer.ForMe = new(answer.Reason == relay.Pass)
	}
	if answer.Reason == relay.Pass {
		s.watch.gave(m, "")
	} else if answer.Reason != relay.Command {
		s.watch.withheld(m, answer.Reason)
	}
	return answer, nil
}

// hear records a person's message. Where that is for one of several bots, it returns these, and
// it is not known yet whether it is for this one.
func (s *sender) hear(ctx context.Context, m *relay.Message, group bool, by sentBy) (answer relay.Sent,
	bots []relay.AgentName, err error) {
	s.chats.noteTalk(talk{Channel: m.Channel, ChatID: m.ChatID, ChatType: chatType(group), MessageID: m.MessageID,
		At: m.TS})
	answer.RelayMsgID = m.ID()
	if group {
		if answer.Reason, bots, err = s.steer.weigh(ctx, m, by); err != nil {
			return relay.Sent{}, nil, sendError(err)
		}
		if answer.Reason != relay.Command {
			if answer.Relayed, err = s.recordPerson(m); err != nil {
				return relay.Sent{}, nil, err
			}
		}
		if answer.Reason == relay.Pass {
			s.gave(m)
		}
	}
	answer.ForMe = new(answer.Reason == relay.Pass)
	return answer, bots, nil
}

// oneOf waits until it is known which of some bots gets a person's message: why it is not this one.
func (s *sender) oneOf(ctx context.Context, m *relay.Message, bots []relay.AgentName) relay.Reason {
	why := s.steer.oneOf(ctx, m, bots)
	if why == relay.Pass {
		s.gave(m)
	}
	return why
}

// gave notes that the bot has a person's message: its context does not show it again.
func (s *sender) gave(m *relay.Message) {
	if s.deliver.contextLines(m.ChatID) > 0 {
		s.given.add(string(m.ID()))
	}
}

// person is what was heard from a person, as it is shared; group: in a group.
func (s *sender) person(h relay.Heard) (m *relay.Message, group bool) {
	channel := orDefault(h.Channel)
	ts := h.TS
	if ts <= 0 {
		ts = relay.MillisOf(time.Now())
	}
	id := h.MessageID
	if id == "" {
		// Several bots may report the same message: they give it the same id.
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", h.ChatID, cmp.Or(h.Sender, string(h.SenderID)),
			h.TS, h.Content))
		if h.TS <= 0 {
			copy(sum[:], rand.Text())
		}
		id = relay.MessageID("user:" + hex.EncodeToString(sum[:12]))
	}
	if group = isGroup(h.ChatType) && ofGroup(h.Metadata); group {
		s.chats.saw(channel, h.ChatID, ts)
	}
	meta := relay.Metadata{"chat_type": groupQuoted}
	if keys, ok := h.Metadata[metaKeys]; ok {
		meta[metaKeys] = keys
	}
	if err := meta.SetFiles(h.Metadata.Files()); err != nil {
		s.problems.set("files", err) // the message goes on without them
	}
	m = &relay.Message{
		RelayMsgID: id, Channel: channel, ChatID: h.ChatID, Content: h.Content, SenderAgentName: s.cfg.Agent,
		SenderBotOpenID: s.app.self().OpenID, Metadata: meta, MessageID: id, TS: ts,
		SenderName: cmp.Or(h.SenderName, h.Sender), MsgType: cmp.Or(h.MsgType, "text"), Mentions: h.Mentions,
		ParentID: h.ParentID, RootID: h.RootID, ThreadID: h.ThreadID, Role: relay.RoleUser, SenderID: h.SenderID,
	}
	if m.SenderID == "" && strings.HasPrefix(h.Sender, "ou_") {
		m.SenderID = relay.OpenID(h.Sender)
	}
	if agent, is := s.app.botOf(m.SenderID); is {
		m.Role, m.SenderAgentName, m.SenderBotOpenID = relay.RoleAssistant, agent, m.SenderID
	}
	return m, group
}

// recordPerson records a person's message, here and at those who could not hear it.
func (s *sender) recordPerson(m *relay.Message) (relayed bool, err error) {
	defer s.sending.lock(chatKey(m.Channel, m.ChatID))()
	// Shared first: a crash behind the transcript would leave it recorded here, and a repeat
	// could not tell that nobody has shared it.
	if s.chats.wasRecalled(m) {
		m = noText(m)
	}
	relayed = s.share(m)
	sent := s.chats.peers.sentAt(m, time.Now())
	added, err := s.chats.record(s.chats.transcript.Append, m.Channel, m.ChatID, entryOf(m, sent))
	if err != nil {
		s.problems.set("transcript", err)
		return false, &relay.Error{Code: relay.CodeTranscriptUnavailable,
			Message: "the transcript cannot be written (see /v1/status); send it again later"}
	}
	s.chats.spoke(m, sent)
	s.watch.shown(m, sent, false)
	s.metrics.recorded(m.Role, added)
	s.trace("heard")
	return relayed, nil
}

// share hands a user's message to the others, unless it is in the transcript: then whoever
// recorded it has shared it. Shared twice, it is still recorded once.
func (s *sender) share(m *relay.Message) bool {
	if !s.cfg.UserMessages || m.Role != relay.RoleUser {
		return false
	}
	entries, err := s.chats.transcript.Tail(m.Channel, string(m.ChatID), nearTail)
	if err != nil {
		s.problems.set("transcript", err)
	}
	if slices.ContainsFunc(entries, func(e transcript.Entry) bool { return e.MessageID == string(m.ID()) }) {
		return false
	}
	if _, err := s.lanes.users.box.Put(*m); err != nil {
		s.problems.set("outbox", err)
		s.log.Error("a person's message cannot be published", keyMsg, m.ID(), keyErr, err)
		return false
	}
	s.trace("shared")
	return true
}

func sendError(err error) error {
	if errors.Is(err, relay.ErrTooLarge) {
		return &relay.Error{Code: relay.CodeTooLarge, Message: err.Error()}
	}
	if errors.Is(err, relay.ErrUnsignable) {
		return &relay.Error{Code: relay.CodeInvalidRequest, Message: err.Error()}
	}
	if errors.Is(err, outbox.ErrFull) {
		return &relay.Error{Code: relay.CodeOutboxFull, Message: err.Error()}
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return &relay.Error{Code: relay.CodeOutboxUnavailable,
			Message: "the message cannot be written down (see /v1/status); send it again later, with the same message_id"}
	}
	return fmt.Errorf("send: %w", err)
}

// groupQuoted is "group" in JSON.
var groupQuoted = quote("group")

// quote makes a JSON string.
func quote(text string) json.RawMessage {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is always JSON
	}
	return data
}

// sent relays a message of the bot. first is the first one of the same send.
func (s *sender) sent(m gateway.Sent, first relay.MessageID) error {
	meta := relay.Metadata{"chat_type": groupQuoted}
	if m.Type == content.TypeForward {
		m.Text = s.app.read(context.Background(), &m.Message).Text()
	}
	if first != m.ID {
		meta[metaPartOf] = quote(string(first))
	}
	if err := setFiles(meta, m.Keys, m.Files); err != nil {
		return err
	}
	if now := relay.MillisOf(time.Now()); m.CreateTime > 0 && now-m.CreateTime > finalAfter {
		meta[relay.MetaFinal] = fmt.Appendf(nil, "%d", now)
	}
	if m.EditOf != "" {
		meta[metaEditOf] = quote(string(m.EditOf))
	}
	_, err := s.accept(relay.Outbound{ChatID: m.ChatID, Content: m.Text, MessageID: m.ID, TS: m.CreateTime,
		ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID, MsgType: m.Type,
		Mentions: s.app.mentionsOf(m.Mentions), Metadata: meta}, s.recordSent)
	return err
}

// metaKeys lists, in the metadata of a message, the keys of the images and files in it.
const metaKeys = "media_keys"

// setFiles notes in meta what images and files a message has.
func setFiles(meta relay.Metadata, keys []string, files []relay.File) error {
	if len(keys) > 0 {
		list, err := json.Marshal(keys)
		if err != nil {
			return err
		}
		meta[metaKeys] = list
	}
	return meta.SetFiles(files)
}

// recordSent notes the bot's own message, behind the bot's answer where another process has the transcript
// locked. After a crash in between, stopOwn records the message when it comes back from the queue.
func (s *sender) recordSent(m *relay.Message) {
	err := s.record(s.chats.transcript.TryAppend, m)
	if errors.Is(err, transcript.ErrBusy) {
		s.recording.Go(func() { s.recordOwn(m) })
		return
	}
	s.recorded(m, err)
}

// heardFrom is a person's message in a group, as it is shared.
func (s *sender) heardFrom(m *feishu.Message) (*relay.Message, error) {
	doc, meta := m.Doc(), relay.Metadata{}
	err := setFiles(meta, doc.Keys(), doc.Files())
	h, _ := s.person(relay.Heard{ChatID: m.ChatID, ChatType: m.ChatType, Content: doc.Text(), Metadata: meta,
		Sender: string(m.Sender.OpenID), SenderName: m.Sender.Name, SenderID: m.Sender.OpenID, MsgType: m.Type,
		Mentions: s.app.mentionsOf(m.Mentions), MessageID: m.ID, TS: m.CreateTime, ParentID: m.ParentID,
		RootID: m.RootID, ThreadID: m.ThreadID})
	return h, err
}

// heard commits a person's message, and decides how it goes on to the bot. [native.recordHeard] records it.
func (s *sender) heard(ctx context.Context, m feishu.Message, event []byte) (p feishu.Passage, err error) {
	s.chats.noteTalk(talk{Channel: relay.DefaultChannel, ChatID: m.ChatID, ChatType: m.ChatType, MessageID: m.ID,
		At: m.CreateTime})
	if m.ChatType != feishu.ChatGroup { // a private chat never leaves its bot
		return p, nil
	}
	who, _ := s.app.book.Name(string(m.Sender.OpenID)) // Feishu is asked once the bot has the message
	if who.Name == "" && s.steer.oneAnswers(m.ChatID) {
		who.Name = s.app.person(ctx, &m)
	}
	m.Sender.Name = cmp.Or(m.Sender.Name, who.Name)
	h, err := s.heardFrom(&m)
	if err != nil {
		return p, err
	}
	why, bots, err := s.steer.weigh(ctx, h, sentBy{m.Sender.UnionID, m.Sender.Type})
	if err != nil { // Feishu delivers what was asked again
		return feishu.Passage{Verdict: feishu.Refuse}, err
	}
	if why != relay.Pass {
		p.Verdict = feishu.Keep
	}
	if slices.Contains(bots, s.cfg.Agent) { // it waits until it is known which of them gets it
		why = relay.Pass
		if err := s.native.keepEvent(ctx, h, bots, event); err != nil { // rather once too often than never
			s.problems.set("steer", err)
			p.Verdict = feishu.Pass
		}
	}
	if given := string(why); why != relay.Command {
		if p.Verdict == feishu.Pass {
			given = whyGiven
		}
		err = s.native.keep(ctx, h, nativeHeard, event, metaWhy, quote(given))
	}
	if n := s.deliver.contextLines(h.ChatID); n > 0 && p.Verdict == feishu.Pass {
		given := []string{string(m.ID)}
		if content.IsText(m.Type) {
			before, ids := s.deliver.context(h, h.TS.Time(), n)
			p.Before, given = before, append(given, ids...)
		}
		s.given.add(given...)
	}
	return p, err
}
