package sidecar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// recorder is the stages up to the transcript: whose a message is, whether it belongs here,
// and that it is recorded.
type recorder struct {
	*base
	chats    *chats
	app      *app
	watch    *watch
	secretOf func(relay.AgentName) *SecretError      // how a sender's RELAY_SECRET differs; nil: it is not known to
	waiting  *chatCounts                             // messages that wait for their transcript
	review   func(channel string, chat relay.ChatID) // looks at what waits for the bot
	missed   func(context.Context, *relay.Message)   // is told what another sidecar heard of a person
}

func (r *recorder) checkSignature(_ context.Context, p *arrival) (relay.Reason, error) {
	if r.cfg.RelaySecret == "" {
		return relay.Pass, nil
	}
	if p.cause = relay.Verify(p.Line, string(r.cfg.RelaySecret)); p.cause == nil {
		return relay.Pass, nil
	}
	if other := r.secretOf(p.msg.SenderAgentName); other != nil {
		p.cause = fmt.Errorf("%w: %w", p.cause, other)
		r.problems.set(string(relay.BadSignature), p.cause)
		return relay.BadSignature, nil
	}
	r.problems.set(string(relay.BadSignature), fmt.Errorf("message from %.100q: %w; set the same RELAY_SECRET at all "+
		"sidecars, or find out who else writes to the relay", p.msg.SenderAgentName, p.cause))
	return relay.BadSignature, nil
}

// stopRole keeps a message off a queue that it does not belong on: a bot's that
// passed for a person's would end the count of depth, and bots could talk for
// ever; a person's is not to be decided on as a bot's.
func (r *recorder) stopRole(is func(role string) bool) func(context.Context, *arrival) (relay.Reason, error) {
	return func(_ context.Context, p *arrival) (relay.Reason, error) {
		if is(p.msg.Role) {
			return relay.Malformed, nil
		}
		return relay.Pass, nil
	}
}

// stopOwn stops what this sidecar sent itself, once it is sure that it is in
// the transcript: the disk may have been full when it was sent.
func (r *recorder) stopOwn(_ context.Context, p *arrival) (relay.Reason, error) {
	m, self := &p.msg, r.app.self()
	if m.SenderAgentName != r.cfg.Agent &&
		(self.OpenID == "" || m.SenderBotOpenID != self.OpenID) &&
		(self.AppID == "" || m.SenderAppID != self.AppID) {
		return relay.Pass, nil
	}
	if !ofGroup(m.Metadata) || !r.chats.in(m.Channel, m.ChatID) {
		return relay.OwnMessage, nil // another program's, which sends in this bot's name
	}
	if _, why, err := r.write(p, entryOf(m, p.sent)); why != relay.Pass || err != nil {
		return why, err
	}
	return relay.OwnMessage, nil
}

// stopOtherChats stops what was said where the bot is not. Feishu, where it has
// to be asked, is asked in the chat's own time.
func (r *recorder) stopOtherChats(ctx context.Context, p *arrival) (relay.Reason, error) {
	if !ofGroup(p.msg.Metadata) {
		return relay.NotAMember, nil
	}
	in := r.chats.in(p.msg.Channel, p.msg.ChatID)
	if !in && !r.chats.settled(p.msg.Channel, p.msg.ChatID) {
		if !p.inChat {
			return relay.Pass, errUndecided
		}
		var err error
		if in, err = r.app.askMembership(ctx, p.msg.ChatID); err != nil {
			return relay.Pass, err
		}
	}
	if !in {
		return relay.NotAMember, nil
	}
	return relay.Pass, nil
}

func (r *recorder) record(_ context.Context, p *arrival) (relay.Reason, error) {
	entry := entryOf(&p.msg, p.sent)
	if entry.EditOf != "" { // of a message that may be missing here, as what came before the first start
		first := entry
		first.MessageID, first.EditOf = entry.EditOf, ""
		if _, why, err := r.write(p, first); why != relay.Pass || err != nil {
			return why, err
		}
	}
	added, why, err := r.write(p, entry)
	if why != relay.Pass || err != nil {
		return why, err
	}
	if entry.EditOf != "" {
		r.chats.edits.Add(entry.EditOf, &edit{Message: p.msg})
		r.review(p.msg.Channel, p.msg.ChatID)
	}
	r.app.met(&p.msg)
	r.chats.spoke(&p.msg, p.sent)
	r.watch.shown(&p.msg, p.sent, false)
	r.metrics.recorded(relay.RoleAssistant, added)
	r.trace("noted")
	return relay.Pass, nil
}

func (r *recorder) recordUser(ctx context.Context, p *arrival) (relay.Reason, error) {
	added, why, err := r.write(p, entryOf(&p.msg, p.sent))
	if why != relay.Pass || err != nil {
		return why, err
	}
	r.chats.spoke(&p.msg, p.sent)
	r.watch.shown(&p.msg, p.sent, false)
	r.metrics.recorded(relay.RoleUser, added)
	if !p.History && r.missed != nil && time.Since(p.sent) < r.cfg.MaxAge {
		r.missed(ctx, &p.msg)
	}
	return relay.Pass, nil
}

// unwrittenError is the error of a stage that could not write the transcript. The
// message is kept until it can, however long that takes.
type unwrittenError struct{ error }

func (u *unwrittenError) Unwrap() error { return u.error }

// write writes p's entry into the transcript. In the order of the queue it waits
// neither for a process that is paused with the transcript's lock nor for p's
// elders in the chat: both are for the chat's own order.
func (r *recorder) write(p *arrival, e transcript.Entry) (added bool, why relay.Reason, err error) {
	add := r.chats.transcript.Append
	if !p.inChat {
		add = r.chats.transcript.TryAppend
		if r.waiting.any(p.chat()) {
			return false, relay.Pass, &unwrittenError{transcript.ErrBusy}
		}
	}
	added, err = r.chats.record(add, p.msg.Channel, p.msg.ChatID, e)
	switch {
	case errors.Is(err, relay.ErrTooLarge):
		r.quarantine(p.Line)
		return false, relay.Malformed, nil
	case err != nil:
		return false, relay.Pass, &unwrittenError{err}
	}
	p.written()
	p.Line = nil // msg says the same, and may wait for long
	return added, relay.Pass, nil
}

// metaEditOf names, in the metadata of a message, the message whose text it replaces: a
// card or text that its bot went on to write after it was relayed. Its ts is that
// of the message, and its own id the same for the same text.
const metaEditOf = "edit_of"

// editOf returns the message that m edits; "": m is a message of its own.
func editOf(m *relay.Message) relay.MessageID {
	id := m.Metadata.Text(metaEditOf)
	if relay.CheckID(id) != nil || relay.MessageID(id) == m.ID() {
		return ""
	}
	return relay.MessageID(id)
}
