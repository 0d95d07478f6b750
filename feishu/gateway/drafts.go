package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const typeCard = "interactive"

const (
	// editQuiet is the quiet behind a change of a published message: bots are given its text a second time, so it is to
	// be the last. It is also how long a message whose change Feishu refused waits for what the bot writes in its place,
	// how long a text waits while the bot shows that it types, and one for an agent after a change, as where the bot
	// writes its progress into it.
	editQuiet = time.Minute
	// draftLife is how long a message without a text is kept: bots think for long behind a placeholder. It is also how
	// long it is tried to publish one.
	draftLife = 24 * time.Hour
	// editsFor is how long a published message is kept, so that its changes are known, and a card that is not sent.
	editsFor = 20 * time.Minute
)

// Bounds of the drafts. Beyond them the oldest of those that are published is dropped, or else the oldest of all, which
// is counted and logged.
const (
	maxDrafts     = 1000
	maxDraftBytes = 16 << 20 // of their JSON
)

// draft is a text or card of the bot that is not final, or that is published and may still change; or a card that was
// made and not sent yet (Message.ID is empty then).
type draft struct {
	Message feishu.Message `json:"message"`
	CardID  string         `json:"card_id,omitempty"` // of CardKit
	Card    *feishu.Card   `json:"card,omitempty"`    // nil: not a card
	Created relay.Millis   `json:"created"`
	Touched relay.Millis   `json:"touched"` // the last write
	// Due is when it is published, or dropped where there is nothing to publish, if nothing more is written.
	Due     relay.Millis `json:"due"`
	Streams relay.Millis `json:"streams,omitempty"` // when streaming was last switched on
	Patched bool         `json:"patched,omitempty"` // it was changed since it was sent, other than by streaming
	Cut     int          `json:"cut,omitempty"`     // the code with which Feishu refused the last change of its text
	Ended   bool         `json:"ended,omitempty"`   // the last write ended it
	// Shown is the [content.Doc.Sum] of what readers were shown last; "": it is not published.
	Shown string `json:"shown,omitempty"`
	// Given is the text that other bots were given last; "": it is not known.
	Given string `json:"given,omitempty"`
	// Seq is the sequence of the last write by element id, "" for the whole card:
	// answers that come in late must not undo later writes.
	Seq map[string]int `json:"seq,omitempty"`

	bytes int  // of its JSON
	saved bool // it is in the book as it is
}

// doc is what a person reads in it now.
func (d *draft) doc() content.Doc {
	if d.Card != nil {
		return d.Card.Doc()
	}
	return d.Message.Doc()
}

// ready reports whether d has a text to publish.
func (d *draft) ready() bool { return d.Message.ID != "" && !d.doc().Placeholder() }

// conversation names where d's message was sent: a chat, or a topic in it.
func (d *draft) conversation() string { return string(d.Message.ChatID) + " " + d.Message.ThreadID }

// toPeer reports whether d is for another agent: it may end a task, which is done once.
func (d *draft) toPeer() bool { return peerchat.IsID(d.Message.ChatID) }

// streaming reports whether d is a card in streaming mode.
func (d *draft) streaming() bool { return d.Card != nil && d.Card.Streaming() }

// key names its record.
func (d *draft) key() string { return cmp.Or(string(d.Message.ID), "card "+d.CardID) }

// touch records a write, sets when d is due, and returns what a person reads in it. whole: the whole CardKit card was
// replaced, which many bots do at the end, also without an end sign; streamed: the card streamed before.
func (g *Gateway) touch(d *draft, whole, streamed bool) content.Doc {
	now, doc := relay.MillisOf(time.Now()), d.doc()
	if d.streaming() && d.Streams == 0 {
		d.Streams = now
	}
	d.Touched, d.Ended = now, streamed && !d.streaming()
	d.Due = relay.MillisOf(now.Time().Add(g.quiet(d, doc, whole)))
	return doc
}

// quiet is how long after the last write d is final, if nothing more is written:
//
//   - a card that streams, [Options.StreamLife] after streaming was switched on, and a moment in which Feishu refuses
//     the next write;
//   - a text or card that the bot changes, or whose end shows that more is to come, [Options.EditSettle], and editQuiet
//     while the bot shows that it types;
//   - one whose change Feishu refused, editQuiet: the bot writes another one in its place;
//   - another card, and a reply that breaks off within a sentence, [Options.Settle]: it may be the beginning of an
//     answer that the bot streams by edits;
//   - all others, at once;
//   - what is published already is looked at [Options.EditSettle] after a change, unless its streaming ended.
func (g *Gateway) quiet(d *draft, doc content.Doc, whole bool) (quiet time.Duration) {
	o, streams := &g.opts, d.streaming()
	changes := d.Patched && (d.CardID == "" || d.Streams == 0)
	switch {
	case d.Card == nil && !content.IsText(d.Message.Type): // an image, say, which cannot be changed
		return 0
	case streams && !whole:
		quiet = cmp.Or(d.Streams, d.Created).Time().Add(o.StreamLife + o.EditSettle).Sub(d.Touched.Time())
		if quiet = max(quiet, o.EditSettle); d.Cut != 0 {
			quiet = max(quiet, editQuiet)
		}
	case d.Cut != 0:
		quiet = editQuiet
	case d.Message.ID == "" || d.Shown == "" && doc.Placeholder():
		return d.expires().Sub(d.Touched.Time())
	case changes && d.toPeer():
		quiet = editQuiet
	case streams, changes, d.Streams == 0 && (d.toPeer() || content.Unfinished(doc.Text())):
		quiet = o.EditSettle
	case d.Card != nil || d.Message.ParentID != "" && content.BreaksOff(doc.Text()):
		quiet = o.Settle
	}
	if !streams && d.CardID == "" && g.types(&d.Message) {
		quiet = max(quiet, editQuiet)
	}
	if d.Shown != "" && !d.Ended {
		quiet = max(quiet, o.EditSettle)
	}
	return quiet
}

// expires is when d is dropped, if it is not written to.
func (d *draft) expires() time.Time {
	if d.Shown != "" || d.Message.ID == "" {
		return d.Touched.Time().Add(editsFor)
	}
	return d.Touched.Time().Add(draftLife)
}

// idle reports whether d is published, and was not changed since.
func (d *draft) idle() bool { return d.Shown != "" && !d.Due.Time().Before(d.expires()) }

// newer reports whether a write to element is newer than all before, by its sequence, and records it. A write without a
// sequence is newer.
func (d *draft) newer(element string, seq int) bool {
	if seq != 0 && seq <= max(d.Seq[element], d.Seq[""]) {
		return false
	}
	if d.Seq == nil {
		d.Seq = map[string]int{}
	}
	if seq != 0 && len(d.Seq) < maxElements {
		d.Seq[element] = seq
	}
	return true
}

// maxElements bounds Seq; a card has at most 200 elements (docs/feishu.md 5.2).
const maxElements = 256

// finished is d, which says doc, in the form that goes out.
func (d *draft) finished(doc content.Doc) Sent {
	out := Sent{Message: d.Message, Doc: doc, Text: doc.Text()}
	if d.Shown != "" {
		out.EditOf = d.Message.ID
		out.ID = relay.MessageID("edit:" + string(d.Message.ID) + ":" + doc.Sum())
	}
	if d.Card == nil {
		return out
	}
	out.Mentions = doc.Mentions()
	if slices.ContainsFunc(doc.Blocks, func(b content.Block) bool { return b.Quiet || b.Part == content.Thought }) {
		return out // Feishu lists those in thoughts too
	}
	for _, m := range d.Message.Mentions {
		if !slices.ContainsFunc(out.Mentions, func(o feishu.Mention) bool { return o.Same(&m) }) {
			out.Mentions = append(out.Mentions, m) // of a template, say, or by an e-mail address
		}
	}
	return out
}

// drafts are the messages that are not final yet, and those published last, in memory and in the book.
type drafts struct {
	*Options
	store *feishu.Store
	wake  chan struct{} // something changed; of size 1

	mu  sync.Mutex
	all []*draft // the oldest first
}

// loadDrafts reads what an earlier run left.
func loadDrafts(o *Options) *drafts {
	s := &drafts{Options: o, store: o.Book.Store(), wake: make(chan struct{}, 1)}
	now := relay.MillisOf(time.Now())
	err := s.store.Each(func(kind, _ string, value json.RawMessage) {
		d := &draft{saved: true, bytes: len(value)}
		if kind != feishu.KindDraft || json.Unmarshal(value, d) != nil ||
			d.Card == nil && (d.CardID != "" || d.Message.ChatID == "") {
			return
		}
		if d.Patched && !d.streaming() { // the bot could not write while the sidecar was down
			d.Due, d.Touched = d.Due+max(now-d.Touched, 0), max(d.Touched, now)
		}
		s.all = append(s.all, d)
	})
	if err != nil {
		o.Logger.Error("drafts of the previous run cannot be read", "err", err)
	}
	slices.SortStableFunc(s.all, func(a, b *draft) int { return cmp.Compare(a.Created, b.Created) })
	return s
}

// find returns the draft of a message, or with a card; nil if there is none. mu is held, here and in what follows up to
// change.
func (s *drafts) find(message relay.MessageID, card string) *draft {
	i := slices.IndexFunc(s.all, func(d *draft) bool {
		return message != "" && d.Message.ID == message || card != "" && d.CardID == card
	})
	if i < 0 {
		return nil
	}
	return s.all[i]
}

// remove takes out d, unless it was before.
func (s *drafts) remove(d *draft) {
	i := slices.Index(s.all, d)
	if i < 0 {
		return
	}
	s.all = slices.Delete(s.all, i, i+1)
	_ = s.store.Put(feishu.KindDraft, d.key(), nil) // what comes back with the next start is known to the host
}

// save writes d.
func (s *drafts) save(d *draft) {
	value, _ := relay.Marshal(d) // it never fails for a draft
	err := s.store.Put(feishu.KindDraft, d.key(), json.RawMessage(value))
	if d.bytes, d.saved = len(value), err == nil; err != nil {
		s.Logger.Error("a message that is not final cannot be kept on disk; it is tried again", "err", err)
	}
	s.bound()
}

// bound drops what is too much.
func (s *drafts) bound() {
	for {
		bytes := 0
		for _, d := range s.all {
			bytes += d.bytes
		}
		if len(s.all) <= maxDrafts && bytes <= maxDraftBytes {
			return
		}
		oldest := s.all[max(0, slices.IndexFunc(s.all, func(d *draft) bool { return d.Shown != "" }))]
		if oldest.Shown == "" {
			s.Counter("draft_lost")
			s.Logger.Error("too many drafts cannot be published; the oldest is dropped", "message_id", oldest.Message.ID,
				"chat", oldest.Message.ChatID)
		}
		s.remove(oldest)
	}
}

// finish makes d due now, unless it is being written or says nothing new.
func (s *drafts) finish(d *draft) {
	now := relay.MillisOf(time.Now())
	if d.streaming() || d.Due <= now || !d.ready() ||
		d.Shown != "" && (d.Given == "" || !content.Another(d.Given, d.doc().Text())) {
		return
	}
	d.Due, d.Ended = now, true
	s.save(d)
	s.poke()
}

// change changes the draft of a message, or with a card; false if there is none.
func (s *drafts) change(message relay.MessageID, card string, change func(*draft)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.find(message, card)
	if d == nil {
		return false
	}
	old := d.key()
	change(d)
	if d.key() != old { // a card was sent, and is kept under the id of its message
		_ = s.store.Put(feishu.KindDraft, old, nil)
	}
	s.save(d)
	s.poke()
	return true
}

// holds reports whether there is a draft of a message.
func (s *drafts) holds(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id, "") != nil
}

// drop forgets the draft of a message, or with a card, and reports whether it would have been published.
func (s *drafts) drop(message relay.MessageID, card string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.find(message, card)
	if d == nil {
		return false
	}
	s.remove(d)
	s.poke()
	return d.Shown == ""
}

// waiting is how many drafts wait to be published.
func (s *drafts) waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		if d.Shown == "" {
			n++
		}
	}
	return n
}

// poke wakes Run, which looks at all of them again.
func (s *drafts) poke() { wait.Wake(s.wake) }

// add publishes a message that is final, or keeps a draft of it. One that is known already is left as it is.
func (g *Gateway) add(ctx context.Context, d *draft) {
	s := g.drafts
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Message.ID != "" && s.find(d.Message.ID, "") != nil {
		return
	}
	now := relay.MillisOf(time.Now())
	d.Created = now
	doc := g.touch(d, false, false)
	g.goesOn(d, doc)
	waits := slices.ContainsFunc(s.all, func(o *draft) bool {
		return o.Due <= now && o.conversation() == d.conversation()
	})
	out := d.finished(doc)
	if d.Due <= now && !waits && g.kind(out.ChatID) == feishu.ChatGroup && len(g.nameless(&out)) == 0 {
		var err error
		if g.unlocked(func() { err = g.publish(ctx, out) }); err == nil || s.find(d.Message.ID, "") != nil {
			return
		}
		d.Due = now + relay.Millis(tryAgain.Milliseconds())
	}
	if d.Message.ID != "" {
		g.count("draft")
	}
	s.all = append(s.all, d)
	s.save(d)
	s.poke()
}

// goesOn does what a message d, which says doc, means for each draft that was sent before it in its conversation. d
// takes the place of one that is unfinished and that it begins with, or whose change Feishu has just refused. Other
// texts are final.
func (g *Gateway) goesOn(d *draft, doc content.Doc) {
	for _, other := range slices.Clone(g.drafts.all) {
		if other == d || other.Message.ID == "" || other.conversation() != d.conversation() ||
			other.Message.CreateTime > d.Message.CreateTime {
			continue
		}
		changing := other.Card != nil || other.Patched || other.Due.Time().Sub(other.Touched.Time()) > g.opts.Settle
		refused := other.Cut > cutForNow && other.Message.ParentID == d.Message.ParentID
		old := other.doc()
		switch {
		case other.idle():
		case other.toPeer() || !refused && !(changing && content.Begins(doc.Text(), old.Text())):
			g.drafts.finish(other)
		case other.Shown == "":
			g.log.Info("a message takes the place of one that the bot did not finish", "chat", d.Message.ChatID,
				"message_id", d.Message.ID, "instead_of", other.Message.ID)
			g.recent.gone.Add(other.Message.ID, struct{}{})
			g.drafts.remove(other)
		default:
			other.Shown, other.Given = old.Sum(), old.Text()
			g.drafts.save(other)
		}
	}
}

const (
	// lookAgain is how often the drafts are looked at when nothing happens.
	lookAgain = time.Minute
	// tryAgain is the first pause before what could not be published is tried again; later ones grow with its age.
	tryAgain = 5 * time.Second
)

// Run publishes drafts as they become final, one after another, until ctx is done. The rest waits for the next run.
func (g *Gateway) Run(ctx context.Context) {
	g.undecided(ctx)
	for ctx.Err() == nil {
		next := g.publishDue(ctx)
		select {
		case <-ctx.Done():
		case <-g.drafts.wake:
		case <-time.After(next):
		}
	}
}

// publishDue settles what is due, the oldest first, and returns when to look again.
func (g *Gateway) publishDue(ctx context.Context) (next time.Duration) {
	next = lookAgain
	s := g.drafts
	s.mu.Lock()
	defer s.mu.Unlock()
	defer g.caught("settle")
	for _, d := range slices.Clone(s.all) {
		now := relay.MillisOf(time.Now())
		if early := d.Touched - now; early > 0 { // the clock was put back
			d.Touched, d.Due = d.Touched-early, d.Due-early
		}
		if !d.saved {
			g.keep(d)
		}
		if d.Due <= now && ctx.Err() == nil && slices.Contains(s.all, d) {
			g.settle(ctx, d)
		}
		if slices.Contains(s.all, d) {
			next = min(next, max(time.Until(d.Due.Time()), 0))
		}
	}
	return next
}

var (
	errPanicked    = errors.New("recording it panicked")
	errUnknownChat = errors.New("it is not known whether the chat is a group")
	errPeersOff    = errors.New("it is for an agent, and MAILBOX_GATEWAY is off")
)

// settle publishes d, which is due, or what the bot made of it since it was published, or drops it, or sets another
// due time. What was published is shown to readers when it changes, and given to other bots if it became another answer
// that the bot does not go on with. drafts.mu is held, and released meanwhile.
func (g *Gateway) settle(ctx context.Context, d *draft) {
	now, touched, next, first := time.Now(), d.Touched, d.expires(), d.Shown == ""
	out, quiet := d.finished(d.doc()), touched.Time().Add(editQuiet)
	news := d.ready() && (first || d.Given != "" && content.Another(d.Given, out.Text))
	if news && (first || d.Ended || !now.Before(quiet)) {
		g.decide(ctx, d, out)
		return
	}
	switch shows := d.ready() && !first && out.Doc.Sum() != d.Shown; {
	case shows:
		d.Shown = out.Doc.Sum()
		g.unlocked(func() { g.show(out) })
	case !news && !now.Before(next):
		g.drop(d, "draft_expired", first, "it never got a text")
		return
	}
	if news {
		next = quiet
	}
	if d.Touched == touched { // else a write has set it
		d.Due = relay.MillisOf(next)
	}
	g.keep(d)
}

// decide publishes d as out, unless it is not known where to, or it may not be.
func (g *Gateway) decide(ctx context.Context, d *draft, out Sent) {
	now, touched, expires := time.Now(), d.Touched, d.expires()
	err := errUnknownChat
	if d.toPeer() {
		err = errPeersOff // unless it is published now
	}
	g.unlocked(func() {
		if g.kind(out.ChatID) == "" {
			_ = g.opts.Book.AskChat(ctx, out.ChatID, askWait) // asked again below
		}
		if g.kind(out.ChatID) == feishu.ChatGroup {
			g.askNames(ctx, &out)
			err = g.publish(ctx, out)
		}
	})
	switch {
	case g.kind(out.ChatID) == feishu.ChatP2P && !d.toPeer():
		g.drop(d, "draft_private", false, "a private chat never leaves its bot")
	case err == nil:
		g.count("draft_published")
		if now.Sub(touched.Time()) >= editQuiet && g.types(&out.Message) {
			g.recent.typingStays.Store(true)
		}
		if d.Card == nil && !d.Patched && !d.toPeer() {
			g.drafts.remove(d)
			return
		}
		if d.Shown, d.Given = out.Doc.Sum(), out.Text; d.Touched == touched {
			d.Due = relay.MillisOf(d.expires())
		}
		g.keep(d)
	case now.Before(expires):
		again := relay.MillisOf(time.Now().Add(max(tryAgain, now.Sub(touched.Time())/8)))
		d.Due = min(again, relay.MillisOf(expires))
	default:
		g.drop(d, "draft_expired", true, err.Error())
	}
}

// unlocked calls f without drafts.mu, which is held.
func (g *Gateway) unlocked(f func()) {
	g.drafts.mu.Unlock()
	defer g.drafts.mu.Lock()
	f()
}

// keep saves d, unless it is gone.
func (g *Gateway) keep(d *draft) {
	if slices.Contains(g.drafts.all, d) {
		g.drafts.save(d)
	}
}

// drop drops d, and logs why if it is to be logged.
func (g *Gateway) drop(d *draft, event feishu.Counted, logged bool, why string) {
	if d.Shown == "" {
		g.count(event)
	}
	g.drafts.remove(d)
	if logged && d.Message.ID != "" {
		g.log.Warn("a message of the bot is not relayed", "chat", d.Message.ChatID, "message_id", d.Message.ID, "reason", why)
	}
}

// publish hands a final message of a group to the host.
func (g *Gateway) publish(ctx context.Context, out Sent) (err error) {
	err = errPanicked // unless it gets to its end
	defer g.caught("sent")
	if g.recent.gone.Contains(cmp.Or(out.EditOf, out.ID)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hostWait)
	defer cancel()
	out = g.finished(out)
	if err := g.opts.Host.Sent(ctx, out); err != nil {
		g.count("sent_error")
		g.log.Error("a message of the bot cannot be recorded yet", "chat", out.ChatID, "message_id", out.ID, "err", err)
		return err
	}
	if out.EditOf == "" {
		if len(out.Content) > maxText {
			out.Content = ""
		}
		g.recent.sent.Add(out.ID, out.Message)
	}
	g.count("sent")
	return nil
}

// show shows readers the text of a published message.
func (g *Gateway) show(out Sent) {
	defer g.caught("edited")
	if g.recent.gone.Contains(out.EditOf) || peerchat.IsID(out.ChatID) {
		return
	}
	out.ID = out.EditOf
	g.opts.Host.Edited(g.finished(out))
}

// finished is a group's message with the names of those that it mentions.
func (g *Gateway) finished(out Sent) Sent {
	out.Mentions = g.named(out.Mentions)
	out.Text = content.WithNames(out.Text, out.Mentions)
	return out
}
