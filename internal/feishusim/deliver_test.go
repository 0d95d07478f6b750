package feishusim

import (
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
