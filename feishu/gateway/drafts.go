package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
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
	// Published is the [content.Doc.Sum] of what went out last; "": nothing did.
	Published string `json:"published,omitempty"`
	// Seq is the sequence of the last write by element id, "" for the whole card:
	// answers that come in late must not undo later writes.
	Seq map[string]int `json:"seq,omitempty"`

	order   int       // of its making, in this run
	bytes   int       // its size when it was changed last
	file    string    // name on disk
	saved   bool      // its file is up to date
	forced  bool      // to be published as it is, there are too many
	untried bool      // an earlier run left it, and it is forced and was not tried yet
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
func (d *draft) ready() bool { return d.Message.ID != "" && !d.doc().Placeholder() }

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

// touch records a write at now, and sets what d waits for. whole: the whole CardKit card was replaced, which many bots
// do at the end.
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

// mayChange reports whether the bot may change d later: d is a card, or was or may be edited.
func (d *draft) mayChange() bool {
	return d.Card != nil || d.Wait == waitEdit || d.Touched != d.Created
}

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

// backoff is how long after the given failure the next attempt is made.
func backoff(tries int) time.Duration {
	return wait.Doubled(time.Second, time.Minute, tries)
}

// key names a draft: by its message, or its card while it has none.
func (d *draft) key() string { return cmp.Or(string(d.Message.ID), "card-"+d.CardID) }

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

// drafts are the messages that are not final yet, in memory and on disk.
//
// A change is made and written under mu: a file is some 100 µs, and whoever
// waits for it on a broken disk waits tapWait at most.
type drafts struct {
	files *spool.Spool[draft]
	disk  bool // files are on disk, and not in memory only
	log   *slog.Logger
	count func(feishu.Counted)
	wake  chan struct{} // something changed; of size 1

	mu        sync.Mutex
	made      int // drafts so far
	bytes     int // sum of draft.bytes
	all       map[*draft]struct{}
	byMessage map[relay.MessageID]*draft
	byCard    map[string]*draft
	warned    bool // it was logged that the disk refuses drafts

	// What sizes returns, which does not wait for the disk.
	waiting, unsaved atomic.Int64

	nowMu sync.Mutex
	now   map[relay.ChatID]bool // what retry was called with; guarded by nowMu
}

// loadDrafts reads what an earlier run left. A file that cannot be read is quarantined
// as *.broken.
func loadDrafts(root *os.Root, log *slog.Logger, count func(feishu.Counted)) *drafts {
	s := &drafts{log: log, count: count, wake: make(chan struct{}, 1), all: map[*draft]struct{}{},
		byMessage: map[relay.MessageID]*draft{}, byCard: map[string]*draft{}, now: map[relay.ChatID]bool{}, disk: root != nil,
		files: spool.New[draft](root, spool.Options{Prefix: draftPrefix, Suffix: ".json", MaxFile: maxFile,
			Logger: log, Unreadable: func() { count(countedDraftBroken) }})}
	var left []*draft
	err := s.files.Load(func(file string, d draft) error {
		if err := d.check(); err != nil {
			return err
		}
		d.file, d.saved, d.untried = file, true, true
		left = append(left, &d)
		return nil
	})
	if err != nil {
		log.Error("drafts of the previous run cannot be read", "err", err)
	}
	slices.SortFunc(left, func(a, b *draft) int { return cmp.Compare(a.Created, b.Created) })
	now := relay.MillisOf(time.Now())
	for _, d := range left {
		if d.Wait == waitEdit {
			d.Touched = max(d.Touched, now) // the bot could not write while the sidecar was down
		}
		s.enter(d)
	}
	s.mu.Lock()
	defer s.unlock()
	s.makeRoom()
	for _, d := range left {
		d.untried = d.forced
	}
	return s
}

// check returns what is wrong with a draft that was read.
func (d *draft) check() error {
	switch {
	case d.Message.ID == "" && d.CardID == "":
		return errors.New("it names neither a message nor a card")
	case d.Message.ID != "" && d.Message.ChatID == "":
		return errors.New("it names no chat")
	case d.Card == nil && d.CardID != "":
		return errors.New("it holds no card")
	}
	return nil
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
	if d.Message.ID != "" {
		s.byMessage[d.Message.ID] = d
	}
	if d.CardID != "" {
		s.byCard[d.CardID] = d
	}
}

// add keeps a new draft, on disk where there is one. A draft of the same
// message or card stays as it is.
func (s *drafts) add(d *draft) {
	s.mu.Lock()
	defer s.unlock()
	if s.byMessage[d.Message.ID] != nil || s.byCard[d.CardID] != nil {
		return
	}
	d.file = safefile.Name(d.key())
	s.enter(d)
	s.save(d)
	s.makeRoom()
	s.poke()
}

// makeRoom is called with mu held when drafts came, grew or could not be published. While there are too many, or they
// are too large together, the oldest are published as they are; while too many of those cannot be published, the oldest
// are dropped. Those that an earlier run left and that were not tried yet do not count there, so that none is dropped
// before it was tried, except beyond twice these bounds: an agent that is killed again and again before it publishes
// any keeps no more than that.
func (s *drafts) makeRoom() {
	if len(s.all) <= maxDrafts && s.bytes <= maxBytes {
		return
	}
	s.trim(maxDrafts, maxBytes, func(d *draft) bool { return !d.forced }, func(d *draft) { d.forced = true })
	s.trim(2*(maxDrafts+maxStuck), 2*(maxBytes+stuckBytes), func(*draft) bool { return true }, s.lose)
	s.trim(maxDrafts+maxStuck, maxBytes+stuckBytes, func(d *draft) bool { return !d.untried }, s.lose)
}

// trim calls end with the oldest of the drafts that count, until at most a number of them, and of bytes, is left. Those
// that were published, and wait for what the bot may write next, are removed first.
func (s *drafts) trim(most, mostBytes int, counts func(*draft) bool, end func(*draft)) {
	var counted []*draft
	bytes := 0
	for d := range s.all {
		if counts(d) {
			counted, bytes = append(counted, d), bytes+d.bytes
		}
	}
	if len(counted) > most || bytes > mostBytes {
		slices.SortFunc(counted, func(a, b *draft) int {
			if kept := a.Wait == waitMore; kept == (b.Wait == waitMore) {
				return byOrder(a, b)
			} else if kept {
				return -1
			}
			return 1
		})
	}
	for len(counted) > most || bytes > mostBytes {
		d := counted[0]
		counted, bytes = counted[1:], bytes-d.bytes
		if d.Wait == waitMore {
			s.remove(d)
		} else {
			end(d)
		}
	}
}

// lose drops d, for which there is no room. It is called with mu held.
func (s *drafts) lose(d *draft) {
	s.count(countedDraftLost)
	s.log.Error("too many drafts cannot be published; the oldest is dropped", "message_id", d.Message.ID,
		"chat", d.Message.ChatID)
	s.remove(d)
}

// onMessage changes the draft of a message; false when there is none.
func (s *drafts) onMessage(id relay.MessageID, change func(*draft)) bool {
	return s.change(func() *draft { return s.byMessage[id] }, change)
}

// onCard changes the draft of a CardKit card; false when there is none.
func (s *drafts) onCard(card string, change func(*draft)) bool {
	return s.change(func() *draft { return s.byCard[card] }, change)
}

func (s *drafts) change(find func() *draft, change func(*draft)) bool {
	s.mu.Lock()
	defer s.unlock()
	d := find()
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
func (s *drafts) release(which func(*feishu.Message) bool) {
	s.mu.Lock()
	defer s.unlock()
	for d := range s.all {
		if (d.Wait == waitEdit || d.Wait == waitSettle) && d.CardID == "" && d.ready() && which(&d.Message) {
			d.Wait = waitNone
			s.save(d)
			s.poke()
		}
	}
}

// retry has the drafts of a chat tried again at once; reset: as if none had failed. It does not wait for the disk.
// Where too many chats are, the drafts wait for their time.
func (s *drafts) retry(chat relay.ChatID, reset bool) {
	s.nowMu.Lock()
	if len(s.now) < maxDrafts {
		s.now[chat] = s.now[chat] || reset
	}
	s.nowMu.Unlock()
	s.poke()
}

// retried does what retry was asked for. It is called with mu held.
func (s *drafts) retried() {
	s.nowMu.Lock()
	chats := s.now
	s.now = map[relay.ChatID]bool{}
	s.nowMu.Unlock()
	for d := range s.all {
		reset, now := chats[d.Message.ChatID]
		if now {
			d.retryAt = time.Time{}
		}
		if reset {
			d.tries = 0
		}
	}
}

// drop forgets the draft of a message and reports whether it would have been
// published.
func (s *drafts) drop(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.unlock()
	d := s.byMessage[id]
	if d == nil {
		return false
	}
	s.remove(d)
	s.poke() // what waited behind it may go out
	return d.Published == ""
}

// forget removes d, which was published or is dropped.
func (s *drafts) forget(d *draft) {
	s.mu.Lock()
	defer s.unlock()
	s.remove(d)
}

// published records that d was published with a text, as of its change at touched, and keeps it if the bot may change
// it later.
func (s *drafts) published(d *draft, text string, touched relay.Millis) {
	s.mu.Lock()
	defer s.unlock()
	if _, there := s.all[d]; !there {
		return // it was recalled meanwhile
	}
	if !d.mayChange() {
		s.remove(d)
		return
	}
	d.Published, d.tries, d.forced, d.untried = text, 0, false, false
	if d.Touched == touched {
		d.Wait = waitMore
	}
	s.trim(maxPublished, maxBytes, func(d *draft) bool { return d.Wait == waitMore }, s.remove)
	if _, there := s.all[d]; there {
		s.save(d)
	}
}

// failed records that d could not be published, and returns when to try again.
func (s *drafts) failed(d *draft) time.Duration {
	s.mu.Lock()
	defer s.unlock()
	wait := backoff(d.tries)
	d.tries++
	d.retryAt, d.forced, d.untried = time.Now().Add(wait), false, false
	s.makeRoom() // which may force it again
	return wait
}

func byOrder(a, b *draft) int { return cmp.Compare(a.order, b.order) }

// remove takes d out, unless it was before. It is called with mu held.
func (s *drafts) remove(d *draft) {
	if _, there := s.all[d]; !there {
		return
	}
	delete(s.all, d)
	s.bytes -= d.bytes
	if s.byMessage[d.Message.ID] == d {
		delete(s.byMessage, d.Message.ID)
	}
	if s.byCard[d.CardID] == d {
		delete(s.byCard, d.CardID)
	}
	s.files.Remove(d.file)
}

// save writes d; mu is held. Where the disk refuses, d stays in memory and is
// written later.
func (s *drafts) save(d *draft) {
	if !s.disk {
		return
	}
	err := s.files.Save(d.file, *d)
	d.saved = err == nil
	if err == nil {
		if s.warned {
			s.log.Info("drafts can be written to disk again")
		}
		s.warned = false
		return
	}
	s.count(countedDraftUnsaved)
	if !s.warned {
		s.warned = true
		s.log.Error("drafts cannot be written and are kept in memory", "err", err)
	}
}

// saveRest writes what the disk refused before, until it refuses again.
func (s *drafts) saveRest() {
	s.mu.Lock()
	defer s.unlock()
	for d := range s.all {
		if s.disk && !d.saved {
			if s.save(d); !d.saved {
				return
			}
		}
	}
}

// sizes are how many drafts wait to be published, and how many of them are not on disk, as of the last change.
func (s *drafts) sizes() (n, unsaved int) { return int(s.waiting.Load()), int(s.unsaved.Load()) }

// unlock ends a change.
func (s *drafts) unlock() {
	n, unsaved := 0, 0
	for d := range s.all {
		if d.Wait == waitMore {
			continue
		}
		n++
		if !d.saved {
			unsaved++
		}
	}
	s.waiting.Store(int64(n))
	s.unsaved.Store(int64(unsaved))
	s.mu.Unlock()
}

// poke wakes Run, which looks at all of them again.
func (s *drafts) poke() { wait.Wake(s.wake) }

// holds reports whether a message waits as a draft.
func (s *drafts) holds(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byMessage[id] != nil
}

const (
	// lookAgain is how often the drafts are looked at when nothing happens.
	lookAgain = time.Minute
	// unsavedWait is how often the disk is tried again for drafts it refused.
	unsavedWait = 5 * time.Second
	// lastWait bounds the last pass when the gateway stops.
	lastWait = 5 * time.Second
)

// Run publishes drafts as they become final, until ctx is done. A last pass then
// publishes what is final by then, and what would be lost since no disk holds
// it; the rest waits on disk for the next run.
func (g *Gateway) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
			defer cancel()
			g.settle(last, true)
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
	now := time.Now()
	look := func(d *draft, held time.Time) time.Time { return g.look(d, held, now, last) }
	for _, d := range g.drafts.due(now, look, &next) {
		if ctx.Err() != nil {
			return next
		}
		again := g.finish(ctx, d)
		next = min(next, again)
	}
	if _, unsaved := g.drafts.sizes(); unsaved > 0 && g.opts.Root != nil {
		next = min(next, unsavedWait)
	}
	return next
}

// look returns when d is to be published or dropped; held is when the draft before it in its conversation is published.
func (g *Gateway) look(d *draft, held, now time.Time, last bool) time.Time {
	if d.Touched.Time().After(now) {
		d.Touched = relay.MillisOf(now) // the clock was put back
	}
	expires := d.expires(&g.opts)
	switch {
	case last && !d.saved && d.ready():
		d.forced = true
		return now
	case d.forced && d.retryAt.After(now):
		return d.retryAt
	case d.forced:
		return now
	case d.Published == "" && !d.ready():
		return expires
	}
	at := d.due(&g.opts)
	if held := d.Touched.Time().Add(typingHold); d.Wait == waitEdit && at.Before(held) && g.types(&d.Message) {
		at = held
	}
	if longest := d.Created.Time().Add(maxHeld); held.After(longest) {
		held = longest
	}
	for _, other := range []time.Time{d.retryAt, held} {
		if at.Before(other) {
			at = other
		}
	}
	return at
}

// due returns the drafts that are due according to look, oldest first, and shortens next to the time of the others.
func (s *drafts) due(now time.Time, look func(d *draft, held time.Time) time.Time, next *time.Duration) []*draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retried()
	held := map[conversation]time.Time{}
	var due []*draft
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		at := look(d, held[d.conversation()])
		if d.goesOutSoon() {
			held[d.conversation()] = at
		}
		if wait := at.Sub(now); wait > 0 {
			*next = min(*next, wait)
		} else {
			due = append(due, d)
		}
	}
	return due
}

// ahead reports whether a draft of d's conversation is about to be published.
func (s *drafts) ahead(d *draft) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.all {
		if other.goesOutSoon() && other.conversation() == d.conversation() {
			return true
		}
	}
	return false
}

var errPanicked = errors.New("recording it panicked")

var errUnknownChat = errors.New("it is not known whether the chat is a group")

// finish publishes d, or drops it, and returns when to try again.
func (g *Gateway) finish(ctx context.Context, d *draft) time.Duration {
	g.drafts.mu.Lock()
	out, ready, forced := d.finished(), d.ready(), d.forced
	text, touched := d.doc().Sum(), d.Touched
	if d.Published != "" && d.Wait != waitMore && (!ready || text == d.Published) {
		d.Wait = waitMore // the change is undone, or none of the text
		g.drafts.save(d)
		g.drafts.unlock()
		return lookAgain
	}
	over := d.Wait == waitMore
	expired := !time.Now().Before(d.expires(&g.opts))
	g.drafts.mu.Unlock()

	var err error
	switch {
	case over:
		g.drafts.forget(d)
		return lookAgain
	case !ready:
		g.dropped(d, countedDraftExpired, "it never got a text")
		return lookAgain
	case g.kind(out.ChatID) == feishu.ChatP2P:
		why := ""
		if peerchat.IsID(out.ChatID) {
			why = "it is for an agent, and MAILBOX_GATEWAY is off: it is sent when that is on again"
		}
		g.dropped(d, countedDraftPrivate, why)
		return lookAgain
	case g.kind(out.ChatID) != feishu.ChatGroup:
		g.askChat(out.ChatID)
		err = errUnknownChat
	case !forced && g.mustAsk(&out):
		return g.nameAll(d, &out)
	default:
		err = g.publish(ctx, out)
	}
	if err == nil {
		g.count(countedDraftPublished)
		g.drafts.published(d, text, touched)
		return lookAgain
	}
	if expired || forced && errors.Is(err, errUnknownChat) {
		g.dropped(d, countedDraftExpired, err.Error())
		return lookAgain
	}
	return g.drafts.failed(d)
}

// dropped drops d; why, where it is not empty, is logged with it.
func (g *Gateway) dropped(d *draft, event feishu.Counted, why string) {
	g.count(event)
	g.drafts.forget(d)
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
	g.ask("chat", string(id), func(ctx context.Context) {
		if kind := g.opts.Book.Chat(id).Kind; kind == feishu.ChatGroup || kind == feishu.ChatP2P {
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
		chat.ID, chat.Asked = id, time.Now()
		g.opts.Book.SetChat(chat)
	}, func() {
		if kind := g.opts.Book.Chat(id).Kind; kind == feishu.ChatGroup || kind == feishu.ChatP2P {
			g.drafts.retry(id, true)
		}
	})
}
