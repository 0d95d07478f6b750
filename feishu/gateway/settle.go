package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

const (
	// lookAgain is how often the drafts are looked at when nothing happens.
	lookAgain = time.Minute
	// unsavedWait is how often the disk is tried again for drafts it refused.
	unsavedWait = 5 * time.Second
	// lastWait bounds the last pass when the gateway stops.
	lastWait = 5 * time.Second
)

// Run publishes drafts as they become final, until ctx is done. A last pass then
// publishes what is final by then, and what would be lost since no disk holds
// it; the rest waits on disk for the next run.
func (g *Gateway) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
			defer cancel()
			g.settle(last, true)
			return
		case <-g.drafts.wake:
		case <-timer.C:
		}
		g.drafts.saveRest()
		timer.Reset(g.settle(ctx, false))
	}
}

// settle publishes what is due and returns when to look again. last: the
// process ends, and drafts that no disk holds go out as they are.
func (g *Gateway) settle(ctx context.Context, last bool) (next time.Duration) {
	defer g.caught("settle")
	next = lookAgain
	now := time.Now()
	look := func(d *draft, held time.Time) time.Time { return g.look(d, held, now, last) }
	for _, d := range g.drafts.due(now, look, &next) {
		if ctx.Err() != nil {
			return next
		}
		again := g.finish(ctx, d)
		next = min(next, again)
	}
	if _, unsaved := g.drafts.sizes(); unsaved > 0 && g.opts.Root != nil {
		next = min(next, unsavedWait)
	}
	return next
}

// look is when something is to be done about d; held is when what is before it
// goes out.
func (g *Gateway) look(d *draft, held, now time.Time, last bool) time.Time {
	if d.Touched.Time().After(now) {
		d.Touched = relay.MillisOf(now) // the clock was put back
	}
	expires := d.expires(&g.opts)
	switch {
	case last && !d.saved && d.ready():
		d.forced = true
		return now
	case d.forced:
		return now
	case !d.ready() && d.Published == "":
		return expires
	}
	at := d.due(&g.opts)
	if held := d.Touched.Time().Add(typingHold); d.Wait == waitEdit && at.Before(held) && g.types(&d.Message) {
		at = held
	}
	if longest := d.Created.Time().Add(maxHeld); held.After(longest) {
		held = longest
	}
	for _, other := range []time.Time{d.retryAt, held} {
		if at.Before(other) {
			at = other
		}
	}
	return at
}

// due are the drafts whose time, as look tells it, has come, oldest first.
func (s *drafts) due(now time.Time, look func(d *draft, held time.Time) time.Time, next *time.Duration) []*draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retried()
	held := map[conversation]time.Time{}
	var due []*draft
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		at := look(d, held[d.conversation()])
		if d.goesOutSoon() {
			held[d.conversation()] = at
		}
		if wait := at.Sub(now); wait > 0 {
			*next = min(*next, wait)
		} else {
			due = append(due, d)
		}
	}
	return due
}

// ahead reports whether something is about to go out where d stands.
func (s *drafts) ahead(d *draft) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.all {
		if other.goesOutSoon() && other.conversation() == d.conversation() {
			return true
		}
	}
	return false
}

var errPanicked = errors.New("recording it panicked")

var errUnknownChat = errors.New("it is not known whether the chat is a group")

// finish publishes d, or drops it, and returns when to try again.
func (g *Gateway) finish(ctx context.Context, d *draft) time.Duration {
	g.drafts.mu.Lock()
	out, ready, forced := d.finished(), d.ready(), d.forced
	text, touched := digest(out.Text), d.Touched
	if d.Published != "" && d.Wait != waitMore && (!ready || text == d.Published) {
		d.Wait = waitMore // the change is undone, or none of the text
		g.drafts.save(d)
		g.drafts.unlock()
		return lookAgain
	}
	over := d.Wait == waitMore
	expired := !time.Now().Before(d.expires(&g.opts))
	g.drafts.mu.Unlock()

	var err error
	switch {
	case over:
		g.drafts.forget(d)
		return lookAgain
	case !ready:
		g.dropped(d, countedDraftExpired, "it never got a text")
		return lookAgain
	case g.kind(out.ChatID) == feishu.ChatP2P:
		why := ""
		if peerchat.IsID(out.ChatID) {
			why = "it is for an agent, and MAILBOX_GATEWAY is off: it is sent when that is on again"
		}
		g.dropped(d, countedDraftPrivate, why)
		return lookAgain
	case g.kind(out.ChatID) != feishu.ChatGroup:
		g.askChat(out.ChatID)
		err = errUnknownChat
	case !forced && g.mustAsk(&out):
		return g.nameAll(d, &out)
	default:
		err = g.publish(ctx, out)
	}
	if err == nil {
		g.count(countedDraftPublished)
		g.drafts.published(d, text, touched)
		return lookAgain
	}
	if expired || forced && errors.Is(err, errUnknownChat) {
		g.dropped(d, countedDraftExpired, err.Error())
		return lookAgain
	}
	return g.drafts.failed(d)
}

// dropped drops d; why, where it is not empty, is logged with it.
func (g *Gateway) dropped(d *draft, event feishu.Counted, why string) {
	g.count(event)
	g.drafts.forget(d)
	if why != "" && d.Message.ID != "" {
		g.log.Warn("a message of the bot is not relayed", "chat", d.Message.ChatID, "message_id", d.Message.ID, "reason", why)
	}
}

// finished is a group's message with the names of those that it mentions.
func (g *Gateway) finished(out Sent) Sent {
	out.Mentions = g.named(out.Mentions)
	out.Text = feishu.WithNames(out.Text, out.Mentions)
	out.ChatType = feishu.ChatGroup
	if peerchat.IsID(out.ChatID) {
		out.ChatType = feishu.ChatP2P
	}
	return out
}

// askChat asks Feishu, in the background, what kind a chat is, unless an answer has
// just come.
func (g *Gateway) askChat(id relay.ChatID) {
	g.ask("chat", string(id), func(ctx context.Context) {
		if kind := g.opts.Book.Chat(id).Kind; kind == feishu.ChatGroup || kind == feishu.ChatP2P {
			return
		}
		g.count(countedChatAsked)
		chat, err := g.opts.API.Chat(ctx, id)
		if err != nil {
			g.log.Debug("the kind of a chat is not known yet", "chat", id, "err", err)
			return
		}
		if chat.Kind == "" {
			return // not in the chat any more, says Feishu: that tells no kind
		}
		chat.ID, chat.Asked = id, time.Now()
		g.opts.Book.SetChat(chat)
	}, func() {
		if kind := g.opts.Book.Chat(id).Kind; kind == feishu.ChatGroup || kind == feishu.ChatP2P {
			g.drafts.retry(id, true)
		}
	})
}
