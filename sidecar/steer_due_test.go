package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/delivery"
	"feishu-relay/mailbox"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// stopOf is a wanted notice that a round in oc_own stopped at a bot.
func stopOf(once string, bot relay.AgentName, round relay.Millis) *steer.Mark {
	return &steer.Mark{ID: once + "/" + string(bot), Kind: steer.Wanted, Act: steer.Stop, Once: once, Agent: bot, Channel: "feishu",
		ChatID: "oc_own", Of: "om_1", Bots: []relay.AgentName{bot}, Reason: relay.MaxDepth, Round: round,
		TS: relay.MillisOf(time.Now())}
}

// A notice is about all bots at which its round stopped, whether they say so before it is shown,
// meanwhile or afterwards; and it counts once it is wanted, as people may see it before that is known.
func TestLastStop(t *testing.T) {
	t.Parallel()
	a := &shownSidecar(t, policy.Limits{MaxDepth: 3}).steer.acts
	want := func(step string, round relay.Millis, bots ...relay.AgentName) {
		t.Helper()
		last, ok := a.lastStop("feishu", "oc_own", "")
		if !ok || last.Round != round || !slices.Equal(last.Bots, bots) {
			t.Errorf("%s: got %t, round %d, bots %q, want round %d, bots %q", step, ok, last.Round, last.Bots, round, bots)
		}
	}
	notice := stopOf("one", "agent_b", 1)
	a.want(notice)
	want("it is wanted", 1, "agent_b")
	if _, ok := a.lastStop("feishu", "oc_own", "omt_1"); ok {
		t.Error("another topic has it")
	}
	a.want(stopOf("one", "agent_c", 1)) // while agent_b is showing it
	a.done(notice)
	want("it was shown", 1, "agent_b", "agent_c")
	a.want(stopOf("one", "agent_d", 1))
	want("a bot was late", 1, "agent_b", "agent_c", "agent_d")
	if len(a.wanted) != 0 {
		t.Errorf("%d acts are to be shown, want none: the late bot's was", len(a.wanted))
	}
	if newest, _ := a.newestStop("feishu", "oc_own"); len(newest.Bots) != 3 {
		t.Errorf("the newest stop is at %q, want three bots", newest.Bots)
	}
	a.want(stopOf("two", "agent_b", 2))
	want("the next round is wanted", 2, "agent_b")
}

// registry is one whose cards are read by a function.
type registry struct {
	mailbox.Store
	cards func() []mailbox.Card
}

func (r registry) Cards(context.Context) ([]mailbox.Card, error) { return r.cards(), nil }

// Marks and events go on while the registry is asked whose turn it is to show a notice.
func TestActsWhileTheRegistryIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shownSidecar(t, policy.Limits{MaxDepth: 3}).steer
		now := time.Now()
		members := steer.Join(steer.Member{Agent: "agent_b"}).Of(relay.MillisOf(now), "agent_b")
		if _, err := s.records.merge("feishu", "oc_own", members, false); err != nil {
			t.Fatal(err)
		}
		asked, free := 0, 0
		s.presence.reading = t.Context()
		s.presence.store = registry{cards: func() []mailbox.Card {
			asked++
			if s.acts.mu.TryLock() {
				free++
				s.acts.mu.Unlock()
			}
			return nil
		}}
		s.acts.want(stopOf("one", "agent_b", 1))
		due, _ := s.acts.due(now.Add(actGather))
		var shown []string
		for _, w := range due {
			shown = append(shown, w.mark.Once)
		}
		if got := strings.Join(shown, " "); got != "one" || asked != 1 || free != 1 {
			t.Errorf("got %q due, the registry asked %d times, %d of them free, want one, 1, 1", got, asked, free)
		}
	})
}

// What holds in a group is told while a change of it is being written.
func TestStateWhileTheDiskIsSlow(t *testing.T) {
	t.Parallel()
	r := shownSidecar(t, policy.Limits{MaxDepth: 3}).steer.records
	r.writing.Lock() // as long as the disk takes
	merged := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, err := r.merge("feishu", "oc_own", steer.Join(steer.Member{Agent: "agent_c"}).Of(1, "agent_c"), false)
		merged <- err
	}()
	<-begun
	for range 1000 {
		if n := len(r.state("feishu", "oc_own").members); n != 0 {
			t.Errorf("%d members, want 0", n)
		}
	}
	r.writing.Unlock()
	if err := <-merged; err != nil {
		t.Fatal(err)
	}
	if n := len(r.state("feishu", "oc_own").members); n != 1 {
		t.Errorf("%d members once it is written, want 1", n)
	}
}

// A pause and a mute that people gave a time end by it.
func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shownSidecar(t, policy.Limits{MaxDepth: 3}).steer
		s.cfg.Steer.Commands, s.cfg.Steer.By = []string{"/relay", "/中继"}, "members"
		members := steer.Join(steer.Member{Agent: "agent_b"}).Of(relay.MillisOf(time.Now()), "agent_b")
		if _, err := s.records.merge("feishu", "oc_own", members, false); err != nil {
			t.Fatal(err)
		}
		types := func(text string) {
			t.Helper()
			is, err := s.command(&relay.Message{Channel: "feishu", ChatID: "oc_own", MessageID: relay.MessageID("om_" + text), MsgType: "text",
				Role: relay.RoleUser, SenderName: "Tom", Content: text, TS: relay.MillisOf(time.Now())}, "")
			if !is || err != nil {
				t.Fatalf("%q: %t, %v", text, is, err)
			}
		}
		want := func(why relay.Reason, person bool) {
			t.Helper()
			now := time.Now()
			m := &relay.Message{Channel: "feishu", ChatID: "oc_own", MessageID: "om_b", SenderAgentName: "agent_a", TS: relay.MillisOf(now)}
			got, err := s.steered(m, now)
			if got != why || err != nil {
				t.Errorf("a bot's message: %q, %v, want %q", got, err, why)
			}
			m.Role, m.SenderAgentName, m.SenderName = relay.RoleUser, "", "Tom"
			if got, _ := s.forPerson(m, userEntry(m, now)); (got == relay.Pass) != person {
				t.Errorf("a person's message: %q, want it to pass %t", got, person)
			}
		}
		want(relay.Pass, true)
		types("/relay pause 30m")
		want(relay.Paused, true)
		time.Sleep(30*time.Minute - time.Millisecond)
		want(relay.Paused, true)
		time.Sleep(time.Millisecond)
		want(relay.Pass, true)
		if g := s.group("feishu", "oc_own"); g.Settings.Paused != nil {
			t.Errorf("the group is shown as paused until %v", g.Settings.Paused.Until)
		}
		types("/中继 静音 agent_b 2小时")
		types("/relay pause")
		want(relay.Muted, false)
		time.Sleep(2*time.Hour - time.Millisecond)
		want(relay.Muted, false)
		time.Sleep(time.Millisecond)
		want(relay.Paused, true)
		time.Sleep(30 * 24 * time.Hour) // without a time it holds until somebody ends it
		want(relay.Paused, true)
		types("/relay resume")
		want(relay.Pass, true)
	})
}

// A pause withdraws a bot's message that the bot was not given; a mute and a stop withdraw people's, too, and what the
// bot was given and has not confirmed.
func TestWhatIsWithdrawnAfterItWasGiven(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3}).steer
	sent := time.Now()
	says := func(of steer.Verb) {
		t.Helper()
		now := relay.MillisOf(time.Now())
		set, mistake := steer.Asked{Verb: of, Bots: []relay.AgentName{"agent_b"}}.Changes(s.group("feishu", "oc_own"), now)
		if mistake != nil {
			t.Fatal(mistake)
		}
		if _, err := s.records.merge("feishu", "oc_own", set.Of(now, string(of)), false); err != nil {
			t.Fatal(err)
		}
	}
	want := func(step string, role string, given bool, want relay.Reason) {
		t.Helper()
		m := &delivery.Message{Ref: delivery.Ref{Channel: "feishu", Chat: "oc_own", Sent: sent}}
		m.Source = &relay.Message{Channel: "feishu", ChatID: "oc_own", MessageID: "om_1", Role: role, TS: relay.MillisOf(sent)}
		if got := s.fate(m, given); got != string(want) {
			t.Errorf("%s, role %q, given %t: %q, want %q", step, role, given, got, want)
		}
	}
	says(steer.VerbPause)
	want("pause", "", false, relay.Paused)
	want("pause", "", true, "")
	want("pause", relay.RoleUser, false, "")
	says(steer.VerbStop)
	for _, role := range []string{"", relay.RoleUser} {
		want("stop", role, true, relay.StoppedByPerson)
	}
	says(steer.VerbMute)
	for _, role := range []string{"", relay.RoleUser} {
		want("mute", role, true, relay.Muted)
	}
}

// Two sidecars that do not know of each other's stop yet may name the notice of one round for its limit and for its
// budget: the group is shown one of them, the same at all sidecars.
func TestOneNoticeOfTwoNames(t *testing.T) {
	t.Parallel()
	const hour = "stop/feishu/oc_own/budget/1"
	for _, topic := range []string{"", "omt_1"} { // in a topic the other name sorts first
		for _, first := range []relay.Reason{relay.MaxDepth, relay.Budget} {
			for _, shown := range []bool{false, true} {
				a := &shownSidecar(t, policy.Limits{MaxDepth: 3}).steer.acts
				stops := map[relay.Reason]*steer.Mark{relay.MaxDepth: stopOf("stop/feishu/oc_own/"+topic+"/7", "agent_b", 7),
					relay.Budget: stopOf(hour, "agent_c", 7)}
				second := relay.Budget
				if first == relay.Budget {
					second = relay.MaxDepth
				}
				for why, m := range stops {
					m.Reason, m.ThreadID = why, topic
				}
				want := min(stops[first].Once, stops[second].Once)
				a.want(stops[first])
				if shown {
					a.done(stops[first])
					want = stops[first].Once
				}
				a.want(stops[second])
				last, _ := a.lastStop("feishu", "oc_own", topic)
				slices.Sort(last.Bots)
				if last.Once != want || !slices.Equal(last.Bots, []relay.AgentName{"agent_b", "agent_c"}) ||
					shown == (len(a.wanted) > 0) || len(a.wanted) > 1 {
					t.Errorf("topic %q, %s first, shown %t: %d wanted, the last is %q at %q, want %q",
						topic, first, shown, len(a.wanted), last.Once, last.Bots, want)
				}
				a.done(stops[second]) // one that another sidecar had shown meanwhile
				if len(a.wanted) > 0 {
					t.Errorf("topic %q, %s first, shown %t: it is to be shown again", topic, first, shown)
				}
			}
		}
	}
	a := &shownSidecar(t, policy.Limits{MaxDepth: 3}).steer.acts
	spent := stopOf(hour, "agent_c", 7)
	spent.Reason = relay.Budget
	a.want(spent)
	a.want(stopOf("stop/feishu/oc_own//7", "agent_b", 7))
	if a.spentBefore("feishu", "oc_own", "stop/feishu/oc_own/budget/2", spent.TS) {
		t.Error("the budget was not shown, and counts as that")
	}
	spent.Round++
	a.want(spent)
	if last, _ := a.lastStop("feishu", "oc_own", ""); last.Once != hour {
		t.Errorf("the next round is shown as %q, want %q", last.Once, hour)
	}
}

// The word lets the bots go on while something can be released, whenever the notice was shown.
func TestWhenTheWordCounts(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	s.steer.cfg.Steer.ContinueWindow = time.Minute
	s.chats.saw("feishu", "oc_own", 1)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { _ = s.watch.outcomes.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	now := relay.MillisOf(time.Now())
	for _, bot := range []relay.AgentName{"agent_b", "agent_c"} {
		if _, err := s.records.merge("feishu", "oc_own", steer.Join(steer.Member{Agent: bot}).Of(now, string(bot)), false); err != nil {
			t.Fatal(err)
		}
	}
	const minute = 60_000
	for i, tt := range []struct {
		what    string
		said    relay.Millis // of the first message that stopped
		stopped relay.Millis // when the last one stopped
		topic   string       // that one's
		bots    string       // whom the word names
		gone    bool         // it was recalled
		held    bool         // it is held at agent_b, and no outcome is known
		want    bool
	}{
		{what: "the first is fresh", said: now - minute/2, want: true},
		{what: "the first is too old", said: now - 2*minute},
		{what: "a later one is fresh", said: now - 2*minute, stopped: now - minute/2, want: true},
		{what: "all are too old", said: now - 3*minute, stopped: now - 2*minute},
		{what: "another conversation's", said: now - 2*minute, stopped: now - minute/2, topic: "omt_else"},
		{what: "it is named", said: now - 2*minute, stopped: now - minute/2, bots: "@agent_c ", want: true},
		{what: "another one is named", said: now - 2*minute, stopped: now - minute/2, bots: "@agent_b "},
		{what: "it was recalled", said: now - 2*minute, stopped: now - minute/2, gone: true},
		{what: "it is held here", said: now - 2*minute, stopped: now - minute/2, held: true, want: true},
		{what: "it is held, not named", said: now - 2*minute, stopped: now - minute/2, held: true, bots: "@agent_c "},
		{what: "what is held is too old", said: now - 3*minute, stopped: now - 2*minute, held: true},
		{what: "what is held was recalled", said: now - 2*minute, stopped: now - minute/2, held: true, gone: true},
		{what: "it is held of another topic", said: now - 2*minute, stopped: now - minute/2, held: true, topic: "omt_else"},
	} {
		topic, id := fmt.Sprint("omt_", i), relay.MessageID(fmt.Sprint("om_later_", i))
		notice := stopOf(fmt.Sprint("once ", i), "agent_b", 1)
		notice.ThreadID, notice.Said = topic, tt.said
		s.steer.acts.done(notice)
		if tt.held {
			if err := s.steer.held.note(heldMessage{Key: string(id), Line: []byte("{}"), Channel: "feishu", ChatID: "oc_own",
				ThreadID: cmp.Or(tt.topic, topic), Round: 1, Said: tt.said, At: tt.stopped}); err != nil {
				t.Fatal(err)
			}
		} else if tt.stopped > 0 {
			s.watch.outcomes.Note(outcome.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_own", RelayMsgID: id, Sender: "agent_a",
				ThreadID: cmp.Or(tt.topic, topic), At: tt.stopped, Stopped: relay.MaxDepth})
		}
		if tt.gone {
			s.chats.recalls.note(recalled{"feishu", "oc_own", id})
		}
		said := &relay.Message{Channel: "feishu", ChatID: "oc_own", ThreadID: topic, Content: tt.bots + "继续",
			MessageID: relay.MessageID(fmt.Sprint("om_word_", i)), TS: now, Role: relay.RoleUser}
		if _, is := s.steer.continueOf(said); is != tt.want {
			t.Errorf("%s: the word counts: %t", tt.what, is)
		}
		if !tt.held {
			continue
		}
		asked := steer.Asked{Verb: steer.VerbContinue}
		if bot, ok := strings.CutPrefix(strings.TrimSpace(tt.bots), "@"); ok {
			asked.Bots = []relay.AgentName{relay.AgentName(bot)}
		}
		if refusal := s.steer.cannotContinue(s.steer.group("feishu", "oc_own"), said, asked); (refusal == "") != tt.want {
			t.Errorf("%s: the command is refused with %q", tt.what, refusal)
		}
	}
}

// Only what Feishu calls a user commands, whether the gateway or the connector hears it.
func TestOnlyUsersCommand(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	s.steer.cfg.Steer.Commands = []string{"/relay"}
	s.chats.saw("feishu", "oc_own", 1)
	for kind, want := range map[string]bool{"user": true, "anonymous": false, "unknown": false, "": false} {
		m := feishu.Message{ID: relay.MessageID("om_" + kind), ChatID: "oc_own", ChatType: "group", Type: "text",
			Content: `{"text":"/relay status"}`, CreateTime: relay.MillisOf(time.Now()), Sender: feishu.Sender{Type: kind, OpenID: "ou_x"}}
		if p, err := s.send.heard(t.Context(), m, nil); err != nil || p.Withhold != want {
			t.Errorf("the gateway hears %q: a command: %t, %v", kind, p.Withhold, err)
		}
		m.ID += "_again"
		n := &native{base: s.base, chats: s.chats, app: s.app, send: s.send, steer: s.steer}
		p := &arrival{}
		var err error
		if p.msg, err = n.stored(m, nativePerson); err != nil {
			t.Fatal(err)
		}
		if why, err := n.hearPerson(t.Context(), p); err != nil || (why == relay.Command) != want {
			t.Errorf("the connector hears %q: %s, %v", kind, why, err)
		}
	}
}
