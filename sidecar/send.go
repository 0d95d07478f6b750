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
	"runtime"
	"slices"
	"strings"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/mention"
	"feishu-relay/relay"
	"feishu-relay/relay/outbox"
	"feishu-relay/transcript"
)

// Send takes what the bot says that it sent: written to the outbox, from where it
// is sure to reach the other bots, and then recorded. Only group messages are
// relayed; anything else is accepted and stays here.
func (s *Sidecar) Send(_ context.Context, out relay.Outbound) (relay.Sent, error) {
	return s.accept(out, s.recordOwn)
}

// accept sends out, and has record note it in the transcript.
func (s *Sidecar) accept(out relay.Outbound, record func(*relay.Message)) (relay.Sent, error) {
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
	m, err := s.sendOnce(channel, id, ts, out, record)
	if err == nil {
		err = s.bots.box.Await() // also of a repeat
	}
	if err != nil {
		s.problems.set("outbox", err)
		s.log.Error("a send is refused", keyMsg, id, keyErr, err)
		return relay.Sent{}, sendError(err)
	}
	if m == nil {
		return relay.Sent{RelayMsgID: id, Relayed: true}, nil
	}
	s.trace("answering")
	s.shown(m, s.peers.sentAt(m, now.Time()), relay.RoleAssistant, true)
	s.metrics.sent.WithLabelValues("true").Inc()
	s.log.Info("sent", keyChat, m.ChatID, keyMsg, id, "seq", m.Seq)
	return relay.Sent{RelayMsgID: id, Relayed: true}, nil
}

// sendOnce sends what was not sent under this id before; else m is nil. In one
// chat one call runs at a time, so that its order is the same everywhere.
func (s *Sidecar) sendOnce(channel string, id relay.MessageID, ts relay.Millis, out relay.Outbound, record func(*relay.Message)) (*relay.Message, error) {
	defer s.sending.lock(chatKey(channel, out.ChatID))()
	if s.sentIDs.Claim(string(id)) != dedup.New {
		return nil, nil
	}
	m, err := s.send(channel, id, ts, out, record)
	if err != nil {
		_ = s.sentIDs.Settle(string(id), false) // forgetting a claim does no I/O
		return nil, err
	}
	err = s.sentIDs.Settle(string(id), true)
	if err = errors.Join(err, s.sentIDs.Flush()); err != nil {
		s.problems.set("dedup", err)
	}
	return m, nil
}

func (s *Sidecar) send(channel string, id relay.MessageID, ts relay.Millis, out relay.Outbound, record func(*relay.Message)) (*relay.Message, error) {
	s.members.saw(channel, out.ChatID, ts)
	userTS, err := s.lastUser(channel, out.ChatID, out.ThreadID, ts)
	if err != nil {
		s.problems.set("transcript", err) // the message goes out without it
	}
	meta := relay.Metadata{}
	for k, v := range out.Metadata {
		if k != "is_mentioned" {
			meta[k] = v
		}
	}
	group := s.groups.Current().Groups[string(out.ChatID)]
	meta["chat_type"] = quote("group")
	meta["group_policy"] = quote(s.cfg.groupPolicyFor(group))
	self := s.self()
	m := &relay.Message{
		RelayMsgID: id, Channel: channel, ChatID: out.ChatID, Content: out.Content,
		SenderBotOpenID: self.OpenID, SenderAgentName: s.cfg.Agent, Metadata: meta,
		MessageID: out.MessageID, TS: ts, SenderAppID: self.AppID, SenderName: self.Name,
		Mentions: s.resolve(out.Content, out.MsgType, out.Mentions), MsgType: cmp.Or(out.MsgType, "text"),
		ParentID: out.ParentID, RootID: out.RootID, ThreadID: out.ThreadID, UserTS: userTS,
	}
	put, err := s.bots.box.Write(*m)
	if err != nil {
		return nil, err // and no transcript has it
	}
	s.trace("accepted")
	record(&put)
	runtime.Gosched() // to the publisher: the others are waiting, the bot has time
	return &put, nil
}

// recordOwn notes the bot's own message. Its ts goes out as the bot reports it,
// but is believed here as far as another's. The others get it whatever comes of
// this; stopOwn tries again.
func (s *Sidecar) recordOwn(m *relay.Message) {
	if _, err := s.transcript.Append(m.Channel, string(m.ChatID), botEntry(m, s.peers.sentAt(m, time.Now()))); err != nil {
		s.problems.set("transcript", err)
		s.log.Error("own message is not in the transcript", keyMsg, m.ID(), keyErr, err)
	}
	s.trace("recorded")
}

// Hear takes what the bot says that it heard from a person: for the transcript,
// and for the transcripts of those who could not hear it.
func (s *Sidecar) Hear(_ context.Context, h relay.Heard) (relay.Sent, error) {
	channel := orDefault(h.Channel)
	ts := h.TS
	if ts <= 0 {
		ts = relay.MillisOf(time.Now())
	}
	id := h.MessageID
	if id == "" {
		// Several bots may report the same message: they give it the same id.
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", h.ChatID, cmp.Or(h.Sender, string(h.SenderID)), h.TS, h.Content))
		if h.TS <= 0 {
			copy(sum[:], rand.Text())
		}
		id = relay.MessageID("user:" + hex.EncodeToString(sum[:12]))
	}
	group := isGroup(h.ChatType) && ofGroup(h.Metadata)
	s.talks.note(talk{Channel: channel, ChatID: h.ChatID, ChatType: chatType(group), MessageID: h.MessageID, At: ts})
	if !group {
		return relay.Sent{RelayMsgID: id}, nil
	}
	s.members.saw(channel, h.ChatID, ts)
	m := &relay.Message{
		RelayMsgID: id, Channel: channel, ChatID: h.ChatID, Content: h.Content, SenderAgentName: s.cfg.Agent,
		SenderBotOpenID: s.self().OpenID, Metadata: relay.Metadata{"chat_type": quote("group")}, MessageID: id, TS: ts,
		SenderName: cmp.Or(h.SenderName, h.Sender), MsgType: "text", ParentID: h.ParentID, RootID: h.RootID,
		ThreadID: h.ThreadID, Role: relay.RoleUser, SenderID: h.SenderID,
	}
	if m.SenderID == "" && strings.HasPrefix(h.Sender, "ou_") {
		m.SenderID = relay.OpenID(h.Sender)
	}
	defer s.sending.lock(chatKey(channel, h.ChatID))()
	if s.cfg.InjectContext > 0 {
		s.given.add(string(id))
	}
	// Shared first: a crash behind the transcript would leave it recorded here, and a repeat
	// could not tell that nobody has shared it.
	relayed := s.share(m)
	sent := s.peers.sentAt(m, time.Now())
	added, err := s.transcript.Append(channel, string(h.ChatID), userEntry(m, sent))
	if err != nil {
		s.problems.set("transcript", err)
		return relay.Sent{}, &relay.Error{Code: relay.CodeTranscriptUnavailable,
			Message: "the transcript cannot be written (see /v1/status); send it again later"}
	}
	s.spoke(m, sent)
	s.shown(m, sent, relay.RoleUser, false)
	s.metrics.recorded(relay.RoleUser, added)
	s.trace("heard")
	return relay.Sent{RelayMsgID: id, Relayed: relayed}, nil
}

// share hands a user's message to the others, unless it stands in the transcript: then whoever
// recorded it has shared it. Shared twice, it is still recorded once.
func (s *Sidecar) share(m *relay.Message) bool {
	if !s.cfg.UserMessages {
		return false
	}
	entries, err := s.transcript.Tail(m.Channel, string(m.ChatID), nearTail)
	if err != nil {
		s.problems.set("transcript", err)
	}
	if slices.ContainsFunc(entries, func(e transcript.Entry) bool { return e.MessageID == string(m.ID()) }) {
		return false
	}
	if _, err := s.users.box.Put(*m); err != nil {
		s.problems.set("outbox", err)
		s.log.Error("user's message is not shared", keyMsg, m.ID(), keyErr, err)
		return false
	}
	s.trace("shared")
	return true
}

// lastUser is the ts of the newest user's message known in a chat, or in a
// topic of it: one that stands here, or one that another bot knew of. Far back
// is looked only once: where bots talk among themselves there is none near.
func (s *Sidecar) lastUser(channel string, chat relay.ChatID, thread string, before relay.Millis) (relay.Millis, error) {
	key := topicKey(channel, chat, thread)
	known, looked := s.userTimes.Get(key)
	newest := known
	if known > int64(before) {
		newest, looked = 0, false
	}
	if passing, ok := s.hearing.Get(key); ok && passing <= int64(before) {
		newest = max(newest, passing)
	}
	for n := nearTail; n <= farTail; n *= 8 {
		entries, err := s.transcript.Outline(channel, string(chat), n, int64(before))
		for _, e := range entries {
			if e.ThreadID == thread && userTime(e) <= int64(before) {
				newest = max(newest, userTime(e))
			}
		}
		if err != nil {
			return relay.Millis(newest), err
		}
		if looked || newest > 0 || len(entries) < n {
			break
		}
	}
	s.userTimes.Add(key, max(known, newest))
	return relay.Millis(newest), nil
}

// spoke notes when a person spoke, or when a bot knew that one had.
func (s *Sidecar) spoke(m *relay.Message, sent time.Time) {
	at := userTime(botEntry(m, sent))
	if m.Role == relay.RoleUser {
		at = sent.UnixMilli()
	}
	key := topicKey(m.Channel, m.ChatID, m.ThreadID)
	if known, ok := s.userTimes.Get(key); ok && known < at {
		s.userTimes.Add(key, at)
	}
}

func userTime(e transcript.Entry) int64 {
	switch {
	case e.Role == relay.RoleUser:
		return e.TS
	case e.UserTS <= e.TS:
		return e.UserTS
	}
	return 0
}

// resolve completes what the bot says of its mentions by what the text shows.
func (s *Sidecar) resolve(content, msgType string, given []relay.Mention) []relay.Mention {
	refs := make([]mention.Ref, len(given))
	for i, m := range given {
		refs[i] = mention.Ref{Key: m.Key, Name: m.Name, OpenID: string(m.OpenID), AgentName: string(m.AgentName)}
	}
	var out []relay.Mention
	for _, r := range s.directory().Resolve(mention.Text{Content: content, MsgType: msgType, Refs: refs}) {
		out = append(out, relay.Mention{Key: r.Key, Name: r.Name, OpenID: relay.OpenID(r.OpenID), AgentName: relay.AgentName(r.AgentName)})
	}
	return out
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

// quote makes a JSON string.
func quote(text string) json.RawMessage {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is always JSON
	}
	return data
}
