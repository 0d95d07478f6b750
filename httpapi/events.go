package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Limits of events and watchers.
const (
	eventsKept   = 500     // events kept for a watcher that reconnects; beyond it the oldest is dropped
	eventBytes   = 8 << 20 // bytes of these, likewise
	watcherQueue = 256     // a watcher this many events behind is closed and may reconnect
	maxWatchers  = 64      // one more is refused
)

// The kinds of events.
const (
	EventMessage  = "message"  // a message was recorded
	EventDecision = "decision" // the policy has decided on a message
	EventStop     = "stop"     // a message was stopped, for a reason
	EventDelivery = "delivery" // a message was delivered to the bot
	EventReceipt  = "receipt"  // the bot acknowledged a message
	EventMail     = "mail"     // a direct message between agents changed
	EventNotice   = "notice"   // a command, its answer, or a notice in the group
	EventRecall   = "recall"   // the text of a message was removed
	EventOutcome  = "outcome"  // the outcome of a message at a bot of the group; only with ?outcomes=all
)

// Event is an event as watchers get it.
type Event struct {
	Type             string          `json:"type"`
	Time             relay.Millis    `json:"time"`
	Channel          string          `json:"channel,omitempty"`
	ChatID           relay.ChatID    `json:"chat_id,omitempty"`
	RelayMsgID       relay.MessageID `json:"relay_msg_id,omitempty"`
	Role             string          `json:"role,omitempty"`
	Sender           string          `json:"sender,omitempty"`
	SenderName       string          `json:"sender_name,omitempty"`
	Content          string          `json:"content,omitempty"`
	ThreadID         string          `json:"thread_id,omitempty"`
	ParentID         relay.MessageID `json:"parent_id,omitempty"`
	RootID           relay.MessageID `json:"root_id,omitempty"`
	TS               relay.Millis    `json:"ts,omitempty"`
	Own              bool            `json:"own,omitempty"`      // a message of this sidecar's bot
	Recalled         bool            `json:"recalled,omitempty"` // the message has no text any more
	Edited           bool            `json:"edited,omitempty"`   // Content is a message's new text
	Depth            int             `json:"depth,omitempty"`
	Decision         any             `json:"decision,omitempty"`
	Reason           relay.Reason    `json:"reason,omitempty"`
	Door             string          `json:"door,omitempty"`
	Mail             *MailEvent      `json:"mail,omitempty"`
	Outcome          *Outcome        `json:"outcome,omitempty"` // of an [EventOutcome]
	*transcript.Mark                 // of a notice
}

// MailEvent is a change of a direct message between agents, without its text.
type MailEvent struct {
	What   string `json:"what"` // as agent.What
	ID     string `json:"id,omitempty"`
	Type   string `json:"type,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	TaskID string `json:"task_id,omitempty"`
	State  string `json:"state,omitempty"` // of the task
	Reason string `json:"reason,omitempty"`
}

// Events sends events to any number of watchers. It never waits for them. The
// zero value is usable.
type Events struct {
	mu       sync.Mutex
	last     int64                  // id of the newest event; guarded by mu
	kept     []numbered             // oldest first; guarded by mu
	bytes    int                    // of kept; guarded by mu
	watchers map[chan numbered]bool // whether it gets outcomes; guarded by mu
	closed   bool                   // guarded by mu
	minutes  [60]Minute             // by the minute modulo 60; guarded by mu
}

// Minute is what became of messages at this bot in a minute.
type Minute struct {
	At        relay.Millis `json:"at"` // its beginning
	Delivered int          `json:"delivered"`
	Stopped   int          `json:"stopped"`
}

// numbered is an event with its id, 0 for an outcome. The event does not change.
type numbered struct {
	id int64
	*Event
}

// eventCost is about how many bytes an event takes besides its texts.
const eventCost = 512

// size is about how many bytes e takes in memory.
func (e *Event) size() int {
	return eventCost + len(e.Content) + len(e.Channel) + len(e.ChatID) + len(e.RelayMsgID) + len(e.Sender) +
		len(e.SenderName) + len(e.ThreadID) + len(e.ParentID) + len(e.RootID)
}

// Publish sends e to the watchers, and keeps it for later ones; an outcome is sent only to those that want outcomes,
// and is not kept. The caller must not change e.Decision's value afterwards.
func (s *Events) Publish(e Event) {
	e.Time = relay.MillisOf(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Type == EventOutcome {
		s.send(numbered{Event: &e})
		return
	}
	if s.last == 0 { // beyond the ids of an earlier process, which a reconnecting watcher may send
		s.last = time.Now().UnixMicro()
	}
	s.last++
	s.count(e.Type, e.Time)
	n := numbered{s.last, &e}
	s.kept = append(s.kept, n)
	s.bytes += e.size()
	for len(s.kept) > eventsKept || s.bytes > eventBytes && len(s.kept) > 1 {
		s.bytes -= s.kept[0].size()
		s.kept[0] = numbered{}
		s.kept = s.kept[1:]
	}
	s.send(n)
}

// send sends n to the watchers that want it. The caller holds s.mu.
func (s *Events) send(n numbered) {
	for w, outcomes := range s.watchers {
		if n.id == 0 && !outcomes {
			continue
		}
		select {
		case w <- n:
		default:
			delete(s.watchers, w)
			close(w)
		}
	}
}

const minute = relay.Millis(60_000)

// count counts a delivery or a stop. The caller holds s.mu.
func (s *Events) count(kind string, now relay.Millis) {
	m := &s.minutes[now/minute%60]
	if at := now - now%minute; m.At != at {
		*m = Minute{At: at}
	}
	switch kind {
	case EventDelivery:
		m.Delivered++
	case EventStop:
		m.Stopped++
	}
}

// LastHour returns the minutes of the last hour in which messages were delivered or stopped, oldest first.
func (s *Events) LastHour() []Minute {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []Minute{}
	for _, m := range s.minutes {
		if m.At > relay.MillisOf(time.Now())-60*minute && m.Delivered+m.Stopped > 0 {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b Minute) int { return cmp.Compare(a.At, b.At) })
	return found
}

// Recall removes the text of a message, and of the answer to it as a command, from the kept events,
// and sends an event to the watchers.
func (s *Events) Recall(channel string, chat relay.ChatID, id relay.MessageID) {
	s.mu.Lock()
	for i, n := range s.kept {
		if n.Content != "" && (n.RelayMsgID == id || n.Mark.AnswerTo() == string(id)) {
			e := *n.Event
			e.Content, e.Recalled = "", true
			s.bytes -= len(n.Content)
			s.kept[i].Event = &e
		}
	}
	s.mu.Unlock()
	s.Publish(Event{Type: EventRecall, Channel: channel, ChatID: chat, RelayMsgID: id, Recalled: true})
}

// Close ends the watchers.
func (s *Events) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for w := range s.watchers {
		delete(s.watchers, w)
		close(w)
	}
}

func (s *Events) watch(after int64, outcomes bool) (chan numbered, []numbered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, relay.Errorf(web.CodeStopping, "%v", web.ErrStopping)
	}
	if len(s.watchers) >= maxWatchers {
		return nil, nil, relay.Errorf(web.CodeTooManyWatchers, "close one of the %d others", maxWatchers)
	}
	if s.watchers == nil {
		s.watchers = map[chan numbered]bool{}
	}
	w := make(chan numbered, watcherQueue)
	s.watchers[w] = outcomes
	var missed []numbered
	for _, n := range s.kept {
		if after >= 0 && n.id > after {
			missed = append(missed, n)
		}
	}
	return w, missed, nil
}

func (s *Events) leave(w chan numbered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// events serves GET /v1/events. With ?outcomes=all it also sends the outcomes
// of messages at the other bots; those events have no id and are not replayed.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	after := int64(-1)
	if id, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64); err == nil && id >= 0 {
		after = id
	}
	all := r.URL.Query().Get("outcomes")
	if all != "" && all != "all" {
		a.fail(w, r, a.web.Wrong("outcomes", "want all, or nothing"))
		return
	}
	out, err := newEventWriter(w)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	events, missed, err := a.Events.watch(after, all != "")
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer a.Events.leave(events)
	out.start()
	defer out.end()
	show := func(n numbered) bool {
		if n.Outcome != nil && !a.Visible(n.Outcome.Channel, n.Outcome.ChatID) {
			return true
		}
		id := ""
		if n.id != 0 {
			id = strconv.FormatInt(n.id, 10)
		}
		data, err := relay.Marshal(n.Event)
		return err == nil && out.event(n.Type, id, data) == nil
	}
	for _, n := range missed {
		if !show(n) {
			return
		}
	}
	quiet := time.NewTicker(web.KeepAlive)
	defer quiet.Stop()
	for shown := true; shown; {
		select {
		case <-r.Context().Done():
			return
		case <-quiet.C:
			shown = out.comment() == nil
		case n, ok := <-events:
			shown = ok && show(n)
		}
	}
}
