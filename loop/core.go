package loop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/book"
	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/relay"
)

// Kinds of the book.
const (
	kindEvent = "event"
	kindState = "state"
	kindText  = "text"
	kindNote  = "note"
	kindKept  = "kept"
)

const (
	minSnapshot = 64 << 10 // bytes of events before a snapshot
	maxSnapshot = 8 << 20  // bytes; a larger one is not written, and the events stay
)

// Chat names a chat.
type Chat struct {
	Channel string
	ID      relay.ChatID
}

func (c Chat) String() string { return url.PathEscape(c.Channel) + "/" + string(c.ID) }

// ChatOf is the chat of a String.
func ChatOf(text string) Chat {
	channel, id, _ := strings.Cut(text, "/")
	channel, _ = url.PathUnescape(channel)
	return Chat{channel, relay.ChatID(id)}
}

// Key is the key of a chat's message as an item of package deliver.
func (c Chat) Key(id relay.MessageID) string { return c.String() + "/" + string(id) }

// message is the id of the message with a Key.
func (c Chat) message(key string) relay.MessageID {
	return relay.MessageID(strings.TrimPrefix(key, c.Key("")))
}

// Event is something that happened. What one Event has is in the book together, or not at all. The times of its parts
// are set by the loop.
type Event struct {
	Chat    Chat           // of Group; zero: each chat that is known
	Group   *group.Event   // may be nil
	Deliver *deliver.Event // may be nil
	// TextOf and Text are what the bot gets for an item, with its Take or when its text has changed; "": nothing new.
	TextOf string
	Text   json.RawMessage
	// Note is the key of a note, and Value what it is from now on; nil: nothing.
	Note  string
	Value json.RawMessage
	Keep  bool // the note is one of those that are kept for Config.MaxAge, up to maxKept bytes
	// Saved is called once the event is in the book; it must not wait for anything. Nil: nobody waits.
	Saved func()
}

// Tick is the event in which the states do what it is time for.
var Tick = Event{Group: &group.Event{Kind: group.Tick}, Deliver: &deliver.Event{Kind: deliver.Tick}}

// Effect is something to be done once the event is in the book: one of the two is set.
//
// The loop itself does a group's Review and all that deliver says of texts. To a group's Deliver, somebody answers with
// an Event of its Done, the Take and the Text; to a Retext, with an Event of TextOf and Text.
type Effect struct {
	Chat    Chat
	Group   *group.Effect
	Deliver *deliver.Effect
}

// Core is the state of a sidecar. It does no I/O and is not safe for concurrent use.
type Core struct {
	config func(Chat) *group.Config
	now    time.Time

	chats  map[Chat]*chat
	bot    *deliver.State
	botLog log

	toAll map[group.EventKind]group.Event // the newest of each kind that was for all chats

	records []book.Record
	effects []Effect
}

type chat struct {
	*group.State
	log  log
	did  []string  // for the next event
	note time.Time // when did is to be in the book at the latest; zero: it is empty
	due  time.Time // when it wants a Tick; zero: at no time
}

// log is the events of a state in the book.
type log struct {
	key         string
	first, next uint64 // of the events since the snapshot
	bytes       int    // of these
	snapshot    int    // its bytes
}

// NewCore returns the state of a sidecar of which nothing is known. config is what it is set to in a chat.
func NewCore(config func(Chat) *group.Config) *Core {
	return &Core{config: config, chats: map[Chat]*chat{}, bot: deliver.New(), toAll: map[group.EventKind]group.Event{}}
}

// Load takes in a record of the book, in the order of [book.Book.Each].
func (c *Core) Load(kind, key string, value json.RawMessage) error {
	switch kind {
	case kindState:
		if key == "" {
			c.botLog.snapshot = len(value)
			return json.Unmarshal(value, c.bot)
		}
		x := c.chat(ChatOf(key))
		x.log.snapshot = len(value)
		return json.Unmarshal(value, x.State)
	case kindEvent:
		at := strings.LastIndexByte(key, '#')
		n, err := strconv.ParseUint(key[at+1:], 10, 64)
		if at < 0 || err != nil {
			return fmt.Errorf("%s is no key of an event", key)
		}
		if key = key[:at]; key == "" {
			return replay(&c.botLog, n, value, c.bot.Apply)
		}
		x := c.chat(ChatOf(key))
		return replay(&x.log, n, value, x.Apply)
	}
	return nil
}

// replay applies an event of the book.
func replay[E, F any](l *log, n uint64, value json.RawMessage, apply func(E) ([]F, bool)) error {
	var e E
	if err := json.Unmarshal(value, &e); err != nil {
		return err
	}
	l.add(n, len(value))
	apply(e)
	return nil
}

func (l *log) add(n uint64, bytes int) {
	if l.bytes == 0 {
		l.first = n
	}
	l.next, l.bytes = n+1, l.bytes+bytes
}

func (c *Core) chat(of Chat) *chat {
	x := c.chats[of]
	if x == nil {
		x = &chat{State: group.New(), log: log{key: of.String()}}
		c.chats[of] = x
	}
	return x
}

// Start is the first step of a process: what an earlier one was doing is begun again.
func (c *Core) Start(now time.Time, cfg deliver.Config) (records []book.Record, effects []Effect) {
	c.begin(now)
	c.toBot(deliver.Event{Kind: deliver.Start, Config: &cfg})
	for _, of := range c.Chats() {
		c.toChat(of, group.Event{Kind: group.Start, Config: c.config(of)})
	}
	return c.records, c.effects
}

// Step applies an event. Its records are for the book, before the effects begin.
func (c *Core) Step(now time.Time, e Event) (records []book.Record, effects []Effect) {
	c.begin(now)
	if e.Deliver != nil {
		c.toBot(*e.Deliver)
	}
	if e.TextOf != "" && c.bot.Has(e.TextOf) {
		c.records = append(c.records, book.Record{Kind: kindText, Key: e.TextOf, Value: book.Encoded(e.Text)})
	}
	if e.Note != "" {
		r := book.Record{Kind: kindNote, Key: e.Note}
		if e.Keep {
			r.Kind = kindKept
		}
		if e.Value != nil {
			r.Value = e.Value
		}
		c.records = append(c.records, r)
	}
	switch {
	case e.Group == nil:
	case e.Chat != Chat{}:
		c.known(e.Chat)
		c.toChat(e.Chat, *e.Group)
	default:
		c.toAll[e.Group.Kind] = *e.Group
		for _, of := range c.Chats() {
			if due := c.chats[of].due; e.Group.Kind != group.Tick || !due.IsZero() && !due.After(now) {
				c.toChat(of, *e.Group)
			}
		}
	}
	return c.records, c.effects
}

// Stop writes snapshots, so that another version of the program reads no events.
func (c *Core) Stop() (records []book.Record) {
	c.records = nil
	c.snapshot(&c.botLog, c.bot, 1)
	for _, x := range c.chats {
		c.snapshot(&x.log, x.State, 1)
	}
	return c.records
}

// Next is the time at which c wants a [Tick]; zero: at none.
func (c *Core) Next() time.Time {
	next := c.bot.Next()
	for _, x := range c.chats {
		next = earlier(next, x.due)
	}
	return next
}

// earlier returns the earlier of two times. The zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Bot is what is to reach the bot. It is not to be changed.
func (c *Core) Bot() *deliver.State { return c.bot }

// Group is what is known of a chat, nil if nothing is. It is not to be changed.
func (c *Core) Group(of Chat) *group.State {
	return cmp.Or(c.chats[of], &chat{}).State
}

// Chats are the chats that are known, in order.
func (c *Core) Chats() []Chat {
	return slices.SortedFunc(maps.Keys(c.chats), func(a, b Chat) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.ID, b.ID))
	})
}

func (c *Core) begin(now time.Time) { c.now, c.records, c.effects = now, nil, nil }

// known makes sure that a chat is known, and that it knows what all know.
func (c *Core) known(of Chat) {
	if c.chats[of] != nil {
		return
	}
	c.chat(of)
	c.toChat(of, group.Event{Kind: group.Start, Config: c.config(of)})
	for _, kind := range []group.EventKind{group.Online, group.CaughtUp} {
		if e, told := c.toAll[kind]; told {
			c.toChat(of, e)
		}
	}
}

// toChat applies an event to a chat, and what follows from it to the bot.
func (c *Core) toChat(of Chat, e group.Event) {
	x := c.chats[of]
	defer func() { x.due = earlier(x.Next(), x.note) }()
	if e.Kind == group.Done && x.Did(e.Key) {
		x.did, x.note = append(x.did, e.Key), c.now.Truncate(time.Second).Add(time.Second) // one Tick for all
		x.log.bytes += len(e.Key)
		return
	}
	e.At, e.Did = c.now, x.did
	effects, changed := x.Apply(e)
	if changed {
		x.did, x.note = nil, time.Time{}
		c.record(&x.log, x.State, e)
	}
	for i := range effects {
		if effects[i].Do == group.Redact { // the state is without the text, its events are not
			c.snapshot(&x.log, x.State, 1)
		}
		if effects[i].Do == group.Review {
			c.review(of)
		} else {
			c.effects = append(c.effects, Effect{Chat: of, Group: &effects[i]})
		}
	}
}

// review withdraws what waits for the bot and is not to reach it any more.
func (c *Core) review(of Chat) {
	items, given := c.bot.Chat(of.String())
	for i, x := range items {
		if why := c.chats[of].Fate(relay.MillisOf(c.now), of.message(x.Key), given[i]); why != relay.Pass {
			c.toBot(deliver.Event{Kind: deliver.Withdraw, Key: x.Key, Reason: why})
		}
	}
}

// toBot applies an event to the bot's deliveries, and what follows from it to the chats.
func (c *Core) toBot(e deliver.Event) {
	e.At = c.now
	effects, changed := c.bot.Apply(e)
	if changed {
		c.record(&c.botLog, c.bot, e)
	}
	for i := range effects {
		f := &effects[i]
		if f.Do == deliver.Drop || f.Do == deliver.Blank {
			c.records = append(c.records, book.Record{Kind: kindText, Key: f.Key})
			continue
		}
		c.effects = append(c.effects, Effect{Deliver: f})
		if of := ChatOf(f.Chat); f.Do == deliver.End && c.chats[of] != nil { // else it is private
			c.toChat(of, group.Event{Kind: group.Delivered, ID: of.message(f.Key), Verdict: c.verdict(f)})
		}
	}
}

// verdict is what a chat is told of the end of a delivery.
func (c *Core) verdict(f *deliver.Effect) *group.Verdict {
	v := &group.Verdict{At: relay.MillisOf(c.now), Detail: f.Detail}
	if f.Result == deliver.Delivered {
		v.Delivered, v.Door = v.At, f.Channel
		return v
	}
	why := map[deliver.Result]relay.Reason{deliver.Withdrawn: f.Reason, deliver.Expired: relay.Expired}
	v.Stopped = cmp.Or(why[f.Result], relay.Undeliverable)
	return v
}

// record adds an event to the records, or a snapshot in its place.
func (c *Core) record(l *log, state json.Marshaler, e any) {
	data, err := relay.Marshal(e)
	if err != nil {
		panic(err) // an event is made of what JSON has
	}
	c.records = append(c.records, book.Record{Kind: kindEvent, Key: eventKey(l.key, l.next), Value: book.Encoded(data)})
	l.add(l.next, len(data))
	c.snapshot(l, state, max(4*l.snapshot, minSnapshot))
}

func eventKey(of string, n uint64) string { return of + "#" + strconv.FormatUint(n, 10) }

// snapshot writes one where there are that many bytes of events.
func (c *Core) snapshot(l *log, state json.Marshaler, atLeast int) {
	if l.bytes < atLeast {
		return
	}
	data, err := state.MarshalJSON()
	if err != nil {
		panic(err) // a state is made of what JSON has
	}
	if l.snapshot = len(data); len(data) > maxSnapshot {
		l.snapshot = l.bytes // tried again with four times as many
		return
	}
	c.records = append(c.records, book.Record{Kind: kindState, Key: l.key, Value: book.Encoded(data)})
	for n := l.first; n < l.next; n++ {
		c.records = append(c.records, book.Record{Kind: kindEvent, Key: eventKey(l.key, n)})
	}
	l.first, l.bytes = l.next, 0
}
