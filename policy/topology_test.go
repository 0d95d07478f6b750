package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy"
)

// How a bot of the simulation sends its answers.
const (
	plain      = "no parent"
	replies    = "answers with a parent"
	toPerson   = "always the person's message as parent"
	inTopics   = "in a topic on what it answers"
	topicsToo  = "in a topic on what it answers, with the person's message as parent"
	onePiece   = "as a piece of its first message"
	ownTopics  = "each in a topic of its own"
	openMinded = "any of these"
)

var styles = []string{plain, replies, toPerson, inTopics, topicsToo, ownTopics, onePiece}

// group is an in-memory chat of bots that answer everything they are given.
type group struct {
	limits policy.Limits
	hears  [][]int // by sender, the bots that hear it
	style  string
	think  func(*rand.Rand) time.Duration
	bound  int // where a run is given up for endless

	mu     sync.Mutex
	rand   *rand.Rand // guarded by mu, as all below
	chat   []policy.Entry
	person string // id of the person's last message
	said   int    // bots' messages since then
	wg     sync.WaitGroup
}

// ask sends a person's message to every bot, and returns when all are silent,
// with the number of their messages.
func (g *group) ask() int {
	g.mu.Lock()
	g.said = 0
	m := g.appendLocked(policy.Entry{Role: policy.RoleUser, Sender: "u"})
	g.person = m.MessageID
	g.mu.Unlock()
	for bot := range g.hears {
		g.wg.Go(func() { g.answer(bot, m) })
	}
	g.wg.Wait()
	return g.said
}

func (g *group) appendLocked(e policy.Entry) policy.Entry {
	e.MessageID = fmt.Sprintf("m%d", len(g.chat))
	e.TS = time.Now().UnixMilli()
	if g.style == ownTopics || e.ThreadID == "own" {
		e.ThreadID = "t-" + e.MessageID
	}
	g.chat = append(g.chat, e)
	return e
}

// answer waits, sends an answer to m, and delivers it to the others.
func (g *group) answer(bot int, m policy.Entry) {
	g.mu.Lock()
	pause := g.think(g.rand)
	g.mu.Unlock()
	time.Sleep(pause)

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.said > g.bound {
		return
	}
	g.said++
	said := g.appendLocked(g.form(bot, m))
	for _, other := range g.hears[bot] {
		delay := time.Duration(g.rand.IntN(3000)) * time.Millisecond
		g.wg.Go(func() {
			time.Sleep(delay)
			g.hear(other, said)
		})
	}
}

// form makes bot's answer to m in the group's style.
func (g *group) form(bot int, m policy.Entry) policy.Entry {
	e := policy.Entry{Role: policy.RoleAssistant, Sender: fmt.Sprintf("bot%d", bot)}
	style := g.style
	if style == openMinded {
		style = styles[g.rand.IntN(3)]
	}
	switch style {
	case replies:
		e.ParentID = m.MessageID
	case toPerson:
		e.ParentID = g.person
	case onePiece:
		if i := slices.IndexFunc(g.chat, func(said policy.Entry) bool { return said.Sender == e.Sender }); i >= 0 {
			e.PartOf = g.chat[i].MessageID
		}
	case inTopics, topicsToo:
		e.ParentID = m.MessageID
		if style == topicsToo {
			e.ParentID = g.person
		}
		e.ThreadID, e.RootID = m.ThreadID, m.RootID
		if m.ThreadID == "" && m.Role == policy.RoleAssistant {
			e.ThreadID, e.RootID = "t-"+m.MessageID, m.MessageID
		}
	}
	return e
}

// hear lets the policy decide whether bot is given m.
func (g *group) hear(bot int, m policy.Entry) {
	g.mu.Lock()
	depth := policy.Depth(g.chat, m, g.limits.Count)
	g.mu.Unlock()
	q := policy.Question{Message: m, AgentName: fmt.Sprintf("bot%d", bot)}
	if policy.Decide(context.Background(), g.limits, depth, q, says(true, nil)).Allow {
		g.answer(bot, m)
	}
}

// most is how many messages bots can say after one of a person, when n of them
// answer everything and at depth limit all stop.
//
// Each message that passes is answered by at most n-1 bots, and the person's by n:
//
//	most = n + (n-1) * passed
//
// Passed are those of depth 1 to limit-1. Depth grows by one for each message, so in a
// plain chat passed = limit-1. Parallel answers make n messages of what counts once:
// passed = n + limit-2. A bot that gives the person's message as parent of all
// it says, or calls all of it pieces of one send, may answer several messages in a row as
// pieces of one answer; then
// the passed messages are at most r rows of one sender each, a row has at most one
// answer to each message before it and one to the person, and so passed = 2^r - 1:
// large, but fixed. Of these rows n are first direct answers to the person and
// limit-1 are others, one fewer where all answers are direct. In topics the count of
// the chat goes on: the n answers to the person pass, and in the topic on each of them
// limit-2 more, or with the person's message as parent as many as in a chat.
func most(style string, n, limit int) int {
	if limit <= 1 {
		return n
	}
	answers := func(passed int) int { return n + (n-1)*passed }
	switch style {
	case plain, ownTopics:
		return answers(limit - 1)
	case replies:
		return answers(n + limit - 2)
	case inTopics:
		return answers(n * (limit - 1))
	case topicsToo:
		return answers(n * (1<<(n+limit-2) - 1))
	case toPerson, onePiece:
		return answers(1<<(n+limit-2) - 1)
	default:
		return answers(1<<(n+limit-1) - 1)
	}
}

func TestBotsFallSilent(t *testing.T) {
	fast := func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(2000)) * time.Millisecond }
	slow := func(r *rand.Rand) time.Duration {
		return time.Minute + time.Duration(r.IntN(30_000))*time.Millisecond
	}
	shapes := map[string]func(n, from int) []int{
		"all hear all": func(n, from int) []int { return others(n, from, func(int) bool { return true }) },
		"ring":         func(n, from int) []int { return others(n, from, func(to int) bool { return to == (from+1)%n }) },
		"star":         func(n, from int) []int { return others(n, from, func(to int) bool { return from == 0 || to == 0 }) },
	}
	for shape, hears := range shapes {
		for _, style := range append(styles, openMinded) {
			t.Run(shape+"/"+style, func(t *testing.T) {
				longest := 0
				for _, n := range []int{2, 3, 9} {
					for _, limit := range []int{1, 2, 3, 5} {
						if n > 3 && limit > 3 {
							continue // thousands of messages that prove nothing more
						}
						if style == topicsToo && limit > 1 {
							n = min(n, 4) // as above
						}
						for speed, think := range map[string]func(*rand.Rand) time.Duration{"fast": fast, "slow": slow} {
							synctest.Test(t, func(t *testing.T) {
								g := &group{limits: policy.Limits{MaxDepth: limit, Threshold: 1, Check: true}, style: style,
									think: think, rand: rand.New(rand.NewPCG(uint64(n), uint64(limit)))}
								for from := range n {
									g.hears = append(g.hears, hears(n, from))
								}
								g.bound = most(style, n, limit)
								for round := range 2 {
									got := g.ask()
									longest = max(longest, got)
									if got > g.bound {
										t.Errorf("%d bots, limit %d, %s, round %d: more than %d messages", n, limit, speed, round, g.bound)
									}
									if got < n {
										t.Errorf("%d bots, limit %d, %s, round %d: %d messages, so a person's did not reset", n, limit, speed, round, got)
									}
									time.Sleep(time.Minute)
								}
							})
						}
					}
				}
				t.Logf("at most %d messages after one of a person", longest)
			})
		}
	}
}

func others(n, from int, hears func(to int) bool) []int {
	var out []int
	for to := range n {
		if to != from && hears(to) {
			out = append(out, to)
		}
	}
	return out
}

// Two bots on their own stop at the limit exactly: the answers of depth 1 and 2
// are answered, the one of depth 3 is not.
func TestAPairStopsAtTheLimit(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			g := &group{limits: policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}, style: plain, bound: 100,
				think: func(*rand.Rand) time.Duration { return pause }, rand: rand.New(rand.NewPCG(1, 2)),
				hears: [][]int{{1}, {0}}}
			g.chat = []policy.Entry{}
			g.mu.Lock()
			u := g.appendLocked(policy.Entry{Role: policy.RoleUser, Sender: "u"})
			g.mu.Unlock()
			time.Sleep(time.Millisecond)
			g.wg.Go(func() { g.answer(0, u) }) // only one of them heard the person
			g.wg.Wait()
			if got, want := g.said, 3; got != want {
				t.Errorf("with a pause of %v: %d messages, want %d", pause, got, want)
			}
		})
	}
}

// A pair that gives the person's message as parent of all it says stops at the limit: only
// the first such answer of each is a direct one.
func TestAPairThatAnswersOnlyThePersonStops(t *testing.T) {
	for _, pause := range []time.Duration{policy.PieceGap + time.Second, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			g := &group{limits: policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}, style: toPerson, bound: 100,
				think: func(*rand.Rand) time.Duration { return pause }, rand: rand.New(rand.NewPCG(1, 2)),
				hears: [][]int{{1}, {0}}}
			g.mu.Lock()
			u := g.appendLocked(policy.Entry{Role: policy.RoleUser, Sender: "u"})
			g.person = u.MessageID
			g.mu.Unlock()
			time.Sleep(time.Millisecond)
			g.wg.Go(func() { g.answer(0, u) }) // only one of them heard the person
			g.wg.Wait()
			if got, want := g.said, 4; got != want { // depths 1, 1, 2 and 3
				t.Errorf("with a pause of %v: %d messages, want %d", pause, got, want)
			}
		})
	}
}
