package gateway

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const typeCard = "interactive"

// waitsFor is what a draft waits for before it is final.
type waitsFor string

const (
	waitNone   waitsFor = ""       // nothing of its own
	waitSettle waitsFor = "settle" // Options.Settle of quiet
	waitEdit   waitsFor = "edit"   // Options.EditSettle of quiet: no end sign will come
	waitMore   waitsFor = "more"   // a change of what was published
	waitEnd    waitsFor = "end"    // a card's end sign; without one, Options.StreamLife after streaming was switched on
)

const (
	// maxHeld is how long a message is held back by one before it that is about to
	// go out; then it overtakes it.
	maxHeld = 10 * time.Second
	// editQuiet is the least quiet behind a change of a published message that has no
	// end sign. The others are given its text a second time, so it is to be the last.
	editQuiet = time.Minute
	// peerStreamQuiet is the same for a card for an agent that still streams: bots look at files for minutes in the
	// middle of an answer, and a task cannot be completed again.
	peerStreamQuiet = time.Hour
	// peerEdits is how many times Options.EditSettle a message for an agent is left alone before it is final once it
	// was changed, as where a bot writes its progress into it.
	peerEdits = 8
	// typingHold is how long a message for an agent is held behind its last write while the bot shows that it types.
	typingHold = 5 * time.Minute
	// typingFor is how long the sign that the bot types counts: some bots forget to remove it.
	typingFor = time.Hour
	// peerAge is in place of Options.MaxAge for messages to agents.
	peerAge = 24 * time.Hour
	// maxPublished bounds the drafts that are kept once they are published.
	maxPublished = 200
)

// draft is a message that was sent but is not final, or a card that was made
// and not sent yet (Message.ID is empty then). It is one file on disk. It is kept
// for a while after it was published: what the bot goes on to write follows as an edit.
type draft struct {
	Message feishu.Message `json:"message"`
	CardID  string         `json:"card_id,omitempty"` // of CardKit
	Card    *feishu.Card   `json:"card,omitempty"`    // nil: not a card
	Wait    waitsFor       `json:"wait,omitempty"`
	Patched bool           `json:"patched,omitempty"` // it was changed since it was sent, other than by streaming
	Created relay.Millis   `json:"created"`
	Touched relay.Millis   `json:"touched"`           // the last write
	Streams relay.Millis   `json:"streams,omitempty"` // when streaming was last switched on
	// Published is a digest of the text that went out last; "": none did.
	Published string `json:"published,omitempty"`
	// Seq is the sequence of the last write by element id, "" for the whole card:
	// answers that come in late must not undo later writes.
	Seq map[string]int `json:"seq,omitempty"`

	order   int       // of its making, in this run
	bytes   int       // its size when it was changed last
	file    string    // name on disk
	saved   bool      // what is on disk is this
	forced  bool      // to be published as it is, there are too many
	untried bool      // an earlier run left it, and it is forced and was not tried yet
	tries   int       // attempts to publish it that failed
	retryAt time.Time // not before
}

// text is what a person reads in it now.
func (d *draft) text() string {
	if d.Card != nil {
		return d.Card.Text()
	}
	return d.Message.Text()
}

// size is how many bytes its content and card take, about.
func (d *draft) size() int {
	n := len(d.Message.Content)
	if d.Card != nil {
		n += d.Card.Size()
	}
	for element := range d.Seq {
		n += len(element)
	}
	return n
}

// ready reports whether d has a text to publish.
func (d *draft) ready() bool { return d.Message.ID != "" && !feishu.Placeholder(d.text()) }

// conversation is where a draft's message was sent.
type conversation struct {
	chat   relay.ChatID
	thread string
}

func (d *draft) conversation() conversation {
	return conversation{d.Message.ChatID, d.Message.ThreadID}
}

// toPeer reports whether d is for another agent: it may end a task, which is done once.
func (d *draft) toPeer() bool { return peerchat.IsID(d.Message.ChatID) }

// goesOutSoon reports whether d is about to go out, so that what is said behind it in
// the same place is not to overtake it.
func (d *draft) goesOutSoon() bool {
	return d.Published == "" && (d.Wait == waitNone || d.Wait == waitSettle) && d.tries == 0 && d.ready()
}

// touch notes a write at now and what it leaves to wait for. whole: all of a
// CardKit card was replaced, which many bots do at the end.
func (d *draft) touch(now time.Time, whole, patches bool) {
	if d.Card != nil && d.Card.Streaming() && d.Streams == 0 {
		d.Streams = relay.MillisOf(now)
	}
	d.Touched, d.saved, d.tries, d.retryAt = relay.MillisOf(now), false, 0, time.Time{}
	switch {
	case d.Card == nil:
		d.Wait = waitEdit
	case d.Card.Streaming() && !whole:
		d.Wait = waitEnd
	case d.Card.Streaming(), d.CardID == "" && (d.Patched || patches), d.toPeer() && d.Streams == 0:
		d.Wait = waitEdit
	default:
		d.Wait = waitSettle
	}
}

// due is when d is final, if nothing more is written.
func (d *draft) due(o *Options) time.Time {
	at := d.Touched.Time()
	switch d.Wait {
	case waitSettle:
		at = at.Add(o.Settle)
	case waitEdit:
		at = at.Add(o.EditSettle)
		if d.toPeer() && (d.Patched || d.Card != nil && d.Card.Streaming()) {
			at = d.Touched.Time().Add(peerEdits * o.EditSettle)
		}
	case waitEnd:
		at = cmp.Or(d.Streams, d.Created).Time().Add(o.StreamLife)
		if d.toPeer() {
			at = d.Touched.Time().Add(peerStreamQuiet)
		}
	case waitMore:
		return d.expires(o)
	}
	if quiet := d.Touched.Time().Add(editQuiet); d.Published != "" && (d.Wait == waitEdit || d.Wait == waitEnd) &&
		at.Before(quiet) {
		return quiet
	}
	return at
}

// mayChange reports whether a bot that wrote d may well write on: d is a card, or was
// or may be edited.
func (d *draft) mayChange() bool {
	return d.Card != nil || d.Wait == waitEdit || d.Touched != d.Created
}

// digest tells texts apart.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// expires is when d is dropped. Bots think for minutes behind a placeholder.
func (d *draft) expires(o *Options) time.Time {
	if d.toPeer() {
		return d.Touched.Time().Add(peerAge)
	}
	return d.Touched.Time().Add(o.MaxAge + o.StreamLife)
}

// newer reports whether a write of that sequence is the last one to element,
// and notes it. Without a sequence every write counts.
func (d *draft) newer(element string, seq int) bool {
	if seq == 0 {
		return true
	}
	if seq <= max(d.Seq[element], d.Seq[""]) {
		return false
	}
	if d.Seq == nil {
		d.Seq = map[string]int{}
	}
	if len(d.Seq) < maxElements {
		d.Seq[element] = seq
	}
	return true
}

// maxElements bounds Seq; a card has at most 200 elements (docs/feishu.md 5.2).
const maxElements = 256

// finished is d in the form that goes out.
func (d *draft) finished() Sent {
	out := Sent{Message: d.Message, Text: d.text()}
	if d.Published != "" {
		out.EditOf = d.Message.ID
		out.ID = relay.MessageID("edit:" + string(d.Message.ID) + ":" + digest(out.Text))
	}
	if d.Card == nil {
		out.Keys = feishu.Keys(d.Message.Type, d.Message.Content)
		out.Files = feishu.Files(d.Message.Type, d.Message.Content)
		return out
	}
	out.Mentions = d.Card.Mentions()
	for _, m := range d.Message.Mentions {
		if !slices.ContainsFunc(out.Mentions, func(o feishu.Mention) bool { return o.Same(&m) }) {
			out.Mentions = append(out.Mentions, m) // of a template, say, whose text is not known here
		}
	}
	if card, err := json.Marshal(d.Card); err == nil {
		out.Keys, out.Files = feishu.Keys(typeCard, string(card)), feishu.Files(typeCard, string(card))
	}
	return out
}

// backoff is how long after the given failure the next attempt is made.
func backoff(tries int) time.Duration {
	return wait.Doubled(time.Second, time.Minute, tries)
}

// key names a draft: by its message, or its card while it has none.
func (d *draft) key() string { return cmp.Or(string(d.Message.ID), "card-"+d.CardID) }
