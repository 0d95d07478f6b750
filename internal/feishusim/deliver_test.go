package feishusim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestScopesDecideWhatIsHeard is the table of docs/feishu.md 3.3.
func TestScopesDecideWhatIsHeard(t *testing.T) {
	const userPlain, userAt, userAll, botPlain, botAt, private = "user", "user at", "user at all", "bot", "bot at", "private"
	kinds := []string{userPlain, userAt, userAll, botPlain, botAt, private}
	for _, tt := range []struct {
		scope string
		hears []string
	}{
		{"", nil},
		{"im:message", nil},
		{ScopeP2P, []string{private}},
		{"im:message.p2p_msg", []string{private}},
		{ScopeAt, []string{userAt}},
		{"im:message.group_at_msg", []string{userAt}},
		{ScopeAtIncludeBot, []string{userAt, botAt}},
		{ScopeGroup, []string{userPlain, userAt, userAll}},
		{"im:message.group_msg:readonly", []string{userPlain, userAt, userAll}},
		{ScopeGroupAll, []string{userPlain, userAt, userAll, botPlain, botAt}},
		{ScopeGroupBots, []string{botPlain, botAt}},
	} {
		t.Run(tt.scope, func(t *testing.T) {
			s := New(Options{})
			defer s.Close()
			hearer := s.AddApp(App{Name: "Hearer", Scopes: []string{tt.scope}})
			speaker := s.AddApp(App{Name: "Speaker"})
			ann := s.AddUser("Ann")
			lab := s.AddGroup("Lab", hearer.ID, speaker.ID, ann.ID)
			for _, kind := range kinds {
				var id string
				var err error
				switch kind {
				case userPlain:
					id, err = s.Say(lab.ID, ann.ID, "hi")
				case userAt:
					id, err = s.Say(lab.ID, ann.ID, "@Hearer hi")
				case userAll:
					id, err = s.Say(lab.ID, ann.ID, "@all hi")
				case private:
					id, err = s.SayPrivate(hearer.ID, ann.ID, "hi")
				case botPlain, botAt:
					text := "hi"
					if kind == botAt {
						text = `<at user_id="` + s.OpenID(speaker.ID, hearer.ID) + `"></at>`
					}
					s.mu.Lock()
					m, failed := s.create(draft{chat: s.chats[lab.ID], sender: speaker.ID, msgType: "text", content: textOf(text)})
					id, err = m.ID, failed
					s.mu.Unlock()
				}
				if err != nil {
					t.Fatal(err)
				}
				s.mu.Lock()
				heard := slices.ContainsFunc(s.apps[hearer.ID].pending, func(p *pending) bool { return p.message == id })
				s.mu.Unlock()
				if want := slices.Contains(tt.hears, kind); heard != want {
					t.Errorf("%s: heard %v, want %v", kind, heard, want)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range s.apps[speaker.ID].pending {
				if strings.Contains(string(p.body), `"sender_type":"bot"`) {
					t.Error("a bot heard itself")
				}
			}
		})
	}
}

func TestTheScheduleOfRedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		a := s.AddApp(App{Name: "BotA"})
		lab := s.AddGroup("Lab", a.ID, s.AddUser("Ann").ID)
		s.mu.Lock() // a connection that takes everything and acknowledges nothing
		s.apps[a.ID].conns = []*conn{{id: "d", app: s.apps[a.ID], out: make(chan []byte, 100), ready: true}}
		s.mu.Unlock()
		start := time.Now()
		if _, err := s.Say(lab.ID, "Ann", "hi"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Hour)
		var got []time.Duration
		for _, d := range s.Deliveries() {
			got = append(got, d.Time.Sub(start))
			if d.EventID != s.Deliveries()[0].EventID {
				t.Error("another event_id")
			}
		}
		ack := 3 * time.Second
		want := []time.Duration{0, ack + 15*time.Second}
		want = append(want, want[1]+ack+5*time.Minute)
		want = append(want, want[2]+ack+time.Hour)
		want = append(want, want[3]+ack+6*time.Hour)
		if !slices.Equal(got, want) {
			t.Errorf("tries: got %v, want %v", got, want)
		}
		if n := s.Waiting(a.ID); n != 0 {
			t.Errorf("%d events are still tried", n)
		}
		s.mu.Lock()
		s.apps[a.ID].conns = nil // none to close
		s.mu.Unlock()
	})
}

func TestEventsWaitForABotThatIsAway(t *testing.T) {
	o := quick
	o.Redeliver = []time.Duration{time.Hour}
	r := newRoom(t, o, App{Name: "BotA"})
	var ids []string
	for i := range 3 {
		ids = append(ids, r.say(fmt.Sprint("message ", i)))
	}
	a := r.connect(r.apps[0])
	for range ids {
		got := r.next(a)
		if !slices.Contains(ids, *got.Event.Message.MessageId) {
			t.Errorf("got %s, want one of %v", *got.Event.Message.MessageId, ids)
		}
	}
	if err := r.until(r.soon(), func() bool { return len(r.Server.apps[a.app.ID].pending) == 0 }); err != nil {
		t.Fatal(err)
	}
	r.Fault(Fault{Kind: FaultNoAck, App: a.app.ID, Count: 1})
	id := r.say("again")
	r.next(a)
	if _, err := r.WaitDelivery(r.soon(), func(d Delivery) bool { return d.MessageID == id }); err != nil {
		t.Fatal(err)
	}
	r.Fault(Fault{Kind: FaultDrop, App: a.app.ID})
	if got := *r.next(a).Event.Message.MessageId; got != id {
		t.Errorf("after the reconnect: got %s, want %s", got, id)
	}
}

func TestFaultsOfDelivery(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault Fault
		check func(t *testing.T, r *room, a *bot)
	}{
		{"fragments arrive whole", Fault{Kind: FaultFragment, Parts: 3, Delay: 200 * time.Millisecond}, func(t *testing.T, r *room, a *bot) {
			// The SDK takes pieces that come at once on several goroutines, which is a data race (docs/feishu.md 1.5).
			id := r.say(strings.Repeat("long ", 1000))
			if _, err := r.WaitDelivery(r.soon(), func(d Delivery) bool { return d.MessageID == id && d.Acked == 200 }); err != nil {
				t.Error(err)
			}
		}},
		{"twice", Fault{Kind: FaultDuplicate, Count: 1}, func(t *testing.T, r *room, a *bot) {
			r.say("hello")
			if one, two := r.next(a), r.next(a); one.EventV2Base.Header.EventID != two.EventV2Base.Header.EventID {
				t.Error("another event_id")
			}
		}},
		{"late", Fault{Kind: FaultDelay, Delay: 200 * time.Millisecond, Count: 1}, func(t *testing.T, r *room, a *bot) {
			first := r.say("first")
			second := r.say("second")
			r.next(a)
			r.next(a)
			if d := r.Deliveries(); d[0].MessageID != second || d[1].MessageID != first {
				t.Errorf("got %v, want the late one last", d)
			}
		}},
		{"lost at first", Fault{Kind: FaultLose, Count: 1}, func(t *testing.T, r *room, a *bot) {
			id := r.say("hello")
			if got := *r.next(a).Event.Message.MessageId; got != id || r.Deliveries()[0].Attempt != 2 {
				t.Errorf("got %s, %v", got, r.Deliveries())
			}
		}},
		{"not acknowledged", Fault{Kind: FaultNoAck, Count: 1}, func(t *testing.T, r *room, a *bot) {
			id := r.say("hello")
			r.next(a)
			if got := *r.next(a).Event.Message.MessageId; got != id {
				t.Errorf("got %s, want it again", got)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := quick
			o.AckTimeout = 300 * time.Millisecond
			r := newRoom(t, o, App{Name: "BotA"})
			a := r.connect(r.apps[0])
			r.Fault(tt.fault)
			tt.check(t, r, a)
		})
	}
}

// An answer that is late comes after the event of what was sent.
func TestAnAnswerIsLate(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB", Scopes: append(DefaultScopes(), ScopeGroupAll)})
	b := r.connect(r.apps[1])
	r.Fault(Fault{Kind: FaultAnswer, Route: "POST /open-apis/im/v1/messages", Applied: true, Delay: 30 * time.Millisecond})
	first := r.mustSend(r.client(r.apps[0]), "text", textOf("early"))
	if !slices.ContainsFunc(r.Deliveries(), func(d Delivery) bool { return d.MessageID == first }) {
		t.Error("the answer came before the event")
	}
	if got := *r.next(b).Event.Message.MessageId; got != first {
		t.Errorf("got %s, want %s", got, first)
	}
}
