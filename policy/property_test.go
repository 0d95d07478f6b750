package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"feishu-relay/policy"
)

// randomHistory makes a chat of some bots and people, with topics, parents,
// user_ts and repeats, of distinct times; its last entry is a bot's.
func randomHistory(r *rand.Rand) []policy.Entry {
	n := 1 + r.IntN(30)
	topics := []string{"", "", "t1", "t2"}
	var out []policy.Entry
	ts := int64(1_000_000)
	for i := range n {
		ts += 1 + r.Int64N(15_000)
		e := policy.Entry{Role: policy.RoleAssistant, Sender: string(rune('A' + r.IntN(4))),
			MessageID: fmt.Sprintf("m%d", i), ThreadID: topics[r.IntN(len(topics))], TS: ts}
		if r.IntN(6) == 0 && i < n-1 {
			e.Role, e.Sender = policy.RoleUser, "u"
		}
		if r.IntN(2) == 0 {
			e.ParentID = fmt.Sprintf("m%d", r.IntN(n+3))
		}
		if e.ThreadID != "" && r.IntN(3) > 0 {
			e.RootID = fmt.Sprintf("m%d", r.IntN(n+3))
		}
		if r.IntN(4) == 0 {
			e.PartOf = fmt.Sprintf("m%d", r.IntN(n+3))
		}
		if r.IntN(8) == 0 {
			e.UserTS = ts - 5000 + r.Int64N(10_000)
		}
		out = append(out, e)
	}
	return out
}

func randomCount(r *rand.Rand) policy.Count {
	c := policy.Count{Turns: r.IntN(3) == 0}
	if r.IntN(3) == 0 {
		c.IdleReset = time.Duration(1+r.IntN(20)) * time.Second
	}
	return c
}

// eachHistory runs f on many histories; a failure names the seed to repeat it.
func eachHistory(t *testing.T, f func(t *testing.T, r *rand.Rand, h []policy.Entry, c policy.Count)) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 7))
		h, c := randomHistory(r), randomCount(r)
		f(t, r, h, c)
		if t.Failed() {
			t.Fatalf("seed %d, %+v:\n%+v", seed, c, h)
		}
	}
}

// Whatever the bots say after a person, the first direct answer of each has depth 1.
func TestDepthOfTheFirstDirectAnswer(t *testing.T) {
	eachHistory(t, func(t *testing.T, r *rand.Rand, h []policy.Entry, c policy.Count) {
		m := h[len(h)-1]
		h = append(h, policy.Entry{Role: policy.RoleUser, Sender: "u", MessageID: "asked", ThreadID: m.ThreadID, TS: m.TS + 1})
		ts := m.TS + 1
		say := func(sender, id, parent string) policy.Entry {
			ts += 1 + r.Int64N(15_000)
			return policy.Entry{Role: policy.RoleAssistant, Sender: sender, MessageID: id, ParentID: parent, ThreadID: m.ThreadID, TS: ts}
		}
		for i := range r.IntN(20) {
			parent := []string{"", h[r.IntN(len(h)-1)].MessageID, "asked"}[r.IntN(3)]
			sender := string(rune('A' + r.IntN(4)))
			if sender == "A" && parent == "asked" {
				sender = "B"
			}
			h = append(h, say(sender, fmt.Sprintf("late%d", i), parent))
		}
		h = append(h, say("A", "answer", "asked"))
		if got := policy.Depth(h, h[len(h)-1], c); got != 1 {
			t.Errorf("Depth = %d of the first direct answer", got)
		}
	})
}

// However bots choose their parents, what passes after a person's message is bounded: in a
// chat, the first direct answers of n bots and limit-1 other rows of one sender.
func TestDepthBoundsWhatPasses(t *testing.T) {
	eachHistory(t, func(t *testing.T, r *rand.Rand, h []policy.Entry, c policy.Count) {
		c.IdleReset = 0
		person := 0
		for i := range h {
			h[i].ThreadID, h[i].RootID, h[i].UserTS = "", "", 0
			if h[i].Role == policy.RoleUser {
				person = i
			}
		}
		for i := range h { // most answers go to the last person, as of a bot that wants to be heard
			if r.IntN(4) > 0 {
				h[i].ParentID = h[person].MessageID
			}
			if r.IntN(4) > 0 { // and claims to be a piece of one before
				h[i].PartOf = h[r.IntN(i+1)].MessageID
			}
		}
		limit := 2 + r.IntN(4)
		passed, senders := 0, map[string]bool{}
		for i := person; i < len(h); i++ {
			if h[i].Role == policy.RoleUser || policy.Depth(h, h[i], c) >= limit {
				continue
			}
			senders[h[i].Sender] = true
			if i == person || h[i-1].Sender != h[i].Sender || policy.Depth(h, h[i-1], c) >= limit {
				passed++
			}
		}
		if most := len(senders) + limit - 1; passed > most {
			t.Errorf("%d rows passed at a limit of %d, at most %d may", passed, limit, most)
		}
	})
}

func FuzzDepth(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"), false, int64(0))
	f.Add([]byte("AAAAAAAAAABBBBBBBBBBCCCCCCCCCC"), true, int64(time.Second))
	f.Fuzz(func(t *testing.T, data []byte, turns bool, idle int64) {
		// Five bytes an entry; few values each, so that they meet.
		id := func(b byte) string {
			if b%8 == 0 {
				return ""
			}
			return string('a' + b%8)
		}
		var h []policy.Entry
		bots := 0
		for ; len(data) >= 5; data = data[5:] {
			e := policy.Entry{
				Role:   []string{policy.RoleUser, policy.RoleAssistant, policy.RoleAssistant, "", "other"}[data[0]%5],
				Sender: id(data[0] / 5), MessageID: id(data[1]), ParentID: id(data[1] / 8),
				ThreadID: id(data[2]), RootID: id(data[2] / 8), PartOf: id(data[0] / 32),
				TS: (int64(data[3]) - 8) << (data[4] % 57), UserTS: int64(data[4]) << (data[3] % 57),
			}
			h = append(h, e)
			if e.Role == policy.RoleAssistant || e.Role == "" {
				bots++
			}
		}
		c := policy.Count{Turns: turns, IdleReset: time.Duration(idle)}
		for _, m := range h {
			got := policy.Depth(h, m, c)
			switch {
			case m.Role == policy.RoleUser && got != 0:
				t.Errorf("Depth of a person's message = %d", got)
			case m.Role != policy.RoleUser && (got < 1 || got > bots+1):
				t.Errorf("Depth = %d, of %d messages of bots", got, bots)
			}
		}
	})
}

// A count that ended within the end of a chat does not change with what is before it, where the bots' user_ts is a
// person's message of their topic and topics have one root.
func TestDepthOfAnEndThatEnded(t *testing.T) {
	ends := 0
	eachHistory(t, func(t *testing.T, r *rand.Rand, h []policy.Entry, c policy.Count) {
		spoke, roots := map[string]int64{}, map[string]string{}
		for i := range h {
			e := &h[i]
			if e.UserTS = 0; e.Role == policy.RoleUser {
				spoke[e.ThreadID] = e.TS
			} else if r.IntN(2) == 0 {
				e.UserTS = spoke[e.ThreadID]
			}
			if e.ParentID != "" {
				e.ParentID = h[r.IntN(i+1)].MessageID
			}
			if e.RootID = ""; e.ThreadID != "" {
				if roots[e.ThreadID] == "" {
					roots[e.ThreadID] = h[r.IntN(i+1)].MessageID
				}
				e.RootID = roots[e.ThreadID]
			}
		}
		m := h[len(h)-1]
		want := policy.Depth(h, m, c)
		for from := range h {
			held := func(e policy.Entry) bool { return e.MessageID == m.ParentID }
			got, ended := policy.CountBack(h[from:], m, c)
			if !ended || m.ParentID != "" && !slices.ContainsFunc(h[from:], held) {
				continue
			}
			if ends++; got != want {
				t.Errorf("%d of the end from %d, %d of all", got, from, want)
			}
		}
	})
	if ends < 1000 {
		t.Errorf("%d ended", ends)
	}
}
