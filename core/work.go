package core

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"feishu-relay/group"
	"feishu-relay/internal/wait"
	"feishu-relay/loop"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// line is work that is done in order. What bounds it is the state that it comes from.
type line[T any] struct {
	mu    sync.Mutex
	list  []T
	added chan struct{} // of capacity 1
}

func (l *line[T]) wake() chan struct{} {
	if l.added == nil {
		l.added = make(chan struct{}, 1)
	}
	return l.added
}

func (l *line[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, x)
	wait.Wake(l.wake())
}

// peek waits for work and returns the first of it, at most n; nil when ctx ends.
func (l *line[T]) peek(ctx context.Context, n int) []T {
	for ctx.Err() == nil {
		l.mu.Lock()
		if len(l.list) > 0 {
			defer l.mu.Unlock()
			return slices.Clone(l.list[:min(n, len(l.list))])
		}
		added := l.wake()
		l.mu.Unlock()
		select {
		case <-added:
		case <-ctx.Done():
		}
	}
	return nil
}

func (l *line[T]) drop(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.Delete(l.list, 0, n)
}

func (l *line[T]) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// waiting is who waits for a result, by its key.
type waiting[T any] struct {
	mu   sync.Mutex
	list map[string][]chan T
}

func (w *waiting[T]) wait(key string) (got <-chan T, forget func()) {
	ch := make(chan T, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil {
		w.list = map[string][]chan T{}
	}
	w.list[key] = append(w.list[key], ch)
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list[key] = slices.DeleteFunc(w.list[key], func(x chan T) bool { return x == ch })
		if len(w.list[key]) == 0 {
			delete(w.list, key)
		}
	}
}

// any reports whether somebody waits for a result.
func (w *waiting[T]) any(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list[key]) > 0
}

func (w *waiting[T]) tell(key string, v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.list[key] {
		ch <- v
	}
	delete(w.list, key)
}

// done reports that an effect was done.
func (c *Core) done(of loop.Chat, key string) {
	c.result(of, group.Event{Kind: group.Done, Key: key})
}

func (c *Core) result(of loop.Chat, e group.Event) {
	_ = c.loop.Post(c.ctx, loop.Event{Chat: of, Group: &e}) // if we are stopping, it is done again after a restart
}

// do begins what an effect asks for, or leaves it to a restart. It is called by the loop and waits for
// nothing.
func (c *Core) do(e loop.Effect) {
	if c.ctx.Err() != nil {
		return
	}
	if e.Deliver != nil {
		c.doDeliver(e.Deliver)
		return
	}
	f := e.Group
	switch f.Do {
	case group.Append, group.Retext:
		c.inOrder(e.Chat.String(), e)
	case group.Redact:
		c.inOrder(e.Chat.String(), e)
		c.work.Go(func() { c.Watch.Recalled(e.Chat, f.ID) })
	case group.Publish:
		if f.Msg.Role == relay.RoleUser && f.Msg.SenderName == "" { // behind its line, where its sender has a name
			c.inOrder(e.Chat.String(), e)
			return
		}
		c.send(e.Chat, f)
	case group.Share:
		if f.Record.Kind == group.KindCommand && c.goesOn.Load() {
			c.Trace("marked")
		}
		c.Watch.Took(e.Chat, f.Record)
		c.share(e.Chat, f)
	case group.Deliver:
		c.Watch.Decided(f.Msg, *f.Decision, f.Mentioned)
		c.inOrder(e.Chat.String(), e)
	case group.Give:
		if c.GivesPeople && f.Key != "" && !c.heard.any(e.Chat.Key(f.ID)) {
			c.inOrder(e.Chat.String(), e)
			return
		}
		c.work.Go(func() { c.pass(e.Chat, f) })
	case group.Hold:
		c.passing.tell(e.Chat.Key(f.ID), Passage{Held: true})
	case group.Withhold:
		key := e.Chat.Key(f.ID)
		c.heard.tell(key, f.Reason)
		c.passing.tell(key, Passage{Reason: f.Reason})
		if note := eventNote(e.Chat, f.ID); c.loop.Note(note) != nil {
			c.Note(note, nil)
		}
	case group.Member:
		c.work.Go(func() { c.askMember(e.Chat, f) })
	case group.Fetch:
		c.inOrder("native/"+e.Chat.String()+"/"+string(f.Msg.SenderBotOpenID), e)
	case group.Tell:
		c.Watch.Told(e.Chat, f.Record)
	case group.Ask:
		c.work.Go(func() { c.ask(e.Chat, f) })
	case group.Claim:
		c.work.Go(func() { c.claim(e.Chat, f) })
	case group.React, group.Reply:
		c.work.Go(func() { c.show(e.Chat, f) })
	case group.Stop:
		m := f.Msg
		if m == nil {
			m = &relay.Message{Channel: e.Chat.Channel, ChatID: e.Chat.ID, RelayMsgID: f.ID}
		}
		c.Watch.Stopped(Stop{m, f.Reason, f.Text, f.Decision, f.Mentioned})
	case group.Respond:
		c.calls.tell(f.Call, f.Err)
	}
}

// Question is what the judge is asked about a message, with the lines before it in its conversation.
func (c *Core) Question(of loop.Chat, m policy.Entry, mentioned bool) (q policy.Question, err error) {
	q = policy.Question{Message: m, AgentName: string(c.Agent), AgentRole: c.Role, BotName: c.Self().Name,
		Mentioned: mentioned}
	entries, err := c.Transcripts.TailTo(of.Channel, string(of.ID), judgeTail, m.TS)
	slices.SortStableFunc(entries, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
	for _, e := range entries {
		if e.MessageID != m.MessageID && e.ThreadID == m.ThreadID && !e.Recalled {
			q.Transcript = append(q.Transcript, PolicyEntry(e))
		}
	}
	q.Transcript = q.Transcript[max(0, len(q.Transcript)-judgeLines):]
	return q, err
}

// The judge reads judgeLines of the conversation, which are looked for among the last judgeTail of the chat.
const (
	judgeLines = 12
	judgeTail  = 64
)

// ask asks the judge, who answers within its own time limit.
func (c *Core) ask(of loop.Chat, f *group.Effect) {
	q, err := c.Question(of, PolicyEntry(c.entry(f.Msg)), f.Mentioned)
	if err != nil {
		c.Watch.Problem("transcript", err) // it decides by the message alone
	}
	d := c.judged(c.ctx, q, f.Decision.Depth)
	if c.ctx.Err() == nil {
		c.result(of, group.Event{Kind: group.Done, Key: f.Key, Decision: &d})
	}
}

// judged is the judge's decision on a message of a depth between threshold and limit.
func (c *Core) judged(ctx context.Context, q policy.Question, depth int) policy.Decision {
	limits, judge := c.Judge()
	limits.Check, limits.Threshold, limits.MaxDepth = true, 0, 2
	d := policy.Decide(ctx, limits, 1, q, judge)
	d.Depth = depth
	return d
}

// claimLife is how long a claim holds.
const claimLife = time.Hour

func (c *Core) claim(of loop.Chat, f *group.Effect) {
	c.retry(of, f, func() (taken bool, err error) {
		holder, err := c.Bots.Claim(c.ctx, of.String()+"/"+f.Key, c.own, claimLife)
		if err != nil {
			c.Watch.Problem("claim", err)
		} else if holder == c.own && c.goesOn.Load() {
			c.Trace("claimed")
		}
		return holder != c.own, err
	})
}

// retry does an effect, again after an error, until it is known whether it failed.
func (c *Core) retry(of loop.Chat, f *group.Effect, do func() (failed bool, err error)) {
	for pauses := wait.NewBackoff(retryFirst, retryMost); c.ctx.Err() == nil; _ = pauses.Sleep(c.ctx) {
		if failed, err := do(); err == nil {
			c.result(of, group.Event{Kind: group.Done, Key: f.Key, Failed: failed})
			return
		}
	}
}

// texts are the effects that are done in order: of a chat those that go to its transcript, and behind them to the bot;
// of a sender what is read again of its messages.
type texts struct {
	mu   sync.Mutex
	list map[string][]loop.Effect // by order, of those that have a worker; guarded by mu
}

// inOrder has an effect done behind those of the same order.
func (c *Core) inOrder(order string, e loop.Effect) {
	t := &c.texts
	t.mu.Lock()
	defer t.mu.Unlock()
	list, working := t.list[order]
	t.list[order] = append(list, e)
	if !working {
		c.work.Go(func() { c.writeTexts(order) })
	}
}

// next is the first effect of an order; done: the one before has been. It is not ok if there is none any more.
func (t *texts) next(order string, done bool) (e loop.Effect, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done {
		t.list[order] = t.list[order][1:]
	}
	if len(t.list[order]) == 0 {
		delete(t.list, order)
		return e, false
	}
	return t.list[order][0], true
}

// recalls reports whether one of these messages is to be redacted.
func (t *texts) recalls(order string, ids ...relay.MessageID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.list[order], func(e loop.Effect) bool {
		return e.Group.Do == group.Redact && slices.Contains(ids, e.Group.ID)
	})
}

// writeTexts does what is to be done in an order.
func (c *Core) writeTexts(order string) {
	pauses := wait.NewBackoff(retryFirst, retryMost)
	for e, ok := c.texts.next(order, false); ok && c.ctx.Err() == nil; e, ok = c.texts.next(order, true) {
		of, f := e.Chat, e.Group
		if c.Feishu != nil && (f.Do == group.Append || f.Do == group.Publish) && f.Msg.Role == relay.RoleUser {
			f = new(*f)
			if f.Msg = c.Feishu.Complete(c.ctx, f.Msg); f.Msg == nil { // it says nothing
				c.done(of, f.Key)
				continue
			}
		}
		switch f.Do {
		case group.Deliver, group.Give:
			c.give(of, f)
		case group.Retext:
			c.retext(of, f)
		case group.Fetch:
			c.fetch(of, f)
		case group.Publish:
			c.send(of, f)
		default:
			for err := c.append(of, f); err != nil; err = c.append(of, f) {
				c.Watch.Problem("transcript", err)
				c.Watch.Retried("transcript")
				if pauses.Sleep(c.ctx) != nil {
					return
				}
			}
			pauses.Reset()
			c.done(of, f.Key)
		}
	}
}

func (c *Core) append(of loop.Chat, f *group.Effect) error {
	if f.Do == group.Redact {
		_, err := c.Transcripts.Redact(of.Channel, string(of.ID), string(f.ID))
		return err
	}
	e := c.entry(f.Msg)
	added, err := c.Transcripts.Append(of.Channel, string(of.ID), e)
	if errors.Is(err, relay.ErrTooLarge) {
		c.Watch.Problem("transcript", err)
		return nil
	}
	if err == nil {
		if c.texts.recalls(of.String(), f.ID, group.EditOf(f.Msg)) {
			e.Content, e.Recalled = "", true
		}
		c.Watch.Recorded(f.Msg, e, f.Depth, added)
		if f.Msg.SenderAgentName == c.Agent && f.Msg.Role != relay.RoleUser {
			c.Trace("recorded")
		}
	}
	return err
}

// entry is a message as it stands in a transcript.
func (c *Core) entry(m *relay.Message) transcript.Entry {
	role, sender := relay.RoleAssistant, cmp.Or(string(m.SenderAgentName), string(m.SenderBotOpenID))
	if m.Role == relay.RoleUser {
		role, sender = relay.RoleUser, cmp.Or(m.SenderName, string(m.SenderID), "user")
	}
	ts, now := m.TS, time.Now()
	if ts <= 0 || ts.Time().Sub(now) > relay.MaxAhead {
		ts = relay.MillisOf(now)
	}
	final := int64(0)
	if m.Final() > m.TS {
		final = int64(m.Final())
	}
	return transcript.Entry{FinalTS: final, Role: role, Files: m.Metadata.Files(), Content: m.Content, Sender: sender,
		MessageID: string(m.ID()), TS: int64(ts), SenderName: m.SenderName, ThreadID: m.ThreadID,
		ParentID: string(m.ParentID), RootID: string(m.RootID), UserTS: int64(m.UserTS), MsgType: m.MsgType,
		PartOf: partOf(m), EditOf: string(group.EditOf(m)), Recalled: m.Content == "" && m.MsgType == ""}
}

func partOf(m *relay.Message) string {
	id := m.Metadata.Text(group.MetaPartOf)
	if relay.CheckID(id) != nil {
		return ""
	}
	return id
}

// PolicyEntry is an entry as the policy reads it.
func PolicyEntry(e transcript.Entry) policy.Entry {
	return policy.Entry{Role: e.Role, Sender: e.Sender, SenderName: e.SenderName, MessageID: cmp.Or(e.EditOf, e.MessageID),
		ParentID: e.ParentID, ThreadID: e.ThreadID, Content: e.Content, TS: e.TS}
}
