package httpapi

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Bounds of the watchers' side.
const (
	eventsKept   = 500     // for a watcher that comes back; beyond, the oldest is forgotten
	eventBytes   = 8 << 20 // of these, likewise
	watcherQueue = 256     // a watcher this far behind is closed and may come back
	maxWatchers  = 64      // one more is refused
)

// The kinds of events.
const (
	EventMessage  = "message"  // a message was recorded
	EventDecision = "decision" // the policy has decided on one
	EventStop     = "stop"     // one was stopped, for a reason
	EventDelivery = "delivery" // the bot was given one
	EventReceipt  = "receipt"  // the bot acknowledged one
	EventMail     = "mail"     // something happened to a message between agents
	EventNotice   = "notice"   // a command, its answer, or that the group was shown something
	EventRecall   = "recall"   // the text of a message is gone
	EventOutcome  = "outcome"  // of a message at some bot of the group; with ?outcomes=all only
)

// Event is what a watcher sees.
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
	Own              bool            `json:"own,omitempty"`      // this sidecar's bot said it
	Recalled         bool            `json:"recalled,omitempty"` // of a message that has no text any more
	Edited           bool            `json:"edited,omitempty"`   // Content is a message's new text
	Depth            int             `json:"depth,omitempty"`
	Decision         any             `json:"decision,omitempty"`
	Reason           relay.Reason    `json:"reason,omitempty"`
	Door             string          `json:"door,omitempty"`
	Mail             *MailEvent      `json:"mail,omitempty"`
	Outcome          any             `json:"outcome,omitempty"`
	*transcript.Mark                 // of a notice
}

// MailEvent is what happened to a message between agents, without its text.
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

// Events shows what happens to any number of watchers. It never waits for
// them. The zero value is usable.
type Events struct {
	mu       sync.Mutex
	last     int64                      // id of the newest event; guarded by mu
	kept     []numbered                 // oldest first; guarded by mu
	bytes    int                        // of kept; guarded by mu
	watchers map[chan numbered]struct{} // guarded by mu
	closed   bool                       // guarded by mu
}

type numbered struct {
	id   int64
	kind string
	size int // about
	kept *keptEvent
}

// keptEvent makes JSON of an event when that is first asked for: mostly nobody watches.
type keptEvent struct {
	Event
	once sync.Once
	json []byte
}

func (n *numbered) data() []byte {
	// What cannot be JSON cannot be in an Event.
	n.kept.once.Do(func() { n.kept.json, _ = relay.Marshal(n.kept.Event) })
	return n.kept.json
}

// eventCost is about what an event takes besides its texts.
const eventCost = 512

// size is about what e takes in memory.
func (e *Event) size() int {
	return eventCost + len(e.Content) + len(e.Channel) + len(e.ChatID) + len(e.RelayMsgID) + len(e.Sender) +
		len(e.SenderName) + len(e.ThreadID) + len(e.ParentID) + len(e.RootID)
}

// Publish shows e to the watchers there are, and keeps it for a while. What its
// Decision points to must not change any more.
func (s *Events) Publish(e Event) {
	e.Time = relay.MillisOf(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == 0 { // beyond the ids of an earlier process, which a watcher may come back with
		s.last = time.Now().UnixMicro()
	}
	s.last++
	n := numbered{s.last, e.Type, e.size(), &keptEvent{Event: e}}
	s.kept = append(s.kept, n)
	s.bytes += n.size
	for len(s.kept) > eventsKept || s.bytes > eventBytes && len(s.kept) > 1 {
		s.bytes -= s.kept[0].size
		s.kept[0] = numbered{}
		s.kept = s.kept[1:]
	}
	for w := range s.watchers {
		select {
		case w <- n:
		default:
			delete(s.watchers, w)
			close(w)
		}
	}
}

// Recall takes the text of a message, and of the answer to it as a command, out of the events that are
// kept, and tells the watchers.
func (s *Events) Recall(channel string, chat relay.ChatID, id relay.MessageID) {
	s.mu.Lock()
	for i, n := range s.kept {
		if e := n.kept.Event; e.Content != "" && (e.RelayMsgID == id || e.Mark.AnswerTo() == string(id)) {
			e.Content, e.Recalled = "", true
			s.kept[i].kept = &keptEvent{Event: e}
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

func (s *Events) watch(after int64) (chan numbered, []numbered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &relay.Error{Code: web.CodeStopping, Message: web.ErrStopping.Error()}
	}
	if len(s.watchers) >= maxWatchers {
		return nil, nil, relay.Errorf(web.CodeTooManyWatchers, "close one of the %d others", maxWatchers)
	}
	if s.watchers == nil {
		s.watchers = map[chan numbered]struct{}{}
	}
	w := make(chan numbered, watcherQueue)
	s.watchers[w] = struct{}{}
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

// Watched reports whether anybody watches.
func (s *Events) Watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

// events serves GET /v1/events. With ?outcomes=all it also shows what becomes
// of messages at the other bots; those events have no id and are not replayed.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	after := int64(-1)
	if id, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64); err == nil && id >= 0 {
		after = id
	}
	all := r.URL.Query().Get("outcomes")
	if all != "" && all != "all" {
		a.fail(w, r, web.Invalid("outcomes: want all, or nothing"))
		return
	}
	out, err := newEventWriter(w)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	events, missed, err := a.Events.watch(after)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer a.Events.leave(events)
	var outcomes chan outcome.Outcome // nil: never any
	if all != "" {
		var stop func()
		outcomes, stop = a.watchOutcomes()
		defer stop()
	}
	out.start()
	for _, n := range missed {
		if out.event(n.kind, strconv.FormatInt(n.id, 10), n.data()) != nil {
			return
		}
	}
	quiet := time.NewTicker(web.KeepAlive)
	defer quiet.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-quiet.C:
			if out.comment() != nil {
				return
			}
		case o, ok := <-outcomes:
			if !ok || out.event(EventOutcome, "", outcomeEvent(o)) != nil {
				return
			}
		case n, ok := <-events:
			if !ok || out.event(n.kind, strconv.FormatInt(n.id, 10), n.data()) != nil {
				return
			}
		}
	}
}
