package group

import (
	"fmt"
	"testing"
	"time"

	"feishu-relay/relay"
)

// However much happens and whatever has no result, the collections keep their bounds.
func TestBounds(t *testing.T) {
	s, now := New(), time.UnixMilli(1_767_000_000_000)
	apply := func(e Event) []Effect {
		e.At = now
		if e.Msg != nil {
			e.Names = NamesOf(simNames, e.Msg)
		}
		effects, _ := s.Apply(e)
		return effects
	}
	apply(Event{Kind: Start, Config: &Config{Agent: "a",
		Base:    Settings{Answer: ModeOne, Limit: 3, Threshold: 1, Judge: true},
		AnyChat: true,
		MaxAge:  time.Hour, Window: time.Hour, Commands: []string{"/relay"}, Notice: true}})
	apply(Event{Kind: CaughtUp})
	for n := range 6000 {
		now = now.Add(time.Second / 10)
		id := relay.MessageID(fmt.Sprintf("om_%d", n))
		m := relay.Message{MessageID: id, Content: "@BotA says", TS: relay.MillisOf(now), ThreadID: fmt.Sprint("omt_", n%700),
			SenderAgentName: relay.AgentName("bcd"[n%3 : n%3+1])}
		if n%50 == 0 {
			m.TS -= 900_000 // late
		}
		switch {
		case n%29 == 0:
			m.Content, m.ThreadID = "who knows?", ""
			apply(Event{Kind: Heard, Msg: &m, User: true, MayEdit: true})
		case n%11 == 0:
			m.Content = "/relay continue"
			apply(Event{Kind: Heard, Msg: &m, User: true, MayEdit: true})
		case n%13 == 0:
			apply(Event{Kind: Recalled, ID: relay.MessageID(fmt.Sprintf("om_%d", n/2))})
		case n%17 == 0:
			apply(Event{Kind: Side,
				Records: []*Record{{Kind: KindVerdict, Agent: "b", Of: id + "_later", Verdict: &Verdict{At: m.TS}}}})
		default:
			for _, e := range apply(Event{Kind: Arrived, Msg: &m}) {
				if e.Do == Deliver || e.Do == Append || e.Do == Share {
					apply(Event{Kind: Done, Key: e.Key})
				}
			}
		}
	}
	for _, b := range []struct {
		name    string
		n, most int
	}{
		{"lines", len(s.d.Lines), maxLines}, {"queue", len(s.d.Queue), maxWaiting + 1}, {"held", len(s.d.Held), maxWaiting},
		{"turns", len(s.d.Turns), maxWaiting}, {"stops", len(s.d.Stops), maxTopics},
		{"continues", len(s.d.Continued), maxTopics}, {"early", len(s.d.Early), maxEarly}, {"shown", len(s.d.Shown), maxShown},
		{"gone", len(s.d.Gone), maxGone}, {"known ids", len(s.byID), maxLines},
	} {
		if b.n > b.most {
			t.Errorf("%d %s, at most %d", b.n, b.name, b.most)
		}
		t.Log(b.name, b.n)
	}
}
