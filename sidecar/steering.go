package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// steering is what people in a group see of the sidecars, and change: commands, the settings
// that follow from them, notices, and who a message is for.
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
	shown    *transcript.Store                         // marks that people see, beside the transcripts
	known    *lru.Cache[string, struct{}]              // marks taken in
	recalled *lru.Cache[relay.MessageID, relay.Millis] // messages whose text is gone
	acts     acts
	ones     *ones
	notices  *lru.Cache[relay.MessageID, struct{}] // messages of the sidecars' own in Feishu
	held     *held
	admins   *lru.Cache[relay.ChatID, admins] // who owns and manages a group
	patching sync.Mutex                       // held while a change over the API is made
	running  context.Context                  // ends with run
	stages   relay.Pipeline[*arrival]         // of a message that is released
	caughtUp chan struct{}                    // closed once all marks that were kept are taken in
}

const (
	maxKnownMarks = 50_000
	maxRecalled   = 50_000
	// marksAgain is how old a mark may be that is shared again where Redis lost it.
	marksAgain = 24 * time.Hour
	// auditEvery is how often it is looked whether the queue still has what the records say.
	auditEvery = 10 * time.Minute
)

// MarksFolder is where, in TRANSCRIPT_DIR, the marks stand that people see.
const MarksFolder = "marks"

func openSteering(b *base, c *chats, rs *records, a *app, ls *lanes, w *watch, r *receiver, d *deliverer,
	p *presence) (_ *steering, err error) {
	s := &steering{base: b, chats: c, records: rs, app: a, watch: w, receive: r, deliver: d, lane: &ls.marks, presence: p,
		caughtUp: make(chan struct{})}
	s.acts = acts{steering: s, wake: make(chan struct{}, 1), wanted: map[string]*wanted{}}
	s.acts.stops, _ = lru.New[string, steer.Mark](maxChats)
	s.ones = newOnes()
	s.notices, _ = lru.New[relay.MessageID, struct{}](maxKnownMarks)
	s.admins, _ = lru.New[relay.ChatID, admins](maxChats)
	s.known, _ = lru.New[string, struct{}](maxKnownMarks) // fails only for a size below 1
	s.recalled, _ = lru.New[relay.MessageID, relay.Millis](maxRecalled)
	s.shown, err = transcript.Open(filepath.Join(b.cfg.TranscriptDir, MarksFolder), &transcript.Options{Logger: b.log})
	if err != nil {
		return nil, err
	}
	b.onClose(s.shown.Close)
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
	s.running = ctx
	go s.acts.run(ctx)
	go s.audit(ctx)
	return s.lane.queue.Follow(ctx, s.read, func(bool) {
		s.restore()
		select {
		case <-s.caughtUp:
		default:
			close(s.caughtUp)
			s.resume(ctx)
		}
	})
}

// audit makes sure now and then that the queue has all that the records say: Redis may have
// been emptied, or have dropped old lines.
func (s *steering) audit(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		looking, done := context.WithCancel(ctx)
		err := s.lane.queue.Follow(looking, s.read, func(bool) {
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
		s.share(steer.Mark{Kind: steer.State, Channel: lost.Channel, ChatID: lost.ChatID, Record: lost.Record})
	}
	for _, chat := range s.chats.list() {
		s.announce(chat.Channel, chat.ChatID)
	}
}

// announce tells the others that the bot is in a group, and what its sidecar can do.
func (s *steering) announce(channel string, chat relay.ChatID) {
	if !s.chats.in(channel, chat) {
		return
	}
	c := &s.cfg.Steer
	self := steer.Member{Agent: s.cfg.Agent, Name: s.app.self().Name, MentionAll: s.cfg.MentionAll,
		CanWrite: channel == relay.DefaultChannel && s.app.api.Ready(), Answer: steer.Mode(c.AnswerMode), Budget: c.Budget}
	if slices.Contains(s.records.state(channel, chat).members, self.Bounded()) {
		return
	}
	s.change(channel, chat, steer.Join(self))
}

// left tells the others that the bot is no longer in a group.
func (s *steering) left(channel string, chat relay.ChatID) {
	if _, in := s.records.state(channel, chat).record.Member(s.cfg.Agent); in {
		s.change(channel, chat, steer.Leave(s.cfg.Agent))
	}
}

// change shares a change of this sidecar's own.
func (s *steering) change(channel string, chat relay.ChatID, set steer.Set) {
	s.share(steer.Mark{Kind: steer.State, Channel: channel, ChatID: chat,
		Record: set.Of(relay.MillisOf(time.Now()), string(s.cfg.Agent))})
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
		m.Agent = s.cfg.Agent
		if m.TS == 0 {
			m.TS = relay.MillisOf(time.Now())
		}
		if m.ID == "" {
			m.ID = string(relay.NewID(s.cfg.Agent, m.ChatID, m.TS, randomID()))
		}
	}
	err := s.lane.box.Append(len(marks), func(i int, seq relay.Seq) ([]byte, error) {
		return json.Marshal(sharedMark{&marks[i], seq})
	})
	if err == nil {
		err = s.lane.box.Await()
	}
	if err != nil {
		return fmt.Errorf("share what was said to the sidecars: %w", err)
	}
	s.trace("marked")
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

// read takes in a line of the queue.
func (s *steering) read(line []byte) {
	if s.cfg.RelaySecret != "" {
		if err := relay.Verify(line, string(s.cfg.RelaySecret)); err != nil {
			s.problems.set(stageSignature, fmt.Errorf("a change of a group's settings: %w", err))
			return
		}
	}
	m, err := steer.DecodeMark(line)
	if err != nil {
		s.problems.set("steer", err)
		return
	}
	s.take(&m, true)
}

// take takes in a mark, once; shared says that the queue has it.
func (s *steering) take(m *steer.Mark, shared bool) {
	news := m.Record
	if m.Kind == steer.Command {
		news = m.Set.Of(m.TS, m.ID)
	}
	if len(news) > 0 {
		if _, err := s.records.merge(m.Channel, m.ChatID, news, shared); err != nil {
			s.log.Warn("a change of a group's settings is not on disk here", keyChat, m.ChatID, keyErr, err)
		}
	}
	if again, _ := s.known.ContainsOrAdd(m.ID, struct{}{}); again || !s.chats.in(m.Channel, m.ChatID) {
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
		s.notices.Add(m.MessageID, struct{}{})
		s.acts.done(m)
		s.show(m)
	case steer.Command:
		s.show(m)
		if m.Act == steer.Continue {
			s.release(m)
		}
	case steer.Recalled:
		s.recall(m)
	}
}

// show puts a mark where people see it.
func (s *steering) show(m *steer.Mark) {
	e := shownMark(m)
	if _, err := s.shown.Append(m.Channel, string(m.ChatID), e); err != nil {
		s.problems.set("steer", err)
	}
	select {
	case <-s.caughtUp:
	default:
		return // it is of before
	}
	s.watch.events.Publish(httpapi.Event{Type: httpapi.EventNotice, Channel: m.Channel, ChatID: m.ChatID,
		RelayMsgID: m.MessageID, Role: transcript.RoleNotice, Sender: e.Sender, Content: m.Text, ThreadID: m.ThreadID,
		TS: m.TS, Mark: e.Mark})
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

// recall forgets the text of a message.
func (s *steering) recall(m *steer.Mark) {
	s.recalled.Add(m.Of, m.TS)
	s.held.forget(string(m.Of))
}

// wasRecalled tells the others that a message was recalled; chat is "" where that is not known.
func (s *steering) wasRecalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	if chat == "" || s.recalled.Contains(id) {
		return
	}
	s.share(steer.Mark{ID: "recalled/" + string(id), Kind: steer.Recalled, Channel: relay.DefaultChannel, ChatID: chat, Of: id,
		TS: at})
}

// reacted reports whether a reaction of an app is a sidecar's notice.
func (s *steering) reacted(id relay.MessageID, emoji string) bool {
	return emoji == s.cfg.Steer.StopEmoji && s.acts.about(id)
}
