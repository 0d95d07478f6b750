package core

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	kept    []keptBatch   // what was published, oldest first; the backend may lose it
	bytes   int
	batches uint64 // number of the newest one in the book

	sending sync.Mutex // so that lines go out in the order of seq
	seq     relay.Seq  // of the newest line; it begins with each process; guarded by sending

	mu    sync.Mutex
	state LaneStatus // guarded by mu
}

// LaneStatus is how publishing on a lane goes, since the start.
type LaneStatus struct {
	Pending     int64         `json:"pending"`       // lines that wait for the backend
	Bytes       int64         `json:"pending_bytes"` // of these
	Published   int64         `json:"published"`     // repeats not counted
	Republished int64         `json:"republished"`   // published again, after the backend had lost them
	Failed      int64         `json:"failed"`        // tries to publish
	Error       string        `json:"error,omitempty"`
	Stalled     time.Duration `json:"-"` // for how long the backend has taken nothing of what waits
	Last        time.Time     `json:"-"` // when the backend last took some
	since       time.Time     // when the backend last took some, or the first of what waits came
}

func (l *lane) change(f func(st *LaneStatus)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.state)
}

type published struct {
	line []byte // or a record
	of   loop.Chat
	done string
}

// catchUpWithin is how long the lanes may take to be read to their ends, or to be reached at all, before this sidecar
// takes part in what only one of the group does.
const catchUpWithin = 5 * time.Second

// What a worker that fails waits before it tries again: it doubles from the first to the longest.
const retryFirst, retryMost = 50 * time.Millisecond, 5 * time.Second

// roomAfter is how often a lane looks whether less waits for the bot, once that was too much.
const roomAfter = 50 * time.Millisecond

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
		c.goesOn.Store(true)
	})
}

// takeMessage takes in a line of the bots' or of the people's lane, once the bot has room for it.
func (c *Core) takeMessage(ctx context.Context, l *lane, d relay.Delivery) {
	if wait.Until(ctx, roomAfter, func(context.Context) (bool, error) { return !c.loop.Full(), nil }) != nil {
		return // the sidecar stops: the line is read again
	}
	c.Watch.Read(l.name)
	m, err := relay.Decode(d.Line)
	if err != nil {
		c.Watch.Malformed(d.Line, err)
		c.Watch.Stopped(Stop{Msg: &m, Reason: relay.Malformed, Detail: err.Error()})
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
	if why != relay.Pass {
		c.Watch.Stopped(Stop{Msg: &m, Reason: why, Detail: e.Body})
		d.Settle()
		return
	}
	c.Trace("arrived")
	of := loop.Chat{Channel: m.Channel, ID: m.ChatID}
	e.Names = c.Names(&m)
	c.member(ctx, of, false)
	saved := func() {
		c.Trace("taken")
		d.Settle()
	}
	_ = c.loop.Post(ctx, loop.Event{Chat: of, Group: &e, Saved: saved}) // if the sidecar stops, the line is read again
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
	e.Body = err.Error()
	c.Watch.Problem(string(relay.BadSignature), fmt.Errorf("message from %.100q: %w; set the same RELAY_SECRET at all "+
		"sidecars, or find out who else writes to the relay", m.SenderAgentName, err))
	return relay.BadSignature
}

// sideLine is a line of the side lane: some records of a chat.
type sideLine[R any] struct {
	Channel string          `json:"channel"`
	ChatID  relay.ChatID    `json:"chat_id"`
	Agent   relay.AgentName `json:"agent"`
	Records []R             `json:"records"`
}

// encode is the line, signed unless secret is "".
func (s *sideLine[R]) encode(secret string) ([]byte, error) {
	line, err := relay.Marshal(s)
	if err == nil && secret != "" {
		line, err = relay.Sign(line, secret)
	}
	return line, err
}

// sideLines are the lines of records. The verdicts of a chat share one: else what became of a message would cost its
// readers as much as the message. What may have a text has its own, which goes with the text.
func (c *Core) sideLines(records []published) (lines [][]byte) {
	isVerdict := func(p published) bool { return bytes.HasPrefix(p.line, []byte(`{"kind":"verdict"`)) }
	join := func(a, b published) bool { return a.of == b.of && isVerdict(a) && isVerdict(b) }
	slices.SortStableFunc(records, func(a, b published) int { return cmp.Compare(a.of.String(), b.of.String()) })
	for n := 0; len(records) > 0; records, n = records[n:], 0 {
		of := records[0].of
		s := sideLine[json.RawMessage]{of.Channel, of.ID, c.Agent, nil}
		for size := 0; n < len(records) && size < relay.MaxLine/2 && (n < 1 || join(records[0], records[n])); n++ {
			s.Records, size = append(s.Records, records[n].line), size+len(records[n].line)
		}
		if line, err := s.encode(c.Secret); err != nil {
			c.Watch.Problem("publish", err)
		} else {
			lines = append(lines, line)
		}
	}
	return lines
}

// RecallLine is a line of the side lane that a message was recalled, as an agent says it.
func RecallLine(of loop.Chat, agent relay.AgentName, id relay.MessageID, secret string) ([]byte, error) {
	r := group.Record{Kind: group.KindRecall, Agent: agent, Of: id, TS: relay.MillisOf(time.Now())}
	return (&sideLine[*group.Record]{of.Channel, of.ID, agent, []*group.Record{&r}}).encode(secret)
}

// takeRecord takes in a line of the side lane.
func (c *Core) takeRecord(ctx context.Context, l *lane, d relay.Delivery) {
	var s sideLine[*group.Record]
	err := relay.Unmarshal(d.Line, &s)
	isBad := func(r *group.Record) bool { return r == nil || r.ID == "" && r.Text+string(r.Act) != "" }
	if err == nil && (len(s.Records) == 0 || slices.ContainsFunc(s.Records, isBad)) {
		err = relay.ErrMalformed // a command and a notice count by their ids
	}
	part := l.name
	if err == nil && c.Secret != "" {
		err, part = relay.Verify(d.Line, c.Secret), string(relay.BadSignature)
		if err != nil && c.Foreign(s.Agent) != nil { // that is told elsewhere
			err, s.Records = nil, slices.DeleteFunc(s.Records, func(r *group.Record) bool {
				return r.Kind != group.KindVerdict || r.Verdict == nil || r.Verdict.Stopped != relay.BadSignature
			})
		}
	}
	if err != nil {
		c.Watch.Problem(part, err)
	}
	if err != nil || s.Agent == c.Agent || len(s.Records) == 0 {
		d.Settle()
		return
	}
	of := loop.Chat{Channel: s.Channel, ID: s.ChatID}
	for _, r := range s.Records {
		r.Agent = s.Agent
	}
	c.member(ctx, of, false)
	if c.loop.Post(ctx, loop.Event{Chat: of, Group: &group.Event{Kind: group.Side, Records: s.Records},
		Saved: d.Settle}) == nil {
		for _, r := range s.Records {
			c.Watch.Took(of, r)
		}
	}
}

// lookAfter is how long a lane is idle until the backend is asked whether it still has what was published.
const lookAfter = 5 * time.Second

// What the records of the side lane wait for further ones, and the most lines, or records, that are offered at once.
const (
	shareAfter      = 20 * time.Millisecond
	maxOffered      = 200
	maxOfferedBytes = 4 << 20 // and one line: what is kept of them has to fit into a record of the book
)

// publish hands lines to the backend, in order, until ctx ends.
func (c *Core) publish(l *lane) {
	idle := time.Duration(0) // first it is asked for what an earlier process published
	for pauses := wait.NewBackoff(retryFirst, retryMost); ; {
		waiting, cancel := context.WithTimeout(c.ctx, idle)
		batch := l.out.peek(waiting, maxOffered)
		if l.name == Side && len(batch) > 0 {
			_ = wait.Sleep(waiting, shareAfter)
			batch = l.out.peek(c.ctx, maxOffered)
		}
		if cancel(); c.ctx.Err() != nil {
			return
		}
		var lines [][]byte
		for size := 0; len(lines) < len(batch) && size < maxOfferedBytes; {
			size += len(batch[len(lines)].line)
			lines = append(lines, batch[len(lines)].line)
		}
		batch = batch[:len(lines)]
		if l.name == Side {
			lines = c.sideLines(batch)
		}
		receipt, err := l.queue.Publish(c.ctx, lines, l.receipt)
		if errors.Is(err, relay.ErrForgotten) {
			var again [][]byte
			for _, b := range l.kept {
				for _, line := range b.Lines {
					m, err := relay.Decode(line)
					if err != nil || !c.recalled(loop.Chat{Channel: m.Channel, ID: m.ChatID}, &m) {
						again = append(again, line)
					}
				}
			}
			if err = nil; len(again) > 0 {
				receipt, err = l.queue.Publish(c.ctx, again, "")
			}
			if err == nil {
				l.receipt = receipt
				l.change(func(st *LaneStatus) { st.Republished += int64(len(again)) })
				if l.name == Side {
					_ = c.loop.Post(c.ctx, loop.Event{Group: &group.Event{Kind: group.LaneLost}})
				}
				continue
			}
		}
		if err != nil {
			l.change(func(st *LaneStatus) { st.Failed, st.Error = st.Failed+1, err.Error() })
			c.Watch.Problem("publish", err)
			_ = pauses.Sleep(c.ctx)
			continue
		}
		pauses.Reset()
		l.receipt, idle = receipt, lookAfter
		l.change(func(st *LaneStatus) {
			for _, p := range batch {
				st.Pending, st.Bytes, st.Published = st.Pending-1, st.Bytes-int64(len(p.line)), st.Published+1
				st.Last = time.Now()
			}
			st.since, st.Error = time.Now(), ""
		})
		if len(batch) == 0 {
			continue
		}
		c.keep(l, lines)
		if l.name == Outbound {
			c.Trace("published")
		}
		for _, p := range batch {
			c.done(p.of, p.done)
		}
		l.out.drop(len(batch))
	}
}

// recalled reports whether a message was recalled, or the one that it changes.
func (c *Core) recalled(of loop.Chat, m *relay.Message) (gone bool) {
	c.Group(of, func(g *group.State) { gone = g.Gone(m.ID()) || g.Gone(group.EditOf(m)) })
	return gone
}

// keptBatch is what was published at once, as it is in the book.
type keptBatch struct {
	Receipt relay.Receipt     `json:"receipt"`
	At      relay.Millis      `json:"at"`
	Lines   []json.RawMessage `json:"lines"`
	bytes   int               // of the lines
}

const keptNote = "kept/"

// keep has lines for the case that the backend loses them, also after a restart if it may lose them then. What the
// sidecars themselves agree on, each of them has.
func (c *Core) keep(l *lane, lines [][]byte) {
	b := keptBatch{Receipt: l.receipt, At: relay.MillisOf(time.Now())}
	for _, line := range lines {
		b.Lines = append(b.Lines, line)
	}
	l.keep(b, c.MaxAge)
	if l.receipt == "" || l.name == Side {
		return
	}
	value, err := relay.Marshal(b)
	if err != nil {
		c.Watch.Problem("publish", err)
		return
	}
	l.batches++
	_ = c.loop.Post(c.ctx, loop.Event{Note: fmt.Sprintf("%s%s/%d", keptNote, l.name, l.batches), Value: value, Keep: true})
}

func (l *lane) keep(b keptBatch, age time.Duration) {
	for _, line := range b.Lines {
		b.bytes += len(line)
	}
	l.kept, l.bytes = append(l.kept, b), l.bytes+b.bytes
	for len(l.kept) > 0 && (l.bytes > keptBytes || time.Since(l.kept[0].At.Time()) > age) {
		l.bytes -= l.kept[0].bytes
		l.kept = l.kept[1:]
	}
}

// noted takes in a note of the book: what an earlier process has published, in its order.
func (c *Core) noted(key string, value json.RawMessage) {
	rest, kept := strings.CutPrefix(key, keptNote)
	if !kept {
		c.Noted(key, value)
		return
	}
	name, n, _ := strings.Cut(rest, "/")
	for _, l := range c.lanes {
		var b keptBatch
		nr, err := strconv.ParseUint(n, 10, 64)
		if l.name != name || err != nil || json.Unmarshal(value, &b) != nil {
			continue
		}
		l.receipt, l.batches = b.Receipt, max(l.batches, nr)
		l.keep(b, c.MaxAge)
	}
}

// drain waits at most d until the lanes have published all, and what nobody waits for has happened.
func (c *Core) drain(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, d)
	defer cancel()
	_ = wait.Until(ctx, 5*time.Millisecond, func(context.Context) (bool, error) {
		waits := func(l *lane) bool { return l.out.size() > 0 }
		return c.later.size() == 0 && !slices.ContainsFunc(c.lanes[:], waits), nil
	})
}

// send has a message published.
func (c *Core) send(of loop.Chat, f *group.Effect) {
	m, l := *f.Msg, c.lanes[0]
	if m.Role == relay.RoleUser {
		l = c.lanes[1]
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	l.seq++
	m.Seq = l.seq
	text, err := m.Encode()
	c.put(l, of, f, text, err)
}

// share has a record published.
func (c *Core) share(of loop.Chat, f *group.Effect) {
	record, err := relay.Marshal(f.Record)
	c.put(c.lanes[2], of, f, record, err)
}

// put has a line, or a record, published.
func (c *Core) put(l *lane, of loop.Chat, f *group.Effect, text []byte, err error) {
	if err == nil && c.Secret != "" && l.name != Side {
		text, err = relay.Sign(text, c.Secret)
	}
	if err != nil {
		c.Watch.Problem("publish", err)
		c.work.Go(func() { c.done(of, f.Key) })
		return
	}
	l.change(func(st *LaneStatus) {
		if st.Pending == 0 {
			st.since = time.Now()
		}
		st.Pending, st.Bytes = st.Pending+1, st.Bytes+int64(len(text))
	})
	l.out.add(published{text, of, f.Key})
}
