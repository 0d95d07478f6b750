package deliver

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	writeWithin = 30 * time.Second       // for writing an item whole; after that the write has failed
	pauseFirst  = 250 * time.Millisecond // after a write that did not reach the bot, doubled up to pauseMost
	pauseMost   = 15 * time.Second
	// maxOpen and maxOpenBytes are what the bot may have without an answer; beyond it a chat waits for the answers to
	// its messages.
	maxOpen      = 1000
	maxOpenBytes = 64 << 20
	// maxItems and maxItemsBytes are for how much the caller may Take; beyond it State.Full, and the lanes wait.
	maxItems      = 50_000
	maxItemsBytes = 1 << 30
	// maxEnded is how many ended items are known by their ids, for answers that come late or twice; beyond it the
	// oldest is unknown.
	maxEnded = 5000
	// maxKept and maxKeptBytes are what the next reader gets again; beyond it the oldest are dropped.
	maxKept      = 1000
	maxKeptBytes = 16 << 20
	// maxSpans is for how many spans of time it is known that the bot was there; beyond it the oldest is forgotten.
	maxSpans = 64
)

// State is what is to reach one bot: [New], or a snapshot read with encoding/json. It is not safe for concurrent use.
type State struct {
	d *data // what survives: the JSON of the State

	// The rest follows from d, or is of the event that is applied.
	now     relay.Millis
	changed bool
	effects []Effect
	items   map[string]*item
	chats   map[string][]*item // those that may be written, in order; with "" those that have no order
	open    tally              // what the bot has without an answer
	all     tally
	kept    tally // the Ended ones
	dues    dues
}

type data struct {
	Config Config            `json:"config"`
	Conns  map[string]uint64 `json:"conns"` // by channel, of those that are open
	Items  []*item           `json:"items,omitempty"`
	Tries  uint64            `json:"tries,omitempty"` // counts the writes
	Ended  []*ended          `json:"ended,omitempty"` // oldest first
	Spans  []span            `json:"spans,omitempty"` // oldest first
}

type item struct {
	Item
	Phase   phase        `json:"phase,omitempty"`
	Turn    relay.Millis `json:"turn"` // when it was taken, or no earlier item of the chat was before it any more
	Since   relay.Millis `json:"since,omitempty"`
	Due     relay.Millis `json:"due,omitempty"` // the end of a pause
	Channel string       `json:"channel,omitempty"`
	Conn    uint64       `json:"conn,omitempty"`
	Try     uint64       `json:"try,omitempty"`    // the newest write; 0: none
	Given   bool         `json:"given,omitempty"`  // it was written whole once
	Full    bool         `json:"full,omitempty"`   // too much is open for a next one of the chat
	Missed  int          `json:"missed,omitempty"` // writes in a row that did not reach the bot
	Errors  int          `json:"errors,omitempty"` // error answers
	Why     relay.Reason `json:"withdrawn,omitempty"`
	// Ended: as Unconfirmed. It is written again on the next connection, and nobody is told what comes of that. If it is
	// withdrawn, it stays, without its text, as what a reader may name.
	Ended bool `json:"ended,omitempty"`
}

// phase is the progress of an item, since its Since.
type phase int

const (
	waiting  phase = iota // for a channel, its turn or Due
	writing               // not known to be written whole
	written               // whole, and not answered
	accepted              // the bot settles it later
	pausing               // until Due; the bot answered with an error
)

type ended struct {
	Key     string          `json:"key"`
	Chat    string          `json:"chat,omitempty"`
	From    relay.AgentName `json:"from,omitempty"`
	Sent    relay.Millis    `json:"sent"`
	ID      relay.MessageID `json:"id"`
	Result  Result          `json:"result"`
	Channel string          `json:"channel"`
}

// span is a time at which the bot was there; To is 0 while it is.
type span struct {
	From relay.Millis `json:"from"`
	To   relay.Millis `json:"to,omitempty"`
}

// tally counts items and the bytes of their texts.
type tally struct{ items, bytes int }

func (t *tally) add(n int, x *item) {
	t.items += n
	t.bytes += n * x.Bytes
}

// New returns a State with nothing in it. Its first event is a [Start].
func New() *State {
	s := &State{}
	_ = s.UnmarshalJSON([]byte(`{}`)) // always possible
	return s
}

// MarshalJSON returns a snapshot of s.
func (s *State) MarshalJSON() ([]byte, error) { return relay.Marshal(s.d) }

// UnmarshalJSON makes s what the snapshot was made of.
func (s *State) UnmarshalJSON(snapshot []byte) error {
	d := &data{Conns: map[string]uint64{}}
	if err := json.Unmarshal(snapshot, d); err != nil {
		return err
	}
	*s = State{d: d, items: map[string]*item{}, chats: map[string][]*item{}}
	for _, x := range d.Items {
		s.enter(x)
	}
	return nil
}

func (s *State) enter(x *item) {
	s.items[x.Key] = x
	s.queue(x)
	s.count(1, x)
	s.wake(x)
}

// count counts x, or with -1 no more.
func (s *State) count(n int, x *item) {
	s.all.add(n, x)
	if x.isOpen() {
		s.open.add(n, x)
	}
	if x.Ended {
		s.kept.add(n, x)
	}
}

// queue has x written when it is its turn, unless the reader of this connection has it, or it was withdrawn after that.
func (s *State) queue(x *item) {
	if !x.Ended || x.Phase != waiting || x.Why == "" && (x.Conn == 0 || x.Conn != s.d.Conns[x.Channel]) {
		s.chats[x.Chat] = append(s.chats[x.Chat], x)
	}
}

// Apply changes s by one event, and returns what is to be done once the event is in the book. An event that has not
// changed s need not be there. Equal events make equal States.
func (s *State) Apply(e Event) (effects []Effect, changed bool) {
	s.now, s.effects, s.changed = relay.MillisOf(e.At), nil, true
	switch e.Kind {
	case Start:
		s.start(*e.Config)
	case Take:
		if x := s.items[e.Item.Key]; x != nil && x.Ended { // the mailbox does not know that
			s.end(x, Delivered, "")
		}
		if s.changed = s.items[e.Item.Key] == nil; s.changed {
			x := &item{Item: *e.Item, Turn: s.now}
			s.d.Items = append(s.d.Items, x)
			s.enter(x)
			s.pump(x.Chat)
		}
	case Open:
		s.opened(&e)
	case Presence:
		s.present(e.Present)
	case Report:
		s.report(&e)
	case Settle:
		s.settle(&e)
	case Withdraw:
		s.withdraw(s.items[e.Key], e.Reason)
	case Tick:
		s.changed = false
	default:
		panic("deliver: unknown event " + e.Kind)
	}
	s.due()
	return s.effects, s.changed
}

// start makes what an earlier process was writing wait again.
func (s *State) start(cfg Config) {
	s.heldUp()
	s.d.Config = cfg
	clear(s.d.Conns)
	s.present(false)
	s.changed = true
	for _, x := range slices.Clone(s.d.Items) {
		switch {
		case x.Once:
			s.end(x, Failed, "the sidecar was started again")
			continue
		case x.Phase != accepted:
			x.Due = 0
			s.move(x, waiting)
		}
		s.wake(x)
	}
}

// heldUp has the age of what stands behind another item begin now, if a channel was open so far.
func (s *State) heldUp() {
	if _, open := s.current(""); !open {
		return
	}
	for _, x := range s.d.Items {
		if x.Phase == waiting && !x.Ended && s.chats[x.Chat][0] != x {
			x.Turn, x.Waited = s.now, true
		}
	}
}

func (s *State) channel(name string) Channel {
	for _, ch := range s.d.Config.Channels {
		if ch.Name == name {
			return ch
		}
	}
	return Channel{Name: name}
}

// current is the channel to use; only: that one if it is open, "" for any.
func (s *State) current(only string) (ch Channel, ok bool) {
	for _, ch := range s.d.Config.Channels {
		if s.d.Conns[ch.Name] > 0 && (only == "" || only == ch.Name) {
			return ch, true
		}
	}
	return Channel{}, false
}

// opened has a channel open on a connection, or closed. What is in progress on an earlier connection waits again.
func (s *State) opened(e *Event) {
	if s.changed = s.d.Conns[e.Channel] != e.Conn; !s.changed {
		return
	}
	s.heldUp()
	s.d.Conns[e.Channel] = 0
	s.confirm(e)
	s.d.Conns[e.Channel] = e.Conn
	clear(s.chats)
	for _, x := range s.d.Items {
		s.queue(x)
	}
	for _, x := range slices.Clone(s.d.Items) {
		if x.Channel == e.Channel && x.Conn != e.Conn && (x.Phase == writing || x.Phase == written) {
			s.failed(x, Broken, "the connection ended before the bot answered")
		}
		if e.Conn > 0 && x.Phase == waiting {
			x.Due = 0
		}
		s.wake(x)
	}
	seen := map[string]bool{}
	for _, x := range slices.Clone(s.d.Items) {
		if !seen[x.Chat] {
			seen[x.Chat] = true
			s.pump(x.Chat)
		}
	}
}

// pump writes the items of a chat whose turn it is.
func (s *State) pump(chat string) {
	for i, x := range s.chats[chat] {
		ch, open := s.current(x.Only)
		if x.Ended && !open { // it waits for the next reader, and holds up nothing
			continue
		}
		if open && x.Phase == waiting && x.Due <= s.now && !s.passed(ch, x, s.chats[chat][i+1:]) {
			s.write(x, ch)
		}
		if chat != "" && (!open || x.blocks(ch)) {
			return
		}
	}
}

// blocks reports whether the next item of the chat has to wait for x.
func (x *item) blocks(ch Channel) bool {
	switch x.Phase {
	case waiting, writing:
		return true
	case written:
		return x.Full || ch.Serial && x.Channel == ch.Name
	case accepted:
		return x.Full
	}
	return ch.Serial
}

// passed reports whether the bot is at a later item of the chat, since x is to be written again.
func (s *State) passed(ch Channel, x *item, later []*item) bool {
	return ch.Serial && x.Chat != "" && x.Try > 0 && slices.ContainsFunc(later, func(y *item) bool {
		return (y.Phase == writing || y.Phase == written) && y.Channel == ch.Name
	})
}

func (s *State) write(x *item, ch Channel) {
	s.d.Tries++
	again := x.Try > 0
	if !again {
		x.Turn = s.now
	}
	x.Try, x.Channel, x.Conn, x.Due = s.d.Tries, ch.Name, s.d.Conns[ch.Name], 0
	s.move(x, writing)
	s.changed = true
	s.effects = append(s.effects, Effect{Do: Write, Key: x.Key, ID: x.ID, Channel: ch.Name, Conn: x.Conn, Try: x.Try,
		Again: again})
}

func (x *item) isOpen() bool { return x.Phase == written || x.Phase == accepted }

func (s *State) move(x *item, to phase) {
	if x.isOpen() {
		s.open.add(-1, x)
	}
	x.Phase, x.Since = to, s.now
	if x.Full = false; x.isOpen() {
		s.open.add(1, x)
		x.Full = s.open.items > maxOpen || s.open.bytes > maxOpenBytes
	}
	s.wake(x)
}

// report takes in what a write has come to.
func (s *State) report(e *Event) {
	x := s.items[e.Key]
	if x == nil {
		s.late(e)
		return
	}
	current := x.Try == e.Try && (x.Phase == writing || x.Phase == written)
	switch {
	case x.Try > 0 && (e.Result == Delivered || e.Result == Refused): // also of an earlier write
		if e.Try != x.Try {
			s.cancel(x)
		}
		s.end(x, e.Result, e.Detail)
	case !current, e.Result == Written && x.Phase == written:
		s.changed = false
	case e.Result == Unconfirmed:
		s.unconfirmed(x)
	case e.Result == Written:
		s.taken(x, written)
	case e.Result == Accepted:
		s.taken(x, accepted)
	default:
		s.failed(x, e.Result, e.Detail)
	}
}

// taken notes that the bot has x whole.
func (s *State) taken(x *item, to phase) {
	x.Given = true
	s.saw()
	s.move(x, to)
	s.pump(x.Chat)
}

// failed ends a write that the bot has not taken, and has x written again after a pause.
func (s *State) failed(x *item, why Result, detail string) {
	if why != Retry {
		s.effects = append(s.effects, Effect{Do: Problem, Key: x.Key, ID: x.ID, Channel: x.Channel, Detail: detail})
	}
	if why != Broken || x.Conn == s.d.Conns[x.Channel] { // else the reader who was there may have it, and name it
		x.Conn = 0
	}
	switch {
	case x.Once && why != Retry:
		s.end(x, Failed, detail)
	case x.Why != "":
		s.end(x, Withdrawn, "")
	case why == NotWritten || why == Broken:
		x.Missed++
		x.Due = s.now + s.pause(x, pauseFirst, pauseMost, x.Missed)
		s.move(x, waiting)
	default:
		ch := s.channel(x.Channel)
		x.Missed, x.Errors = 0, x.Errors+1
		x.Due = s.now + s.pause(x, ch.First, ch.Most, x.Errors)
		s.move(x, pausing)
	}
	s.pump(x.Chat)
}

// pause is what doubles from first to most with n, half of it by chance, as the item's key and n have it.
func (s *State) pause(x *item, first, most time.Duration, n int) relay.Millis {
	d := wait.Doubled(first, most, n-1)
	h := fnv.New64a()
	_, _ = h.Write([]byte(x.Key)) // never fails
	half := max(d.Milliseconds()/2, 1)
	return relay.Millis(half + int64(h.Sum64()+uint64(n)*7919)&(1<<62-1)%half)
}

// unconfirmed has x, which counts as delivered, written again on the next connection.
func (s *State) unconfirmed(x *item) {
	if x.Why != "" {
		s.end(x, Delivered, "")
		return
	}
	s.tell(x, Delivered, "")
	if !x.Ended {
		s.kept.add(1, x)
	}
	x.Given, x.Once, x.Only, x.Ended = true, false, x.Channel, true
	s.move(x, waiting)
	s.unqueue(x)
	for s.kept.items > maxKept || s.kept.bytes > maxKeptBytes {
		s.end(s.d.Items[slices.IndexFunc(s.d.Items, func(x *item) bool { return x.Ended })], Delivered, "")
	}
	s.pump(x.Chat)
}

// tell tells how x ends.
func (s *State) tell(x *item, r Result, detail string) {
	if x.Ended {
		return
	}
	s.effects = append(s.effects, Effect{Do: End, Key: x.Key, Chat: x.Chat, From: x.From, Sent: x.Sent, ID: x.ID,
		Channel: x.Channel, Result: r, Reason: x.Why, Detail: detail})
	if x.Try > 0 { // else the bot does not know it
		s.d.Ended = append(s.d.Ended, &ended{x.Key, x.Chat, x.From, x.Sent, x.ID, r, x.Channel})
		s.d.Ended = s.d.Ended[max(0, len(s.d.Ended)-maxEnded):]
	}
}

// end removes x, which has come to a result.
func (s *State) end(x *item, r Result, detail string) {
	if r == Refused {
		detail = strings.TrimSuffix("the bot refused the message: "+detail, ": ")
	}
	s.tell(x, r, detail)
	s.count(-1, x)
	delete(s.items, x.Key)
	s.d.Items = without(s.d.Items, x)
	s.unqueue(x)
	s.effects = append(s.effects, Effect{Do: Drop, Key: x.Key})
	s.pump(x.Chat)
}

func (s *State) unqueue(x *item) {
	if s.chats[x.Chat] = without(s.chats[x.Chat], x); len(s.chats[x.Chat]) == 0 {
		delete(s.chats, x.Chat)
	}
}

func without(list []*item, x *item) []*item {
	return slices.DeleteFunc(list, func(y *item) bool { return y == x })
}

// deadline is when x expires unless it is in progress: MaxAge after it was sent if the bot was not there meanwhile,
// else MaxAge after its turn came.
func (s *State) deadline(x *item) relay.Millis {
	age := relay.Millis(s.d.Config.MaxAge.Milliseconds())
	until := x.Sent + age
	if x.Given || x.Waited || s.wasThere(x.Sent, until) {
		return max(until, x.Turn+age)
	}
	return until
}

// dueAt is when something becomes of x by itself; 0: never.
func (s *State) dueAt(x *item) relay.Millis {
	_, open := s.current(x.Only)
	switch {
	case x.Phase == writing:
		return x.Since + relay.Millis(writeWithin.Milliseconds())
	case x.isOpen():
		return x.Since + relay.Millis(s.d.Config.Timeout.Milliseconds())
	case x.Once:
		return x.Due
	case x.Due > 0 && (open || x.Phase == pausing):
		return min(x.Due, s.deadline(x))
	case !open || x.Ended:
		return s.deadline(x)
	}
	return 0
}

// due does what it is time for.
func (s *State) due() {
	for len(s.dues) > 0 && s.dues[0].at <= s.now {
		first := heap.Pop(&s.dues).(due)
		x := first.item
		if s.items[x.Key] != x {
			continue
		}
		if s.dueAt(x) != first.at {
			s.wake(x)
			continue
		}
		s.changed = true
		switch {
		case x.Phase == writing:
			s.cancel(x)
			s.failed(x, NotWritten, "not written within "+writeWithin.String())
		case x.isOpen():
			s.cancel(x)
			s.end(x, TimedOut, "the bot did not answer within DELIVERY_TIMEOUT")
		case !x.Once && s.deadline(x) <= s.now:
			s.end(x, Expired, "no answer within RELAY_MAX_AGE")
		default:
			x.Due = 0
			s.move(x, waiting)
			s.pump(x.Chat)
		}
	}
}

func (s *State) cancel(x *item) {
	if x.Phase == writing || x.Phase == written {
		s.effects = append(s.effects, Effect{Do: Cancel, Key: x.Key, Channel: x.Channel, Try: x.Try})
	}
}

// wake has due look at x in time.
func (s *State) wake(x *item) {
	if at := s.dueAt(x); at > 0 {
		heap.Push(&s.dues, due{at, x})
	}
}

// Next is the time at which s wants a [Tick]; zero: at none.
func (s *State) Next() time.Time {
	for len(s.dues) > 0 {
		first := heap.Pop(&s.dues).(due)
		if s.items[first.item.Key] != first.item {
			continue
		}
		s.wake(first.item)
		if s.dueAt(first.item) == first.at {
			return first.at.Time()
		}
	}
	return time.Time{}
}

// due is when to look at an item; the times of an item that has moved on are found out when they come.
type due struct {
	at   relay.Millis
	item *item
}

type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(d[i].at, d[j].at), cmp.Compare(d[i].item.Key, d[j].item.Key)) < 0 // the same after a restart
}
func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)   { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
