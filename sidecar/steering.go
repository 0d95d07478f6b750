package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/httpapi"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// steering handles what people in a group see of the sidecars and change: commands, settings,
// notices, and who gets a message.
type steering struct {
	*base
	chats    *chats
	records  *records
	app      *app
	watch    *watch
	receive  *receiver
	deliver  *deliverer
	lane     *lane
	presence *presence
	known    *lru.Cache[string, struct{}] // ids of marks that were processed
	acts     acts
	ones     *ones
	notices  *lru.Cache[relay.MessageID, struct{}] // messages that sidecars sent in Feishu
	held     *held
	admins   *lru.Cache[relay.ChatID, admins] // who owns and manages a group
	patching sync.Mutex                       // held while a change over the API is made
	look     chan struct{}                    // of capacity 1: wakes audit
	running  context.Context                  // of Sidecar.Run, which sets it before anything is served
	stages   relay.Pipeline[*arrival]         // the stages of a released message
	began    time.Time                        // when this process began
	joined   *lru.Cache[string, time.Time]    // when this process first said that the bot is in a group, by chatKey
	caughtUp chan struct{}                    // closed once all stored marks are processed
}

const (
	// maxKnownMarks is above the marks that fit into the lane's two files, about 65,000 of the
	// shortest: each look of audit reads them all in order, and where fewer were known each would be
	// taken in again. One is some 200 bytes in memory.
	maxKnownMarks = 200_000
	// marksAgain is how old a mark may be that is shared again where Redis lost it.
	marksAgain = 24 * time.Hour
	// auditEvery is how often it is looked whether the queue still has what the records say.
	auditEvery = 10 * time.Minute
	// auditPause is the least time between two looks.
	auditPause = time.Second
	// othersWait is how long the sidecars of a group have to say that they are there.
	othersWait = 500 * time.Millisecond
	// earlierWait is how long an event waits until the marks of before are taken in: it keeps the
	// connection's other events waiting, and Feishu's acknowledgement.
	earlierWait = 200 * time.Millisecond
	// maxMarkText is the most bytes of what a mark says: each sidecar keeps it, and reads it again.
	maxMarkText = 4 << 10
	// maxEditText is the most bytes of the text of an edited message: as JSON it fits into a mark.
	maxEditText = 100 << 10
	// signatureRoom is what a signature adds to a line at most: no other sidecar reads a line above
	// steer.MaxMark.
	signatureRoom = 256
	// clockAhead is how far in the future a time may be: clocks differ.
	clockAhead = 5 * time.Second
)

// MarksFolder is where, in TRANSCRIPT_DIR, the marks stand that people see.
const MarksFolder = "marks"

func openSteering(b *base, c *chats, rs *records, a *app, ls *lanes, w *watch, r *receiver, d *deliverer,
	p *presence) (_ *steering, err error) {
	s := &steering{base: b, chats: c, records: rs, app: a, watch: w, receive: r, deliver: d, lane: &ls.marks, presence: p,
		began: time.Now(), caughtUp: make(chan struct{}), look: make(chan struct{}, 1)}
	s.acts = acts{steering: s, wake: make(chan struct{}, 1), wanted: map[string]*wanted{}}
	s.acts.stops, _ = lru.New[string, steer.Mark](maxChats)
	s.acts.stoppedAt, _ = lru.New[string, []relay.AgentName](maxChats)
	s.acts.spent, _ = lru.New[string, steer.Mark](maxChats)
	s.ones = newOnes(s.cfg.Agent)
	s.joined, _ = lru.New[string, time.Time](maxChats)
	s.notices, _ = lru.New[relay.MessageID, struct{}](maxKnownMarks)
	s.admins, _ = lru.New[relay.ChatID, admins](maxChats)
	s.known, _ = lru.New[string, struct{}](maxKnownMarks) // fails only for a size below 1
	s.held, err = openHeld(b)
	return s, err
}

// markedAt is when a mark in a line was made.
func markedAt(line []byte) (relay.Millis, error) {
	m, err := steer.DecodeMark(line)
	return m.TS, err
}

// run reads marks, does what is to be done once, and says in which groups the bot is, until
// ctx is done.
func (s *steering) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { s.acts.run(ctx) })
	parts.Go(func() { s.audit(ctx) })
	f := &following{steering: s}
	return s.lane.queue.Follow(ctx, f.read, func(bool) {
		f.live = true
		s.restore()
		if !s.live() {
			close(s.caughtUp)
			s.resume()
		}
	})
}

// live reports whether all marks that were kept are taken in.
func (s *steering) live() bool {
	select {
	case <-s.caughtUp:
		return true
	default:
		return false
	}
}

// audit makes sure that the queue has all that the records say, now and then and where another
// sidecar may lack it: Redis may have been emptied, or have dropped old lines.
func (s *steering) audit(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for wait.Sleep(ctx, auditPause) == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.look:
		}
		looking, done := context.WithCancel(ctx)
		f := &following{steering: s}
		err := s.lane.queue.Follow(looking, f.read, func(bool) {
			s.restore()
			done()
		})
		done()
		if err != nil {
			s.problems.set("steer", err)
		}
	}
}

// restore shares again what the queue lacks, and in which groups the bot is.
func (s *steering) restore() {
	for _, lost := range s.records.lost() {
		s.state(lost.Channel, lost.ChatID, lost.Record)
	}
	for _, chat := range s.chats.list() {
		s.announce(chat.Channel, chat.ChatID)
	}
	for _, chat := range s.records.chatsOf() { // the groups file may name other members now
		if !s.chats.in(chat.Channel, chat.ChatID) && s.chats.settled(chat.Channel, chat.ChatID) {
			s.left(chat.Channel, chat.ChatID)
		}
	}
}

// state shares values of a group's record.
func (s *steering) state(channel string, chat relay.ChatID, record steer.Record) {
	for _, part := range record.Parts() {
		s.share(steer.Mark{Kind: steer.State, Channel: channel, ChatID: chat, Record: part})
	}
}

// announce tells the others that the bot is in a group, and what its sidecar can do.
func (s *steering) announce(channel string, chat relay.ChatID) {
	if !s.chats.in(channel, chat) {
		return
	}
	c := &s.cfg.Steer
	self := steer.Member{Agent: s.cfg.Agent, Name: s.app.self().Name, MentionAll: s.cfg.MentionAll,
		CanWrite: s.canWrite(channel), Answer: steer.Mode(c.AnswerMode), Budget: c.Budget}
	record := s.records.state(channel, chat)
	if slices.Contains(record.members, self.Bounded()) {
		return
	}
	if _, known := record.record.Member(s.cfg.Agent); !known {
		s.joined.Add(chatKey(channel, chat), time.Now())
	}
	s.change(channel, chat, steer.Join(self))
}

// awaitOthers waits, in a group that this sidecar has only just heard of, for what the others there
// say of themselves: a command may be the first message that any of them hears in it.
func (s *steering) awaitOthers(channel string, chat relay.ChatID) {
	if at, fresh := s.joined.Get(chatKey(channel, chat)); fresh {
		time.Sleep(time.Until(at.Add(othersWait)))
	}
}

// canWrite reports whether this sidecar can write to Feishu: behind the gateway, once its bot has called it.
func (s *steering) canWrite(channel string) bool {
	return channel == relay.DefaultChannel && (s.cfg.Gateway.Addr != "" || s.app.api.Ready())
}

// left tells the others that the bot is no longer in a group.
func (s *steering) left(channel string, chat relay.ChatID) {
	if _, in := s.records.state(channel, chat).record.Member(s.cfg.Agent); in {
		s.change(channel, chat, steer.Leave(s.cfg.Agent))
	}
}

// change shares what this sidecar says of itself, unless it has said that already.
func (s *steering) change(channel string, chat relay.ChatID, set steer.Set) {
	record, at := s.records.state(channel, chat).record, relay.MillisOf(time.Now())
	if record.Has(set) {
		return
	}
	for key := range set {
		at = max(at, record[key].At+1) // it counts also where the clock was ahead before
	}
	s.state(channel, chat, set.Of(at, string(s.cfg.Agent)))
}

// share is publish for marks that can be lost: a later one says the same.
func (s *steering) share(m steer.Mark) {
	if err := s.publish(m); err != nil {
		s.problems.set("steer", err)
	}
}

// publish writes marks down, so that all sidecars of their groups are sure to get them, and
// takes them in here.
func (s *steering) publish(marks ...steer.Mark) error {
	for i := range marks {
		m := &marks[i]
		most := maxMarkText
		if m.Kind == steer.Edited {
			most = maxEditText
		}
		m.Agent, m.Text = s.cfg.Agent, runes.Cut(m.Text, most)
		if now := relay.MillisOf(time.Now()); m.TS == 0 || m.TS > now {
			m.TS = now
		}
		if len(m.Set) > 0 && everywhere(m) { // over the API: who asks has seen what it replaces, whatever the clocks say
			m.TS = max(m.TS, s.records.state(m.Channel, m.ChatID).record.Newest(m.ID)+1)
		}
		if m.ID == "" {
			m.ID = string(relay.NewID(s.cfg.Agent, m.ChatID, m.TS, randomID()))
		}
	}
	err := s.lane.box.Append(len(marks), func(i int, seq relay.Seq) ([]byte, error) {
		line, err := relay.Marshal(sharedMark{&marks[i], seq})
		if err == nil && len(line) > steer.MaxMark-signatureRoom {
			err = fmt.Errorf("%w: %d bytes, at most %d", steer.ErrMark, len(line), steer.MaxMark-signatureRoom)
		}
		return line, err
	})
	if err == nil {
		err = s.lane.box.Await()
	}
	if err != nil {
		return fmt.Errorf("share what was said to the sidecars: %w", err)
	}
	if len(marks) > 0 && marks[0].Kind != steer.State {
		s.trace("marked")
	}
	for i := range marks {
		s.take(&marks[i], false)
	}
	return nil
}

// sharedMark is a mark as it is shared.
type sharedMark struct {
	*steer.Mark
	Seq relay.Seq `json:"seq"`
}

// following is one reading of the queue from its beginning.
type following struct {
	*steering
	live   bool         // what was kept has been read
	newest relay.Millis // of the marks read so far
}

// bound bounds the times of a mark that are in the future, and reports whether there were any:
// to now, or of a mark that was kept to the time of the marks before it, so that it comes to
// the same each time it is read and does not undo what was changed after it.
func (f *following) bound(m *steer.Mark) (bounded bool) {
	now := relay.MillisOf(time.Now())
	limit, to := now+relay.Millis(clockAhead.Milliseconds()), now
	if !f.live {
		to = min(now, f.newest+1)
	}
	at := func(t relay.Millis) relay.Millis {
		if t <= limit {
			return t
		}
		bounded = true
		return to
	}
	m.TS, m.Round, m.Said = at(m.TS), at(m.Round), at(m.Said)
	for key, v := range m.Record {
		v.At = at(v.At)
		m.Record[key] = v
	}
	if !bounded {
		f.newest = max(f.newest, m.TS)
	}
	return bounded
}

// read takes in a line of the queue.
func (f *following) read(line []byte) {
	s := f.steering
	if s.cfg.RelaySecret != "" {
		if err := relay.Verify(line, string(s.cfg.RelaySecret)); err != nil {
			s.problems.set(string(relay.BadSignature), fmt.Errorf("a change of a group's settings: %w", err))
			return
		}
	}
	m, err := steer.DecodeMark(line)
	if err != nil {
		s.problems.set("steer", err)
		return
	}
	bounded := f.bound(&m)
	s.take(&m, true)
	if news := changeOf(&m); bounded && f.live && len(news) > 0 {
		s.state(m.Channel, m.ChatID, news) // so that all sidecars have it at the same time
	}
}

// changeOf is what a mark changes of its group's record.
func changeOf(m *steer.Mark) steer.Record {
	if m.Kind == steer.Command {
		return m.Set.Of(m.TS, m.ID)
	}
	return m.Record
}

// take takes in a mark, once; shared says that the queue has it.
func (s *steering) take(m *steer.Mark, shared bool) {
	if news := changeOf(m); len(news) > 0 {
		changed, err := s.records.merge(m.Channel, m.ChatID, news, shared)
		if err != nil {
			s.log.Warn("a change of a group's settings cannot be stored", keyChat, m.ChatID, keyErr, err)
		}
		if changed {
			s.review(m.Channel, m.ChatID)
		}
		if changed && m.Kind == steer.State {
			s.compare(m.Channel, m.ChatID)
		}
		s.meet(news)
	}
	if again, _ := s.known.ContainsOrAdd(m.ID, struct{}{}); again {
		return
	}
	switch m.Kind { // also of a group that the bot is not known to be in yet
	case steer.State:
		if m.Agent != s.cfg.Agent && s.live() {
			wait.Wake(s.look) // a sidecar that repeats this may lack what the others know
		}
	case steer.Notice:
		s.notices.Add(m.MessageID, struct{}{})
		s.receive.copies.came(string(m.MessageID), m.Agent) // nobody waits for a copy of it
		s.acts.done(m)
	case steer.Command:
		if m.Act == steer.Continue {
			s.chats.continues.Add(conversationOf(m), *m)
		}
	case steer.Recalled: // its text may come later
		s.chats.recalls.note(recalled{m.Channel, m.ChatID, m.Of})
	}
	if !s.chats.in(m.Channel, m.ChatID) {
		return
	}
	switch m.Kind {
	case steer.Wanted:
		s.acts.want(m)
	case steer.Failed:
		s.acts.failed(m)
	case steer.Taken:
		s.ones.heard(m)
	case steer.Notice:
		s.show(m)
	case steer.Command:
		s.show(m)
		if m.Act == steer.Continue {
			s.release(m)
		}
	case steer.Recalled:
		s.recall(m)
	case steer.Edited:
		s.edited(m)
	}
}

// meet learns from what sidecars say of themselves how people name their bots, also those that have
// not spoken yet.
func (s *steering) meet(news steer.Record) {
	for _, m := range news.Members() {
		if m.Agent != s.cfg.Agent {
			s.app.book.LearnBot(feishu.Bot{Agent: m.Agent, Name: m.Name})
		}
	}
}

// compare reports sidecars of a group whose environments differ in what has to be the same.
func (s *steering) compare(channel string, chat relay.ChatID) {
	g := s.records.state(channel, chat)
	differ := func(key, name string, value func(steer.Member) string) {
		var all, values []string
		for _, m := range g.members {
			all = append(all, string(m.Agent)+" "+value(m))
			values = append(values, value(m))
		}
		slices.Sort(values)
		if len(slices.Compact(values)) < 2 || g.sources[key] != steer.FromEnv {
			return
		}
		err := fmt.Errorf("%s differs between the sidecars of a group, and that of the first agent holds: %s; set the same "+
			"everywhere", name, strings.Join(all[:min(len(all), maxCompared)], ", "))
		if again, _ := s.known.ContainsOrAdd("differ/"+chatKey(channel, chat)+err.Error(), struct{}{}); !again {
			s.problems.set("settings", err)
			s.log.Warn("sidecars have different settings", keyChat, chat, keyErr, err)
		}
	}
	differ("answer", "ANSWER_MODE", func(m steer.Member) string { return string(m.Answer) })
	differ("budget", "GROUP_BUDGET", func(m steer.Member) string { return strconv.Itoa(m.Budget) })
}

// maxCompared is how many sidecars are named that differ.
const maxCompared = 20

// show puts a mark where people see it.
func (s *steering) show(m *steer.Mark) {
	e := shownMark(m)
	if _, err := s.chats.record(s.chats.shown.Append, m.Channel, m.ChatID, e); err != nil {
		s.problems.set("steer", err)
	}
	s.chats.blank(m.Channel, m.ChatID, &e)
	if !s.live() {
		return // it is of before
	}
	s.watch.events.Publish(httpapi.Event{Type: httpapi.EventNotice, Channel: m.Channel, ChatID: m.ChatID,
		RelayMsgID: m.MessageID, Role: transcript.RoleNotice, Sender: e.Sender, Content: e.Content, ThreadID: m.ThreadID,
		TS: m.TS, Recalled: e.Recalled, Mark: e.Mark})
}

func shownMark(m *steer.Mark) transcript.Entry {
	mark := &transcript.Mark{Kind: string(m.Kind), Act: string(m.Act), Of: string(m.Of), By: m.By}
	for _, bot := range m.Bots {
		mark.Bots = append(mark.Bots, string(bot))
	}
	if len(m.Set) > 0 {
		mark.Set, _ = json.Marshal(m.Set) // values are JSON
	}
	return transcript.Entry{Role: transcript.RoleNotice, Content: m.Text, Sender: string(m.Agent),
		MessageID: string(m.MessageID), ThreadID: m.ThreadID, TS: int64(m.TS), Mark: mark}
}

// reacted reports whether a reaction of an app is a sidecar's notice.
func (s *steering) reacted(id relay.MessageID, emoji string) bool {
	wait.Closed(s.caughtUp, earlierWait) // it may be of before
	return s.acts.about(id, emoji)
}
