package gateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const typeCard = "interactive"

const (
	// maxHeld is how long a message is held back by one before it that is about to
	// go out; then it overtakes it.
	maxHeld = 10 * time.Second
	// editQuiet is the quiet behind a change of a published message that has no end sign: bots are given its text a
	// second time, so it is to be the last. It is also how long a message whose change Feishu refused waits for what the
	// bot writes in its place.
	editQuiet = time.Minute
	// peerStreamQuiet is the same for a card for an agent that still streams: bots look at files for minutes in the
	// middle of an answer, and a task cannot be completed again.
	peerStreamQuiet = time.Hour
	// peerEdits is how many times Options.EditSettle a message for an agent is left alone before it is final once it
	// was changed, as where a bot writes its progress into it.
	peerEdits = 8
	// typingHold is how long a message for an agent is held behind its last write while the bot shows that it types. In a
	// group that is editQuiet: what it writes later follows as an edit.
	typingHold = 5 * time.Minute
	// typingFor is how long the sign that the bot types for an agent counts: some bots do not remove it. In groups signs
	// do not count once one was waited for in vain, until the bot removes one.
	typingFor = time.Hour
	// peerAge is in place of Options.MaxAge for messages to agents.
	peerAge = 24 * time.Hour
	// maxPublished and keptBytes bound the drafts that are kept once they are published.
	maxPublished = 200
	keptBytes    = 8 << 20
)

// draft is a message that was sent but is not final, or a card that was made
// and not sent yet (Message.ID is empty then). It is one file on disk. A card, and a text that was changed, is kept
// for a while after it was published: what the bot goes on to write follows as an edit.
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
	// Published is the [content.Doc.Sum] of what readers were shown last; "": nothing.
	Published string `json:"published,omitempty"`
	// Given is the text that other bots were given last; "": it is not known.
	Given string `json:"given,omitempty"`
	// Seq is the sequence of the last write by element id, "" for the whole card:
	// answers that come in late must not undo later writes.
	Seq map[string]int `json:"seq,omitempty"`

	order   int       // of its making, in this run
	bytes   int       // its size when it was changed last
	file    string    // name on disk
	saved   bool      // its file is up to date
	forced  bool      // to be published as it is, there are too many
	tries   int       // attempts to publish it that failed
	retryAt time.Time // not before
}

// doc is what a person reads in it now.
func (d *draft) doc() content.Doc {
	if d.Card != nil {
		return d.Card.Doc()
	}
	return d.Message.Doc()
}

// size is how many bytes its content and card take, about.
func (d *draft) size() int {
	n := len(d.Message.Content) + len(d.Given)
	for element := range d.Seq {
		n += len(element)
	}
	if d.Card != nil {
		data, _ := d.Card.MarshalJSON()
		return n + len(data)
	}
	return n
}

// ready reports whether d has a text to publish.
func (d *draft) ready() bool { return d.Message.ID != "" && !d.doc().Placeholder() }

// conversation names where d's message was sent: a chat, or a topic in it.
func (d *draft) conversation() string { return string(d.Message.ChatID) + " " + d.Message.ThreadID }

// toPeer reports whether d is for another agent: it may end a task, which is done once.
func (d *draft) toPeer() bool { return peerchat.IsID(d.Message.ChatID) }

// goesOutSoon reports whether d is about to go out, so that what is said behind it in
// the same place is not to overtake it.
func (d *draft) goesOutSoon(now time.Time, o *Options) bool {
	return d.Published == "" && d.Message.ID != "" && d.tries == 0 && !d.Due.Time().After(now.Add(o.Settle))
}

// streaming reports whether d is a card in streaming mode.
func (d *draft) streaming() bool { return d.Card != nil && d.Card.Streaming() }

// touch records a write, and sets when d is due. whole: the whole CardKit card was replaced, which many bots do at the
// end, also without an end sign; streamed: the card streamed before.
func (g *Gateway) touch(d *draft, whole, streamed bool) {
	now := relay.MillisOf(time.Now())
	d.saved, d.tries, d.retryAt = false, 0, time.Time{}
	if d.streaming() && d.Streams == 0 {
		d.Streams = now
	}
	d.Touched, d.Ended = now, streamed && !d.streaming()
	d.Due = relay.MillisOf(g.finalAt(d, whole))
}

// finalAt is when d is final, if nothing more is written:
//
//   - a card that streams, [Options.StreamLife] after streaming was switched on, and a moment in which Feishu refuses
//     the next write;
//   - a text or card that the bot changes, or whose end shows that more is to come, [Options.EditSettle] after the last
//     change, and editQuiet while the bot shows that it types;
//   - one whose change Feishu refused, editQuiet later: the bot writes another one in its place;
//   - another card, and a reply that breaks off within a sentence, [Options.Settle] after the last write: it may be the
//     beginning of an answer that the bot streams by edits;
//   - all others, at once;
//   - what is published already, not before editQuiet, unless its streaming ended. Readers are shown a text sooner.
func (g *Gateway) finalAt(d *draft, whole bool) time.Time {
	if d.fixed() {
		return d.Touched.Time()
	}
	o, at, streams, doc, wait := &g.opts, d.Touched.Time(), d.streaming(), d.doc(), time.Duration(0)
	edited := streams || d.Patched && (d.CardID == "" || d.Streams == 0) ||
		d.Streams == 0 && (d.toPeer() || content.Unfinished(doc.Text()))
	switch {
	case streams && !whole && d.toPeer():
		wait = peerStreamQuiet
	case streams && !whole:
		wait = max(cmp.Or(d.Streams, d.Created).Time().Add(o.StreamLife+o.EditSettle).Sub(at), 0)
		if d.Cut != 0 {
			wait = max(wait, editQuiet)
		}
	case d.Cut != 0:
		wait = editQuiet
	case d.Message.ID == "" || d.Published == "" && doc.Placeholder():
		return d.expires(o)
	case edited && d.toPeer() && (d.Patched || streams):
		wait = peerEdits * o.EditSettle
	case edited:
		wait = o.EditSettle
	case d.Card != nil || d.Message.ParentID != "" && content.BreaksOff(doc.Text()):
		wait = o.Settle
	}
	if !streams && (d.CardID == "" || edited && d.toPeer()) && g.types(&d.Message) {
		wait = max(wait, map[bool]time.Duration{false: editQuiet, true: typingHold}[d.toPeer()])
	}
	switch {
	case d.Published == "" || d.Ended:
	case d.Card == nil && !d.toPeer():
		wait = o.EditSettle
	default:
		wait = max(wait, editQuiet)
	}
	return at.Add(wait)
}

// fixed reports whether d is an image, say, which cannot be changed.
func (d *draft) fixed() bool { return d.Card == nil && !content.IsText(d.Message.Type) }

// expires is when d is dropped. Bots think for minutes behind a placeholder.
func (d *draft) expires(o *Options) time.Time {
	if d.toPeer() {
		return d.Touched.Time().Add(peerAge)
	}
	return d.Touched.Time().Add(o.MaxAge + o.StreamLife)
}

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

// finished is d in the form that goes out.
func (d *draft) finished() Sent {
	doc := d.doc()
	out := Sent{Message: d.Message, Text: doc.Text(), Keys: doc.Keys(), Files: doc.Files()}
	if d.Published != "" {
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

// cardKey is before the id of a card in a key.
const cardKey = "card-"

// keys names a draft: by its message, and by its card.
func (d *draft) keys() []string {
	keys := []string{string(d.Message.ID), cardKey + d.CardID}
	return slices.DeleteFunc(keys, func(key string) bool { return key == "" || key == cardKey })
}

// Bounds of the drafts. Beyond maxDrafts or maxBytes the oldest is published as it is; where
// even that fails and maxStuck more or stuckBytes more pile up, the oldest is dropped, which
// is counted and logged.
const (
	maxDrafts  = 1000
	maxStuck   = 200
	maxBytes   = 64 << 20 // of all contents and cards
	stuckBytes = 16 << 20
	maxFile    = 8 << 20 // bytes of a draft's file
)

const draftPrefix = "draft-"

// drafts are the messages that are not final yet, in memory and on disk, and those published last.
//
// A change is made and written under mu: a file is some 100 µs, and whoever
// waits for it on a broken disk waits tapWait at most.
type drafts struct {
	*Options
	files *spool.Spool[draft]
	wake  chan struct{} // something changed; of size 1

	mu         sync.Mutex
	made       int // drafts so far
	bytes      int // sum of draft.bytes
	all        map[*draft]struct{}
	byKey      map[string]*draft // see draft.keys
	publishing map[string]bool   // by conversation: its drafts are published one by one, in their order
	warned     bool              // it was logged that the disk refuses drafts

	waiting, unsaved atomic.Int64 // what sizes returned last

	workers sync.WaitGroup // that publish
}

// loadDrafts reads what an earlier run left. A file that cannot be read is quarantined
// as *.broken.
func loadDrafts(o *Options) *drafts {
	s := &drafts{Options: o, wake: make(chan struct{}, 1), all: map[*draft]struct{}{},
		byKey: map[string]*draft{}, publishing: map[string]bool{},
		files: spool.New[draft](o.Root, spool.Options{Prefix: draftPrefix, Suffix: ".json", MaxFile: maxFile,
			Logger: o.Logger, Unreadable: func() { o.Counter(countedDraftBroken) }})}
	var left []*draft
	err := s.files.Load(func(file string, d draft) error {
		if len(d.keys()) == 0 || d.Message.ID != "" && d.Message.ChatID == "" || d.Card == nil && d.CardID != "" {
			return errors.New("it lacks a message, its chat or a card")
		}
		d.file, d.saved = file, true
		left = append(left, &d)
		return nil
	})
	if err != nil {
		o.Logger.Error("drafts of the previous run cannot be read", "err", err)
	}
	slices.SortFunc(left, func(a, b *draft) int { return cmp.Compare(a.Created, b.Created) })
	now := relay.MillisOf(time.Now())
	for _, d := range left {
		if d.Patched && !d.streaming() { // the bot could not write while the sidecar was down
			d.Due, d.Touched = d.Due+max(now-d.Touched, 0), max(d.Touched, now)
		}
		s.enter(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom()
	return s
}

// enter takes d in as the newest. Callers other than loadDrafts hold mu.
func (s *drafts) enter(d *draft) {
	s.made++
	d.order = s.made
	s.all[d] = struct{}{}
	s.index(d)
}

// index makes d found by its message and its card, and notes how large it is.
func (s *drafts) index(d *draft) {
	s.bytes -= d.bytes
	d.bytes = d.size()
	s.bytes += d.bytes
	for _, key := range d.keys() {
		s.byKey[key] = d
	}
}

// add keeps a new draft, on disk where there is one, and then calls before for each one before it in its conversation.
// A draft of the same message or card stays as it is.
func (s *drafts) add(d *draft, before func(*draft)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(d.keys(), func(key string) bool { return s.byKey[key] != nil }) {
		return
	}
	s.enter(d)
	s.save(d)
	s.each(d, before)
	s.makeRoom()
	s.poke()
}

// each calls f for each other draft of a message in d's conversation. It is called with mu held.
func (s *drafts) each(d *draft, f func(*draft)) {
	for other := range s.all {
		if other != d && other.Message.ID != "" && other.Message.ChatID == d.Message.ChatID &&
			other.Message.ThreadID == d.Message.ThreadID {
			f(other)
		}
	}
}

// first reports whether d is final already and none before it in its conversation waits, except for cards that stream.
func (s *drafts) first(d *draft) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	first := !d.Due.Time().After(now) && !s.publishing[d.conversation()]
	s.each(d, func(other *draft) {
		streams := other.CardID != "" || other.streaming()
		first = first && (other.idle(s.Options) || streams && !other.goesOutSoon(now, s.Options))
	})
	return first
}

// makeRoom is called with mu held when drafts came, grew or could not be published. While too many wait, or they are
// too large together, the oldest are published as they are; while too many of those cannot be published, the oldest are
// dropped.
func (s *drafts) makeRoom() {
	if len(s.all) <= maxDrafts && s.bytes <= maxBytes {
		return
	}
	s.trim(maxDrafts, maxBytes, func(d *draft) bool { return !d.kept() && !d.forced }, func(d *draft) { d.forced = true })
	s.trim(maxDrafts+maxStuck, maxBytes+stuckBytes, func(d *draft) bool { return !d.kept() }, s.lose)
}

// trim calls end with the oldest of the drafts that count, until at most a number of them, and of bytes, is left.
func (s *drafts) trim(most, mostBytes int, counts func(*draft) bool, end func(*draft)) {
	var counted []*draft
	bytes := 0
	for d := range s.all {
		if counts(d) {
			counted, bytes = append(counted, d), bytes+d.bytes
		}
	}
	if len(counted) <= most && bytes <= mostBytes {
		return
	}
	slices.SortFunc(counted, byOrder)
	for len(counted) > most || bytes > mostBytes {
		end(counted[0])
		counted, bytes = counted[1:], bytes-counted[0].bytes
	}
}

// idle reports whether d was published, and was not changed since.
func (d *draft) idle(o *Options) bool { return d.kept() && !d.Due.Time().Before(d.expires(o)) }

// kept reports whether d was published, and waits for what the bot may write next.
func (d *draft) kept() bool { return d.Published != "" }

// lose drops d, for which there is no room. It is called with mu held.
func (s *drafts) lose(d *draft) {
	s.Counter(countedDraftLost)
	s.Logger.Error("too many drafts cannot be published; the oldest is dropped", "message_id", d.Message.ID,
		"chat", d.Message.ChatID)
	s.remove(d)
}

// onMessage changes the draft of a message; false when there is none.
func (s *drafts) onMessage(id relay.MessageID, change func(*draft)) bool {
	return s.change(string(id), change)
}

// onCard changes the draft of a CardKit card; false when there is none.
func (s *drafts) onCard(card string, change func(*draft)) bool { return s.change(cardKey+card, change) }

func (s *drafts) change(key string, change func(*draft)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byKey[key]
	if d == nil {
		return false
	}
	change(d)
	s.index(d) // it may have got its message or its card by now
	s.save(d)
	s.makeRoom()
	s.poke()
	return true
}

// release makes final the texts and cards that which picks, as far as the bot has written them.
func (s *drafts) release(which func(*draft) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.all {
		if d.Message.ID != "" && which(d) {
			s.finish(d)
		}
	}
}

// finish makes d due now, unless it goes on by itself. It is called with mu held.
func (s *drafts) finish(d *draft) {
	now := relay.MillisOf(time.Now())
	if d.CardID != "" || d.streaming() || d.Due <= now || !d.ready() {
		return
	}
	if d.Published == "" || d.Given != "" && content.Another(d.Given, d.doc().Text()) {
		d.Due, d.Ended = now, true
		s.save(d)
		s.poke()
	}
}

// replace takes out d, in whose place the bot has written another message. It is called with mu held.
func (s *drafts) replace(d *draft) {
	if !d.kept() {
		s.remove(d)
		return
	}
	doc := d.doc()
	d.Published, d.Given = doc.Sum(), doc.Text()
	s.save(d)
}

// retry has the drafts of a chat tried again at once.
func (s *drafts) retry(chat relay.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.all {
		if d.Message.ChatID == chat {
			d.retryAt, d.tries = time.Time{}, 0
		}
	}
	s.poke()
}

// drop forgets the draft of a message and reports whether it would have been
// published.
func (s *drafts) drop(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byKey[string(id)]
	if d == nil {
		return false
	}
	s.remove(d)
	s.poke() // what waited behind it may go out
	return d.Published == ""
}

// published records that readers were shown d with a sum, and bots were given its text unless that is "", as of its
// change at touched. If the bot may change it later it is kept, and looked at again at next.
func (s *drafts) published(d *draft, sum, text string, touched relay.Millis, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.all[d]; !there {
		return // it was recalled meanwhile
	}
	if d.Card == nil && !d.Patched && !d.toPeer() {
		s.remove(d)
		return
	}
	d.Published, d.Given = sum, cmp.Or(text, d.Given)
	d.tries, d.forced = 0, false
	if d.Touched == touched {
		d.Due = relay.MillisOf(next)
	}
	s.index(d)
	s.trim(maxPublished, keptBytes, (*draft).kept, s.remove)
	if _, there := s.all[d]; there {
		s.save(d)
	}
}

// failed records that d could not be published.
func (s *drafts) failed(d *draft) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.retryAt, d.forced = time.Now().Add(wait.Doubled(time.Second, time.Minute, d.tries)), false
	d.tries++
	s.makeRoom() // which may force it again
}

func byOrder(a, b *draft) int { return cmp.Compare(a.order, b.order) }

// remove takes d out, unless it was before. It is called with mu held.
func (s *drafts) remove(d *draft) {
	if _, there := s.all[d]; !there {
		return
	}
	delete(s.all, d)
	s.bytes -= d.bytes
	maps.DeleteFunc(s.byKey, func(_ string, other *draft) bool { return other == d })
	s.files.Remove(d.file)
}

// save writes d; mu is held. Where the disk refuses, d stays in memory and is
// written later.
func (s *drafts) save(d *draft) {
	if d.file == "" && d.Message.ID != "" && !d.kept() {
		s.Counter(countedDraft)
	}
	if d.file = cmp.Or(d.file, safefile.Name(d.keys()[0])); s.Root == nil {
		return
	}
	err := s.files.Save(d.file, *d)
	switch d.saved = err == nil; {
	case err != nil && !s.warned:
		s.Logger.Error("drafts cannot be written and are kept in memory", "err", err)
	case err == nil && s.warned:
		s.Logger.Info("drafts can be written to disk again")
	}
	if s.warned = err != nil; s.warned {
		s.Counter(countedDraftUnsaved)
	}
}

// saveRest writes what the disk refused before, until it refuses again.
func (s *drafts) saveRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.all {
		if s.Root != nil && !d.saved {
			if s.save(d); !d.saved {
				return
			}
		}
	}
}

// sizes are how many drafts wait to be published, and how many of them are not on disk. While a draft is being written
// that is as of the last call.
func (s *drafts) sizes() (n, unsaved int) {
	if s.mu.TryLock() {
		for d := range s.all {
			if !d.kept() {
				n++
				if !d.saved {
					unsaved++
				}
			}
		}
		s.waiting.Store(int64(n))
		s.unsaved.Store(int64(unsaved))
		s.mu.Unlock()
	}
	return int(s.waiting.Load()), int(s.unsaved.Load())
}

// poke wakes Run, which looks at all of them again.
func (s *drafts) poke() { wait.Wake(s.wake) }

// holds reports whether a message waits as a draft.
func (s *drafts) holds(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[string(id)] != nil
}

const (
	// lookAgain is how often the drafts are looked at when nothing happens.
	lookAgain = time.Minute
	// unsavedWait is how often the disk is tried again for drafts it refused.
	unsavedWait = 5 * time.Second
	// lastWait bounds the last pass when the gateway stops, and what is published before it.
	lastWait = 5 * time.Second
)

// done ends the publishing in a conversation.
func (s *drafts) done(in string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.publishing, in)
	s.poke()
}

// Run publishes drafts as they become final, until ctx is done, in each conversation on a goroutine of its own. A last
// pass then publishes what is final by then, and what would be lost since no disk holds it; the rest waits on disk for
// the next run.
func (g *Gateway) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			wait.Group(&g.drafts.workers, lastWait)
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
			defer cancel()
			g.settle(last, true)
			wait.Group(&g.drafts.workers, lastWait)
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
	for in, due := range g.drafts.due(time.Now(), last, &next) {
		g.drafts.workers.Go(func() {
			defer g.drafts.done(in)
			defer g.caught("settle")
			for _, d := range due {
				if ctx.Err() == nil {
					g.finish(ctx, d)
				}
			}
		})
	}
	if _, unsaved := g.drafts.sizes(); unsaved > 0 && g.opts.Root != nil {
		next = min(next, unsavedWait)
	}
	return next
}

// look returns when d is to be published or dropped; held is when the draft before it in its conversation is published.
func (d *draft) look(held, now time.Time, last bool) time.Time {
	if early := d.Touched - relay.MillisOf(now); early > 0 { // the clock was put back
		d.Touched, d.Due = d.Touched-early, d.Due-early
	}
	switch {
	case last && !d.saved && d.Published == "" && d.ready():
		d.forced = true
		return now
	case d.forced:
		return d.retryAt
	}
	if longest := d.Created.Time().Add(maxHeld); held.After(longest) {
		held = longest
	}
	return slices.MaxFunc([]time.Time{d.Due.Time(), d.retryAt, held}, time.Time.Compare)
}

// due returns the drafts that are due according to look, by conversation and oldest first, and shortens next to the
// time of the others. The caller publishes them and calls done for each conversation.
func (s *drafts) due(now time.Time, last bool, next *time.Duration) map[string][]*draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, due := map[string]time.Time{}, map[string][]*draft{}
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		in := d.conversation()
		if s.publishing[in] {
			continue
		}
		at := d.look(held[in], now, last)
		if d.goesOutSoon(now, s.Options) {
			held[in] = at
		}
		if wait := at.Sub(now); wait > 0 {
			*next = min(*next, wait)
		} else {
			due[in] = append(due[in], d)
		}
	}
	for in := range due {
		s.publishing[in] = true
	}
	return due
}

var errPanicked = errors.New("recording it panicked")

var errUnknownChat = errors.New("it is not known whether the chat is a group")

// finish publishes d, or what the bot made of it since it was published, or drops it. What was published is shown to
// readers when it changes, and given to other bots if it became another answer that the bot does not go on with.
func (g *Gateway) finish(ctx context.Context, d *draft) {
	now := time.Now()
	g.drafts.mu.Lock()
	if _, there := g.drafts.all[d]; !there || d.Due.Time().After(now) && !d.forced { // it was changed meanwhile
		g.drafts.mu.Unlock()
		return
	}
	out, ready, forced := d.finished(), d.ready(), d.forced
	sum, touched, next := d.doc().Sum(), d.Touched, d.expires(&g.opts)
	expired, quiet := !now.Before(next), touched.Time().Add(editQuiet)
	news := ready && (!d.kept() || d.Given != "" && content.Another(d.Given, out.Text))
	wakes := news && (!d.kept() || d.Ended || d.toPeer() || !now.Before(quiet))
	shows := ready && !wakes && sum != d.Published && (!news || d.Card == nil) && !d.toPeer()
	if news && !wakes {
		next = quiet
	}
	if !wakes && !shows && !expired && !forced { // it has no text yet, or says the same
		d.Due = relay.MillisOf(next)
		g.drafts.save(d)
		g.drafts.mu.Unlock()
		return
	}
	kept := d.kept()
	g.drafts.mu.Unlock()

	var err error
	switch {
	case shows:
		g.show(out)
		g.drafts.published(d, sum, "", touched, next)
		return
	case kept && !wakes:
		g.drafts.drop(d.Message.ID)
		return
	case !ready:
		g.dropped(d, countedDraftExpired, "it never got a text")
		return
	case g.kind(out.ChatID) == feishu.ChatP2P:
		why := ""
		if peerchat.IsID(out.ChatID) {
			why = "it is for an agent, and MAILBOX_GATEWAY is off: it is sent when that is on again"
		}
		g.dropped(d, countedDraftPrivate, why)
		return
	case g.kind(out.ChatID) != feishu.ChatGroup:
		g.askChat(out.ChatID)
		err = errUnknownChat
	case !forced && g.mustAsk(&out):
		g.nameAll(d, &out)
		return
	default:
		err = g.publish(ctx, out)
	}
	switch {
	case err == nil:
		g.count(countedDraftPublished)
		if !now.Before(quiet) && g.types(&out.Message) {
			g.recent.typingStays.Store(true)
		}
		g.drafts.published(d, sum, out.Text, touched, next)
	case expired || forced && errors.Is(err, errUnknownChat):
		g.dropped(d, countedDraftExpired, err.Error())
	default:
		g.drafts.failed(d)
	}
}

// show shows readers the text of a published message.
func (g *Gateway) show(out Sent) {
	defer g.caught("edited")
	if g.recent.gone.Contains(out.EditOf) {
		return
	}
	out.ID = out.EditOf
	g.opts.Host.Edited(g.finished(out))
}

// dropped drops d; why, where it is not empty, is logged with it.
func (g *Gateway) dropped(d *draft, event feishu.Counted, why string) {
	g.count(event)
	g.drafts.mu.Lock()
	g.drafts.remove(d)
	g.drafts.mu.Unlock()
	if why != "" && d.Message.ID != "" {
		g.log.Warn("a message of the bot is not relayed", "chat", d.Message.ChatID, "message_id", d.Message.ID, "reason", why)
	}
}

// finished is a group's message with the names of those that it mentions.
func (g *Gateway) finished(out Sent) Sent {
	out.Mentions = g.named(out.Mentions)
	out.Text = content.WithNames(out.Text, out.Mentions)
	out.ChatType = feishu.ChatGroup
	if peerchat.IsID(out.ChatID) {
		out.ChatType = feishu.ChatP2P
	}
	return out
}

// askChat asks Feishu on another goroutine what kind a chat is, unless an answer has just come.
func (g *Gateway) askChat(id relay.ChatID) {
	known := func() bool {
		return slices.Contains([]string{feishu.ChatGroup, feishu.ChatP2P}, g.opts.Book.Chat(id).Kind)
	}
	g.ask("chat", string(id), func(ctx context.Context) {
		if known() {
			return
		}
		g.count(countedChatAsked)
		chat, err := g.opts.API.Chat(ctx, id)
		if err != nil {
			g.log.Debug("the kind of a chat is not known yet", "chat", id, "err", err)
			return
		}
		if chat.Kind == "" {
			return // the bot is no longer in the chat, so Feishu does not return its kind
		}
		g.opts.Book.SetChat(chat)
	}, func() {
		if known() {
			g.drafts.retry(id)
		}
	})
}
