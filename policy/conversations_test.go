package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"feishu-relay/policy"
)

// The recount of these tests reads this many lines at first and at most.
const near, far = 8, 64

// recount counts m as a reader of the transcript does that holds nothing: among the last
// lines up to m's time, more and more until all conversations in them have an end.
func recount(lines []policy.Entry, m policy.Entry, c policy.Count) (depth int) {
	for n := near; n <= far; n *= 8 {
		var tail []policy.Entry
		seen := map[string]int{}
		for _, e := range slices.Backward(lines) {
			if e.TS > m.TS {
				continue
			}
			if i, again := seen[e.MessageID]; again && e.MessageID != "" {
				tail = slices.Delete(tail, i, i+1)
				for id, at := range seen {
					if at > i {
						seen[id] = at - 1
					}
				}
			} else if len(tail) == n {
				break
			}
			seen[e.MessageID] = len(tail)
			tail = append(tail, e)
		}
		slices.Reverse(tail)
		depth = policy.Depth(tail, m, c)
		held := m.ParentID == "" || slices.ContainsFunc(tail, func(e policy.Entry) bool { return e.MessageID == m.ParentID })
		if len(tail) < n || ended(tail) && (held || n == far) {
			break
		}
	}
	return depth
}

func ended(tail []policy.Entry) bool {
	oldest, user := map[string]int64{}, map[string]int64{}
	for _, e := range tail {
		known := e.UserTS
		if e.Role == policy.RoleUser {
			known = e.TS
		} else if known > e.TS {
			known = 0
		}
		if first, ok := oldest[e.ThreadID]; !ok || e.TS < first {
			oldest[e.ThreadID] = e.TS
		}
		user[e.ThreadID] = max(user[e.ThreadID], known)
	}
	for thread, first := range oldest {
		if user[thread] < first {
			return false
		}
	}
	return true
}

// chatter makes a chat line by line, as sidecars append it: mostly in the order of time,
// some late, some twice, with people whose messages the bots know of sooner or later.
type chatter struct {
	r                             *rand.Rand
	lines                         []policy.Entry
	ts                            int64
	pause                         int64   // 2: many lines have the ts of the one before
	late, topics, parents, people int     // of hundred
	asked                         []int64 // the ts of people's last messages
}

func newChatter(r *rand.Rand) *chatter {
	return &chatter{r: r, ts: 1_000_000, late: r.IntN(3) * 5, topics: r.IntN(2) * 30, parents: r.IntN(3) * 40,
		people: 1 + r.IntN(15), pause: []int64{2, 2000}[r.IntN(2)], asked: []int64{0}}
}

func (c *chatter) is(percent int) bool { return c.r.IntN(100) < percent }

func (c *chatter) some() policy.Entry { return c.lines[max(0, len(c.lines)-1-c.r.IntN(12))] }

func (c *chatter) next() policy.Entry {
	c.ts += c.r.Int64N(12) * c.r.Int64N(c.pause)
	e := policy.Entry{Role: policy.RoleAssistant, Sender: string(rune('A' + c.r.IntN(3))), TS: c.ts,
		MessageID: fmt.Sprint("m", len(c.lines))}
	if c.is(c.topics) {
		e.ThreadID = fmt.Sprint("t", c.r.IntN(2))
	}
	if c.is(c.late) {
		e.TS -= c.r.Int64N(1 + c.r.Int64N(60_000))
	}
	if c.is(70) {
		e.UserTS = c.asked[len(c.asked)-1]
	} else if c.is(20) {
		e.UserTS = c.asked[c.r.IntN(len(c.asked))] + c.r.Int64N(2)
	}
	if len(c.lines) > 0 && c.is(c.parents) {
		e.ParentID = c.some().MessageID
	}
	if len(c.lines) > 0 && c.is(10) {
		e.PartOf = c.some().MessageID
	}
	switch {
	case c.is(c.people):
		e.Role, e.Sender, e.UserTS = policy.RoleUser, "u", 0
		c.asked = append(c.asked, e.TS)
		if c.is(10) {
			return c.next() // it is not recorded here yet
		}
	case len(c.lines) > 0 && c.r.IntN(300) == 0:
		e = c.some() // another program wrote it too
		e.TS += c.r.Int64N(3)
	}
	c.lines = append(c.lines, e)
	return e
}

// Where Conversations knows a depth, it is that of the recount, for each message and
// whenever it is asked for; and in a chat in good order it knows it.
func TestConversationsAgreeWithTheRecount(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 11))
		c, count := newChatter(r), randomCount(r)
		unseen := 0
		if r.IntN(2) == 0 {
			unseen = r.IntN(40)
		}
		ids := map[string]bool{}
		v := policy.NewConversations(unseen == 0)
		for i := range 150 {
			e := c.next()
			if i >= unseen {
				v.Add(&e, ids[e.MessageID])
			}
			ids[e.MessageID] = true
			if i < unseen || r.IntN(3) > 0 {
				continue
			}
			if r.IntN(200) == 0 {
				count = randomCount(r)
			}
			m := c.lines[max(0, i-r.IntN(1+r.IntN(50)))]
			got, known := v.Depth(&m, count, near, far)
			if want := recount(c.lines, m, count); known && got != want {
				t.Fatalf("seed %d, %d lines, %+v: depth %d of %+v, the recount has %d:\n%s",
					seed, i+1, count, got, m, want, show(c.lines))
			}
		}
	}
}

func show(lines []policy.Entry) (out string) {
	for i, e := range lines {
		out += fmt.Sprintf("%3d %s %s@%d id=%s parent=%s part=%s thread=%s user=%d\n",
			i, e.Role[:1], e.Sender, e.TS, e.MessageID, e.ParentID, e.PartOf, e.ThreadID, e.UserTS)
	}
	return out
}

// In a chat in good order each depth is known, in the chat and in topics that people
// opened, for who is behind as well, and what is held stays bounded.
func TestConversationsKnowAChatInOrder(t *testing.T) {
	v := policy.NewConversations(false)
	ts, user, most := int64(1_000_000), map[string]int64{}, 0
	var waiting []policy.Entry
	for i := range 40_000 {
		ts++
		thread := []string{"", "t1", "t2"}[i%3]
		e := policy.Entry{Role: policy.RoleAssistant, Sender: string(rune('A' + i%2)), MessageID: fmt.Sprint("m", i),
			ThreadID: thread, TS: ts, UserTS: user[thread]}
		if i < 3 || i%1500 < 3 {
			e.Role, user[thread] = policy.RoleUser, ts
		}
		v.Add(&e, false)
		most = max(most, v.Bytes())
		if waiting = append(waiting, e); len(waiting) < 100 {
			continue
		}
		m := waiting[0]
		waiting = waiting[1:]
		if m.Role == policy.RoleUser {
			continue
		}
		if want := (i - 99) % 1500 / 3; i >= 1700 {
			if got, known := v.Depth(&m, policy.Count{}, near, 4096); !known || got != want {
				t.Fatalf("line %d: depth %d, known %t, want %d", i, got, known, want)
			}
		}
	}
	if most > 1<<20 {
		t.Errorf("%d bytes held", most)
	}
}

// In a burst, where several lines have the same ts, the depth is known as well for who is
// behind.
func TestConversationsKnowABurst(t *testing.T) {
	v := policy.NewConversations(true)
	var lines []policy.Entry
	for i := range 600 {
		e := policy.Entry{Role: policy.RoleAssistant, Sender: string(rune('A' + i%2)), MessageID: fmt.Sprint("m", i),
			TS: int64(1_000_000 + i/4), UserTS: 1_000_000}
		if i == 0 {
			e.Role, e.UserTS = policy.RoleUser, 0
		}
		v.Add(&e, false)
		lines = append(lines, e)
		if i < 110 {
			continue
		}
		m := lines[i-100]
		got, known := v.Depth(&m, policy.Count{}, near, 4096)
		if want := i - 100 - 3; !known || got != want { // three have the ts of the person's message
			t.Fatalf("line %d: depth %d, known %t, want %d", i, got, known, want)
		}
	}
}

// Who never stops adding lines, in topics without end or without a person, fills no memory.
func TestConversationsAreBounded(t *testing.T) {
	for _, topics := range []int{1, 10, math.MaxInt} {
		v := policy.NewConversations(true)
		for i := range 60_000 {
			e := policy.Entry{Role: policy.RoleAssistant, Sender: "A", MessageID: fmt.Sprint("m", i),
				ThreadID: fmt.Sprint(i % topics), TS: int64(i + 1)}
			v.Add(&e, false)
			if v.Bytes() > 3<<20 {
				t.Fatalf("%d topics, %d lines: %d bytes", topics, i, v.Bytes())
			}
		}
	}
}

// BenchmarkConversations adds a line and asks for its depth, in a round of bots without a
// person, beside the recount.
func BenchmarkConversations(b *testing.B) {
	for _, round := range []int{20, 500, 4000} {
		var lines []policy.Entry
		for i := range round {
			e := policy.Entry{Role: policy.RoleAssistant, Sender: string(rune('A' + i%3)),
				MessageID: fmt.Sprint("om_dc13264520392913993dd051", i), TS: 1_000_000 + int64(i), UserTS: 1_000_000}
			if i == 0 {
				e.Role = policy.RoleUser
			}
			lines = append(lines, e)
		}
		count := policy.Count{IdleReset: time.Hour}
		b.Run(fmt.Sprint(round, "/kept"), func(b *testing.B) {
			b.ReportAllocs()
			v := policy.NewConversations(true)
			for i := 0; b.Loop(); i++ {
				e := lines[i%round]
				e.TS += int64(i/round) * 1_000_000
				if e.UserTS = lines[0].TS + int64(i/round)*1_000_000; e.Role == policy.RoleUser {
					e.UserTS = 0
				}
				v.Add(&e, false)
				if _, known := v.Depth(&e, count, 8, 4096); !known && e.Role != policy.RoleUser {
					b.Fatal("not known")
				}
			}
		})
		b.Run(fmt.Sprint(round, "/recount"), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				policy.Depth(lines[:1+i%round], lines[i%round], count)
			}
		})
	}
}

// When a person spoke last is what the lines tell, whatever their order.
func TestConversationsKnowWhenAPersonSpokeLast(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		c := newChatter(rand.New(rand.NewPCG(seed, 3)))
		kept, added := policy.NewConversations(true), 0
		for i := range 200 {
			c.next()
			if i%50 == 49 { // by a program that gives no ids
				c.lines = append(c.lines, policy.Entry{Role: policy.RoleUser, Sender: "u", TS: c.ts + 1})
			}
			for _, e := range c.lines[added:] {
				kept.Add(&e, false)
			}
			added = len(c.lines)
			asked := c.lines[max(0, len(c.lines)-1-c.r.IntN(9))]
			want := int64(0)
			for _, e := range c.lines {
				spoke := e.UserTS
				if e.Role == policy.RoleUser {
					spoke = e.TS
				}
				if e.ThreadID == asked.ThreadID && spoke <= asked.TS && spoke <= e.TS {
					want = max(want, spoke)
				}
			}
			if got, known := kept.LastUser(asked.ThreadID, asked.TS, 1000); known && got != want {
				t.Fatalf("seed %d: before %d a person spoke at %d, want %d", seed, asked.TS, got, want)
			}
		}
	}
}
