package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/group"
	"feishu-relay/internal/wait"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// The lanes.
const (
	Outbound = "outbound" // bots' messages
	Inbound  = "inbound"  // people's messages
	Side     = "side"     // records of the groups
)

// lane is a queue between the sidecars, and what is to be published on it.
type lane struct {
	name    string
	queue   relay.Backend
	out     line[published]
	receipt relay.Receipt // of the publisher
	kept    []keptLine    // what was published, oldest first; the backend may lose it
	bytes   int
	seq     relay.Seq // of the newest line; it begins with each process
}

type published struct {
	line []byte
	of   loop.Chat
	done string
}

type keptLine struct {
	line []byte
	at   time.Time
}

// catchUpWithin is how long the lanes may take to be read to their ends, or to be reached at all, before this sidecar
// takes part in what only one of the group does.
const catchUpWithin = 5 * time.Second

// What a worker that fails waits before it tries again: it doubles from the first to the longest.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// keptBytes bounds the lines that are published again if the backend has lost them; beyond it the oldest are forgotten.
const keptBytes = 16 << 20

// readLanes takes in what comes by the lanes until ctx is done.
func (c *Core) readLanes(ctx context.Context, reading *sync.WaitGroup) {
	within, cancel := context.WithTimeout(ctx, catchUpWithin)
	var caughtUp sync.WaitGroup
	for _, l := range c.lanes {
		take := c.takeMessage
		if l.name == Side {
			take = c.takeRecord
		}
		reading.Go(func() {
			for ctx.Err() == nil { // an error is one that a retry may not help
				if err := l.queue.Subscribe(ctx, func(ctx context.Context, d relay.Delivery) { take(ctx, l, d) }); err != nil {
					c.Watch.Problem("reading "+l.name, err)
					_ = wait.Sleep(ctx, time.Second)
				}
			}
		})
		caughtUp.Go(func() {
			_ = wait.Until(within, 10*time.Millisecond, func(context.Context) (bool, error) {
				st := l.queue.Status()
				return st.Reading && st.Lag == 0, nil
			})
		})
	}
	reading.Go(func() {
		defer cancel()
		caughtUp.Wait()
		_ = c.loop.Post(ctx, loop.Event{Group: &group.Event{Kind: group.CaughtUp}})
	})
}

// takeMessage takes in a line of the bots' or of the people's lane.
func (c *Core) takeMessage(ctx context.Context, l *lane, d relay.Delivery) {
	c.Watch.Read(l.name)
	m, err := relay.Decode(d.Line)
	if err != nil {
		c.Watch.Malformed(d.Line, err)
		c.Watch.Stopped(&m, relay.Malformed, nil)
		d.Settle()
		return
	}
	if m.RelayMsgID == "" {
		m.RelayMsgID = m.ID()
	}
	e := group.Event{Kind: group.Arrived, Msg: &m, History: d.History}
	why := relay.Pass
	if c.Secret != "" {
		if err := relay.Verify(d.Line, c.Secret); err != nil {
			why = c.unsigned(&m, &e, err)
		}
	}
	if why == relay.Pass && e.Reason == relay.Pass {
		c.Watch.Arrived(l.name, &d, &m)
	}
	if self := c.Self(); l.name == Inbound {
		e.Kind, why = group.Shared, cmp.Or(why, e.Reason)
	} else {
		e.Own = m.SenderAgentName == c.Agent || self.OpenID != "" && m.SenderBotOpenID == self.OpenID ||
			self.AppID != "" && m.SenderAppID == self.AppID
	}
	if why == relay.Pass && m.SenderAgentName == c.Agent && m.Role == relay.RoleUser {
		why = relay.OwnMessage
	}
	if why == relay.Pass && !ofGroup(m.Metadata) {
		why = relay.NotAMember
	}
	if why == relay.Pass && !e.Own && group.EditOf(&m) != "" && c.repeated(m.ID()) {
		why = relay.Duplicate
	}
	if why != relay.Pass {
		c.Watch.Stopped(&m, why, nil)
		d.Settle()
		return
	}
	of := loop.Chat{Channel: m.Channel, ID: m.ChatID}
	e.Names = c.Names(&m)
	c.member(ctx, of, false)
	_ = c.loop.Post(ctx, loop.Event{Chat: of, Group: &e, Saved: d.Settle}) // if the sidecar stops, the line is read again
}

// unsigned reports a line that is not signed as this sidecar signs. What became of it is told to others only if its
// sender is known: else it may be anybody's.
func (c *Core) unsigned(m *relay.Message, e *group.Event, err error) relay.Reason {
	if other := c.Foreign(m.SenderAgentName); other != nil {
		err = fmt.Errorf("%w: %w", err, other)
		c.Watch.Problem(string(relay.BadSignature), err)
		e.Reason, e.Body = relay.BadSignature, err.Error()
		return relay.Pass
	}
	c.Watch.Problem(string(relay.BadSignature), fmt.Errorf("message from %.100q: %w; set the same RELAY_SECRET at all "+
		"sidecars, or find out who else writes to the relay", m.SenderAgentName, err))
	return relay.BadSignature
}

// repeated reports whether an edit came before.
func (c *Core) repeated(id relay.MessageID) bool {
	if c.edits.Claim(string(id)) != dedup.New {
		return true
	}
	_ = c.edits.Settle(string(id), true) // in memory only
	return false
}

// sideLine is a record on the side lane.
type sideLine struct {
	Channel string          `json:"channel"`
	ChatID  relay.ChatID    `json:"chat_id"`
	Agent   relay.AgentName `json:"agent"`
	Record  *group.Record   `json:"record"`
}

// isRefusal reports whether a record only says that a sidecar with another secret has refused a message for that.
func (c *Core) isRefusal(s *sideLine) bool {
	v := s.Record.Verdict
	return s.Record.Kind == group.KindVerdict && v != nil && v.Stopped == relay.BadSignature && c.Foreign(s.Agent) != nil
}

// takeRecord takes in a line of the side lane.
func (c *Core) takeRecord(ctx context.Context, l *lane, d relay.Delivery) {
	var s sideLine
	err := json.Unmarshal(d.Line, &s)
	if err == nil && s.Record == nil {
		err = relay.ErrMalformed
	}
	if err == nil && c.Secret != "" && !c.isRefusal(&s) {
		err = relay.Verify(d.Line, c.Secret)
	}
	if err != nil {
		c.Watch.Problem(l.name, err)
	}
	if err != nil || s.Agent == c.Agent {
		d.Settle()
		return
	}
	of := loop.Chat{Channel: s.Channel, ID: s.ChatID}
	s.Record.Agent = s.Agent
	c.member(ctx, of, false)
	_ = c.loop.Post(ctx, loop.Event{Chat: of, Group: &group.Event{Kind: group.Side, Record: s.Record}, Saved: d.Settle})
}

// publish hands lines to the backend, in order, until ctx ends.
func (c *Core) publish(l *lane) {
	for pauses := wait.NewBackoff(retryFirst, retryMost); ; {
		batch := l.out.peek(c.ctx, 200)
		if batch == nil {
			return
		}
		lines := make([][]byte, len(batch))
		for i, p := range batch {
			lines[i] = p.line
		}
		receipt, err := l.queue.Publish(c.ctx, lines, l.receipt)
		if errors.Is(err, relay.ErrForgotten) {
			again := make([][]byte, len(l.kept))
			for i, k := range l.kept {
				again[i] = k.line
			}
			if l.receipt, err = "", nil; len(again) > 0 {
				l.receipt, err = l.queue.Publish(c.ctx, again, "")
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			c.Watch.Problem("publish", err)
			if pauses.Sleep(c.ctx) != nil {
				return
			}
			continue
		}
		pauses.Reset()
		l.receipt = receipt
		l.keep(lines, c.MaxAge)
		for _, p := range batch {
			c.done(p.of, p.done)
		}
		l.out.drop(len(batch))
	}
}

// keep has lines for the case that the backend loses them.
func (l *lane) keep(lines [][]byte, age time.Duration) {
	now := time.Now()
	for _, line := range lines {
		l.kept, l.bytes = append(l.kept, keptLine{line, now}), l.bytes+len(line)
	}
	old := 0
	for ; old < len(l.kept) && (l.bytes > keptBytes || now.Sub(l.kept[old].at) > age); old++ {
		l.bytes -= len(l.kept[old].line)
	}
	l.kept = slices.Delete(l.kept, 0, old)
}

// drain waits at most d until the lanes have published all.
func (c *Core) drain(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	defer cancel()
	_ = wait.Until(ctx, 5*time.Millisecond, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(c.lanes[:], func(l *lane) bool { return l.out.size() > 0 }), nil
	})
}

// send has a message published.
func (c *Core) send(of loop.Chat, f *group.Effect) {
	m, l := *f.Msg, c.lanes[0]
	if m.Role == relay.RoleUser {
		l = c.lanes[1]
	}
	l.seq++
	m.Seq = l.seq
	text, err := m.Encode()
	c.put(l, of, f, text, err)
}

// share has a record published.
func (c *Core) share(of loop.Chat, f *group.Effect) {
	text, err := relay.Marshal(sideLine{of.Channel, of.ID, c.Agent, f.Record})
	c.put(c.lanes[2], of, f, text, err)
}

func (c *Core) put(l *lane, of loop.Chat, f *group.Effect, text []byte, err error) {
	if err == nil && c.Secret != "" {
		text, err = relay.Sign(text, c.Secret)
	}
	if err != nil {
		c.Watch.Problem("publish", err)
		c.work.Go(func() { c.done(of, f.Key) })
		return
	}
	l.out.add(published{text, of, f.Key})
}
