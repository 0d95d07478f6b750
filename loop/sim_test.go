package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/book"
	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/internal/test/simtest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// TestSimulation runs one sidecar with two chats: other bots and people say things in any order, workers are slow, the
// bot is away or refuses, and the process is killed between a commit and any of its effects.
func TestSimulation(t *testing.T) {
	simtest.Run(t, 100, func(seed uint64, trace simtest.Trace) error { return simulate(seed, "", trace) })
}

// Each mistake, planted between the parts, is found.
func TestSimulationFindsFaults(t *testing.T) {
	verify.Only(t)
	for _, fault := range []string{"effects before the commit", "a text is not in the book", "an end is not told",
		"half of a batch", "no snapshot"} {
		simtest.Finds(t, fault, "", func(seed uint64) error { return simulate(seed, fault, nil) })
	}
}

type world struct {
	*rand.Rand
	fault string
	trace simtest.Trace
	now   time.Time
	core  *Core
	shelf map[[2]string]shelved // the book, by kind and key
	wrote int
	todo  []Effect
	conn  uint64
	nr    int
	gone  map[string]bool // messages that are to reach the bot, or to be stopped
	got   map[string]int  // by key, how often the bot took it
	kills int
	blank map[string]bool // by key: its text was taken away
}

type shelved struct {
	n     int // the order of the commits
	value json.RawMessage
}

var chats = []Chat{{"feishu", "oc_a"}, {"feishu", "oc_b"}}

func simulate(n uint64, fault string, trace simtest.Trace) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if e, ok := v.(failure); ok {
				err = e
				return
			}
			panic(v)
		}
	}()
	w := &world{Rand: rand.New(rand.NewPCG(n, 3)), fault: fault, trace: trace, gone: map[string]bool{}, shelf: map[[2]string]shelved{},
		now: time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC), got: map[string]int{}, blank: map[string]bool{}}
	w.start()
	for range 200 + w.IntN(200) {
		w.step()
	}
	w.open(true)
	for range 50_000 { // the bot is well from now on
		if len(w.todo) > 0 {
			w.work(true)
			continue
		}
		next := w.core.Next()
		if next.IsZero() || next.After(w.now.Add(time.Hour)) {
			break
		}
		w.now = next
		w.take(Tick)
	}
	w.check()
	return nil
}

type failure struct{ error }

func failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (w *world) start() {
	w.core = NewCore(func(Chat) *group.Config {
		return &group.Config{Agent: "a", Name: "BotA", CanWrite: true, MaxDepth: 10, SteerBy: "members", Notice: true,
			Base: group.Settings{Answer: group.ModeAll, Limit: 5, Threshold: 2, Judge: true}, Commands: []string{"/relay"},
			Window: time.Hour, MaxAge: 10 * time.Minute, ShareMessages: true}
	})
	w.load()
	w.todo, w.conn = nil, 0
	w.apply(w.core.Start(w.now, deliver.Config{MaxAge: 10 * time.Minute, Timeout: 15 * time.Minute,
		Channels: []deliver.Channel{{Name: "webhook", First: time.Second, Most: 30 * time.Second}}}))
	w.take(Event{Group: &group.Event{Kind: group.Online, Agents: []relay.AgentName{"a", "b", "c"}}})
	for _, of := range chats {
		w.take(Event{Chat: of, Group: &group.Event{Kind: group.Joined}})
	}
	w.take(Event{Group: &group.Event{Kind: group.CaughtUp}})
}

func (w *world) take(e Event) { w.apply(w.core.Step(w.now, e)) }

// apply commits records, and notes what is to be done.
func (w *world) apply(records []book.Record, effects []Effect) {
	if w.fault == "effects before the commit" && len(effects) > 0 && w.IntN(20) == 0 {
		records = nil
	}
	if w.fault == "half of a batch" && len(records) > 1 && w.IntN(20) == 0 {
		records = records[:len(records)/2]
	}
	for _, r := range records {
		if w.fault == "a text is not in the book" && r.Kind == kindText && r.Value != nil ||
			w.fault == "no snapshot" && r.Kind == kindState {
			continue
		}
		w.blank[r.Key] = r.Kind == kindText && r.Value == nil
		w.wrote++
		if at := [2]string{r.Kind, r.Key}; r.Value == nil {
			delete(w.shelf, at)
		} else {
			w.shelf[at] = shelved{w.wrote, json.RawMessage(bytes.Clone(r.Value.(book.Encoded)))}
		}
	}
	w.todo = append(w.todo, effects...)
	for _, e := range effects {
		switch {
		case e.Deliver != nil:
			w.trace.Print("  > %s %s %s %s", e.Deliver.Do, e.Deliver.Key, e.Deliver.Result, e.Deliver.Reason)
		default:
			w.trace.Print("  > %s %s %s %s", e.Group.Do, e.Group.Key, e.Group.ID, e.Group.Reason)
		}
	}
}

func (w *world) step() {
	of := chats[w.IntN(2)]
	switch p := w.IntN(100); {
	case p < 20:
		w.nr++
		id := relay.MessageID(fmt.Sprint("om_", w.nr))
		m := &relay.Message{Channel: of.Channel, ChatID: of.ID, RelayMsgID: id, MessageID: id, MsgType: "text",
			TS: relay.MillisOf(w.now), Content: "text " + string(id), Metadata: relay.Metadata{}}
		kind := group.Arrived
		if w.IntN(3) == 0 {
			kind, m.Role, m.SenderName, m.SenderID = group.Heard, relay.RoleUser, "Ann", "ou_ann"
		} else {
			m.SenderAgentName = []relay.AgentName{"b", "c"}[w.IntN(2)]
			w.gone[of.Key(id)] = true
		}
		if w.nr > 1 && w.IntN(2) == 0 {
			m.ParentID = relay.MessageID(fmt.Sprint("om_", 1+w.IntN(w.nr-1)))
		}
		w.trace.Print("%s %s %s", kind, of, id)
		w.take(Event{Chat: of, Group: &group.Event{Kind: kind, Msg: m, User: true, MayEdit: true}})
	case p < 23 && w.nr > 0:
		w.take(Event{Chat: of, Group: &group.Event{Kind: group.Recalled,
			ID: relay.MessageID(fmt.Sprint("om_", 1+w.IntN(w.nr)))}})
	case p < 26:
		body := []string{`{"muted":{"a":"1m"}}`, `{"paused":true}`, `{"paused":false}`, `{"limit":2}`}[w.IntN(4)]
		w.take(Event{Chat: of, Group: &group.Event{Kind: group.Changed, Call: "c", Body: body}})
	case p < 75:
		w.work(false)
	case p < 82:
		w.open(w.IntN(2) == 0)
	case p < 85:
		w.kill()
	default:
		w.now = w.now.Add(time.Duration(w.IntN(5000)) * time.Millisecond)
		if next := w.core.Next(); !next.IsZero() && !next.After(w.now) {
			w.take(Tick)
		}
	}
}

func (w *world) open(there bool) {
	w.conn++
	conn := w.conn
	if !there {
		conn = 0
	}
	w.take(Event{Deliver: &deliver.Event{Kind: deliver.Open, Channel: "webhook", Conn: conn}})
}

// kill ends the process, and compares what the next one has.
func (w *world) kill() {
	want := states(w.core)
	w.kills++
	before := w.core
	w.trace.Print("killed")
	w.core = NewCore(before.config)
	w.load()
	for of, x := range before.chats { // what was done just before is done again
		for _, key := range x.did {
			w.core.chats[of].Did(key)
		}
	}
	if got := states(w.core); got != want {
		failf("after a restart:\n%s\nwant:\n%s", got, want)
	}
	if w.IntN(3) == 0 { // a clean stop
		w.apply(before.Stop(), nil)
	}
	w.start()
}

func (w *world) load() {
	for _, at := range slices.SortedFunc(maps.Keys(w.shelf), func(a, b [2]string) int { return w.shelf[a].n - w.shelf[b].n }) {
		if err := w.core.Load(at[0], at[1], w.shelf[at].value); err != nil {
			failf("%w", err)
		}
	}
}

func states(c *Core) string {
	var b strings.Builder
	for _, of := range c.Chats() {
		data, _ := json.Marshal(c.chats[of].State)
		fmt.Fprintf(&b, "%s %s\n", of, data)
	}
	data, _ := json.Marshal(c.bot)
	return b.String() + string(data)
}

// work does one of the things to do.
func (w *world) work(well bool) {
	if len(w.todo) == 0 {
		return
	}
	i := 0
	if e := w.todo[0]; e.Group == nil || e.Group.Do != group.Deliver { // which keep their order
		i = w.IntN(min(len(w.todo), 5))
		if e := w.todo[i]; e.Group != nil && e.Group.Do == group.Deliver {
			i = 0
		}
	}
	e := w.todo[i]
	w.todo = slices.Delete(w.todo, i, i+1)
	if e.Deliver != nil {
		w.deliver(e.Deliver, well)
		return
	}
	f := e.Group
	done := &group.Event{Kind: group.Done, Key: f.Key, ID: "om_shown"}
	switch {
	case f.Do == group.Stop:
		delete(w.gone, e.Chat.Key(f.ID))
	case f.Do == group.Deliver:
		key := e.Chat.Key(f.ID)
		text, _ := json.Marshal(relay.Inbound{Content: f.Msg.Content})
		w.take(Event{Chat: e.Chat, Group: done, TextOf: key, Text: text, Deliver: &deliver.Event{Kind: deliver.Take,
			Item: &deliver.Item{Key: key, ID: f.ID, Chat: e.Chat.String(), Sent: f.Msg.TS, Bytes: len(text)}}})
		return
	case f.Do == group.Ask:
		done.Decision = &policy.Decision{Allow: w.IntN(3) > 0, Tier: policy.TierJudge, Reason: "judge_no"}
	case f.Do == group.Claim:
		done.Failed = w.IntN(4) == 0
	}
	if f.Key != "" {
		w.take(Event{Chat: e.Chat, Group: done})
	}
}

func (w *world) deliver(f *deliver.Effect, well bool) {
	switch f.Do {
	case deliver.Write:
		if _, ok := w.shelf[[2]string{kindText, f.Key}]; !ok {
			w.take(Event{Deliver: &deliver.Event{Kind: deliver.Report, Key: f.Key, Try: f.Try, Result: deliver.NotWritten}})
			if !w.blank[f.Key] {
				failf("%s has no text, and was not withdrawn", f.Key)
			}
			return
		}
		r := deliver.Delivered
		if f.Conn != w.conn {
			r = deliver.NotWritten
		} else if !well {
			results := []deliver.Result{deliver.Delivered, deliver.Delivered, deliver.Written, deliver.Failed, deliver.Refused}
			r = results[w.IntN(len(results))]
		}
		if r == deliver.Delivered {
			if w.got[f.Key]++; w.got[f.Key] > 1+w.kills {
				failf("the bot got %s %d times", f.Key, w.got[f.Key])
			}
		}
		w.take(Event{Deliver: &deliver.Event{Kind: deliver.Report, Key: f.Key, Try: f.Try, Result: r}})
	case deliver.End:
		if w.fault == "an end is not told" {
			return
		}
		delete(w.gone, f.Key)
	}
}

// check holds what has to be true when nothing happens any more.
func (w *world) check() {
	for at := range w.shelf {
		if at[0] == kindText {
			failf("the text of %s is left", at[1])
		}
	}
	for key := range w.gone {
		of := chats[0]
		if strings.HasPrefix(key, chats[1].String()) {
			of = chats[1]
		}
		id := relay.MessageID(strings.TrimPrefix(key, of.Key("")))
		told := slices.ContainsFunc(w.core.Group(of).Lines(), func(l *group.Line) bool {
			return l.ID == id && slices.ContainsFunc(l.Verdicts, func(v group.Verdict) bool {
				return v.Agent == "a" && (v.Delivered > 0 || v.Stopped != "")
			})
		})
		if !told || w.fault == "an end is not told" {
			failf("nothing has become of %s; the bot got %v", key, slices.Sorted(maps.Keys(w.got)))
		}
	}
}
