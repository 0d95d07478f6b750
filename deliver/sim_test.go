package deliver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/simtest"
	"feishu-relay/relay"
)

// TestSimulation runs a sidecar and its bot in one goroutine: channels that open and close, a bot that answers late,
// twice, wrongly or never, withdrawals, and kills between any two events.
func TestSimulation(t *testing.T) {
	simtest.Run(t, 2000, func(seed uint64, trace simtest.Trace) error { return simulate(seed, "", trace) })
}

// Each mistake, planted in the sidecar, is found.
func TestSimulationFindsFaults(t *testing.T) {
	for _, fault := range []string{"forgets a take", "takes twice", "opens a closed channel", "no tick", "lost report",
		"writes the newest first"} {
		simtest.Finds(t, fault, "", func(seed uint64) error { return simulate(seed, fault, nil) })
	}
}

// world is one run.
type world struct {
	*rand.Rand
	fault    string
	trace    simtest.Trace
	now      time.Time
	s        *State
	book     []Event
	snapshot []byte
	conns    map[string]uint64
	serial   map[string]bool
	lastConn uint64
	taken    []Item
	texts    map[string]bool // in the book
	flight   []Effect        // writes that were not answered
	at       map[string]uint64
	ended    map[string]Result
	sayings  map[string]bool   // keys that the bot has said it has
	unsure   map[string]bool   // by key: it may be written again after its end
	on       map[string]string // by key, the connection of the newest write
	order    map[string]int    // by connection and chat: the newest item whose first write it got
	again    map[string]bool   // keys that may be written again
	err      error
}

func simulate(n uint64, fault string, trace simtest.Trace) error {
	w := &world{Rand: rand.New(rand.NewPCG(n, 1)), fault: fault, trace: trace, s: New(),
		now:   time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC),
		conns: map[string]uint64{}, texts: map[string]bool{}, at: map[string]uint64{}, ended: map[string]Result{},
		sayings: map[string]bool{}, unsure: map[string]bool{}, on: map[string]string{},
		order: map[string]int{}, again: map[string]bool{},
		serial: map[string]bool{"gateway": true}}
	w.apply(Event{Kind: Start, Config: &config})
	for range 150 + w.IntN(100) {
		if w.step(); w.err != nil {
			return w.err
		}
	}
	// The bot is well from now on: everything ends.
	for range 10_000 {
		for len(w.flight) > 0 && w.err == nil {
			w.answer(0, Delivered)
		}
		if w.conns["gateway"] == 0 {
			w.open("gateway")
		}
		if len(w.ended) == len(w.taken) || w.err != nil || !w.tick(time.Hour) {
			break
		}
	}
	for _, x := range w.taken {
		if w.ended[x.Key] == "" && w.err == nil {
			return fmt.Errorf("%s has not ended", x.Key)
		}
	}
	if left := len(w.s.d.Items); w.err == nil && len(w.texts) != left {
		return fmt.Errorf("%d texts are left, %d of them for a reader", len(w.texts), left)
	}
	return w.err
}

func (w *world) step() {
	switch p := w.IntN(100); {
	case p < 25:
		w.take()
	case p < 60 && len(w.flight) > 0:
		results := []Result{Written, Written, Written, Delivered, Delivered, Delivered, Accepted, Failed, Refused, NotWritten,
			Broken}
		w.answer(w.IntN(len(w.flight)), results[w.IntN(len(results))])
	case p < 70 && len(w.taken) > 0:
		x := w.taken[w.IntN(len(w.taken))]
		r := []Result{Delivered, Delivered, Refused, Retry}[w.IntN(4)]
		if r == Delivered && w.at[x.Key] > 0 {
			w.sayings[x.Key] = true
			delete(w.unsure, x.Key)
		}
		w.again[x.Key] = w.again[x.Key] || r == Retry
		if y := w.s.items[x.Key]; r == Retry && y != nil && y.Phase == accepted {
			delete(w.on, x.Key)
		}
		w.apply(Event{Kind: Settle, Call: "call", ID: x.ID, Result: r})
	case p < 73 && len(w.taken) > 0:
		w.apply(Event{Kind: Withdraw, Key: w.taken[w.IntN(len(w.taken))].Key, Reason: relay.Muted})
	case p < 80:
		w.open([]string{"gateway", "stream"}[w.IntN(2)])
	case p < 84:
		name := []string{"gateway", "stream"}[w.IntN(2)]
		if w.conns[name] > 0 {
			w.close(name)
		}
	case p < 86:
		w.apply(Event{Kind: Presence, Present: w.IntN(2) == 0})
	case p < 89:
		w.kill()
	default:
		w.tick(time.Duration(w.IntN(180)) * time.Second)
	}
}

func (w *world) take() {
	n := len(w.taken)
	x := Item{Key: fmt.Sprint("m", n), ID: relay.MessageID(fmt.Sprint("id", n)), Chat: fmt.Sprint("c", w.IntN(3)),
		Sent: relay.MillisOf(w.now), Bytes: w.IntN(1 << 20)}
	if w.IntN(8) == 0 {
		x.Chat, x.Once = "", true
	}
	w.taken = append(w.taken, x)
	w.texts[x.Key] = true
	if w.fault == "forgets a take" && n == 5 {
		return
	}
	w.apply(Event{Kind: Take, Item: &x})
	if w.fault == "takes twice" && n == 5 {
		y := x
		y.Key += "'"
		w.apply(Event{Kind: Take, Item: &y})
	}
}

func (w *world) open(name string) {
	w.close(name)
	w.lastConn++
	w.conns[name] = w.lastConn
	e := Event{Kind: Open, Channel: name, Conn: w.lastConn}
	if name == "stream" && len(w.taken) > 0 && w.IntN(2) == 0 {
		last := w.taken[w.IntN(len(w.taken))]
		e.ID, e.Confirms = last.ID, w.IntN(2) == 0
		for _, x := range w.taken {
			if e.Confirms && w.s.items[last.Key] != nil && strings.HasPrefix(w.on[x.Key], name) &&
				w.on[x.Key] == w.on[last.Key] && w.at[x.Key] <= w.at[last.Key] {
				w.sayings[x.Key] = true
				delete(w.unsure, x.Key)
			}
		}
	}
	w.apply(e)
}

// close ends a connection. Its writes are lost, unless the bot names one of them, or a later one, to the stream.
func (w *world) close(name string) {
	conn := w.conns[name]
	delete(w.conns, name)
	var left []Effect
	for _, f := range w.flight {
		if f.Conn == conn && f.Channel == name {
			w.again[f.Key] = true
		} else {
			left = append(left, f)
		}
	}
	w.flight = left
	if w.fault != "opens a closed channel" {
		w.apply(Event{Kind: Open, Channel: name})
	}
}

// answer has the bot answer a write.
func (w *world) answer(i int, r Result) {
	f := w.flight[i]
	switch {
	case r == Written:
	case r == Accepted:
		w.again[f.Key] = true // it may ask for it again
		w.flight = append(w.flight[:i:i], w.flight[i+1:]...)
	default:
		w.flight = append(w.flight[:i:i], w.flight[i+1:]...)
		if r == Delivered && f.Channel == "stream" && w.IntN(2) == 0 {
			r, w.unsure[f.Key] = Unconfirmed, w.ended[f.Key] == "" || w.unsure[f.Key]
		}
		w.sayings[f.Key] = w.sayings[f.Key] || r == Delivered || r == Unconfirmed
		w.again[f.Key] = true
		if slices.Contains([]Result{Failed, NotWritten, Broken}, r) {
			delete(w.on, f.Key)
		}
		if w.fault == "lost report" && r == Delivered && w.IntN(3) == 0 {
			r = Written
		}
	}
	w.apply(Event{Kind: Report, Key: f.Key, Try: f.Try, Result: r})
}

// tick lets the time pass up to the next thing that is due, and reports whether there is one.
func (w *world) tick(most time.Duration) bool {
	next := w.s.Next()
	if next.IsZero() || next.After(w.now.Add(most)) || w.fault == "no tick" {
		w.now = w.now.Add(most)
		return !next.IsZero() && w.fault != "no tick"
	}
	w.now = next
	w.apply(Event{Kind: Tick})
	return true
}

// kill ends the process; the next one has what is in the book.
func (w *world) kill() {
	want, _ := json.Marshal(w.s)
	w.s = New()
	if w.snapshot != nil {
		if err := json.Unmarshal(w.snapshot, w.s); err != nil {
			w.err = err
		}
	}
	for _, e := range w.book {
		w.s.Apply(e)
	}
	got, _ := json.Marshal(w.s)
	if !bytes.Equal(got, want) {
		w.err = fmt.Errorf("after a restart:\n%s\nwant:\n%s", got, want)
	}
	if w.IntN(3) == 0 {
		w.snapshot, w.book = got, nil
	}
	clear(w.conns)
	w.flight = nil
	for _, x := range w.taken {
		w.again[x.Key] = true
	}
	w.apply(Event{Kind: Start, Config: &config})
}

func (w *world) apply(e Event) {
	if w.err != nil {
		return
	}
	e.At = w.now
	effects, changed := w.s.Apply(e)
	w.trace.Print("%s %s %s %s conn=%d try=%d id=%s", e.Kind, e.Key, e.Result, e.Channel, e.Conn, e.Try, e.ID)
	if changed {
		w.book = append(w.book, e)
	}
	if w.fault == "writes the newest first" && len(effects) > 1 {
		effects[0], effects[len(effects)-1] = effects[len(effects)-1], effects[0]
	}
	for _, f := range effects {
		w.trace.Print("  %s", line(f))
		if err := w.run(f); err != nil && w.err == nil {
			w.err = err
		}
	}
}

// run does what an effect asks for, and checks it.
func (w *world) run(f Effect) error {
	var number int
	_, _ = fmt.Sscanf(f.Key, "m%d", &number)
	switch f.Do {
	case Write:
		switch {
		case w.conns[f.Channel] != f.Conn:
			return fmt.Errorf("%s is written to a connection that has ended", f.Key)
		case !w.texts[f.Key]:
			return fmt.Errorf("%s is written without a text", f.Key)
		case w.ended[f.Key] != "" && !w.unsure[f.Key]:
			return fmt.Errorf("%s is written after its end", f.Key)
		case w.at[f.Key] > 0 && !w.again[f.Key]:
			return fmt.Errorf("%s is written twice", f.Key)
		}
		chat := w.taken[number].Chat
		first := w.at[f.Key] == 0
		w.at[f.Key], w.again[f.Key], w.on[f.Key] = f.Try, false, fmt.Sprint(f.Channel, f.Conn)
		if chat != "" {
			for _, g := range w.flight {
				var other int
				_, _ = fmt.Sscanf(g.Key, "m%d", &other)
				if w.serial[f.Channel] && g.Channel == f.Channel && w.taken[other].Chat == chat && w.ended[g.Key] == "" &&
					w.at[g.Key] == g.Try {
					return fmt.Errorf("%s is written while the bot is at %s", f.Key, g.Key)
				}
			}
			if newest, ok := w.order[chat]; first && ok && newest > number {
				return fmt.Errorf("%s is written after m%d", f.Key, newest)
			} else if first {
				w.order[chat] = number
			}
		}
		w.flight = append(w.flight, f)
	case Cancel:
		w.again[f.Key] = true
		delete(w.on, f.Key)
		var left []Effect
		for _, g := range w.flight {
			if g.Key != f.Key || g.Try != f.Try {
				left = append(left, g)
			}
		}
		w.flight = left
	case End:
		switch {
		case w.ended[f.Key] != "" && !f.Late:
			return fmt.Errorf("%s ends twice", f.Key)
		case f.Result == Delivered && !w.sayings[f.Key]:
			return fmt.Errorf("%s is delivered, and the bot has not said so", f.Key)
		case f.Result != Delivered && w.sayings[f.Key]:
			return fmt.Errorf("%s ends as %s, and the bot has it", f.Key, f.Result)
		}
		w.ended[f.Key] = f.Result
	case Drop:
		if !w.texts[f.Key] {
			return fmt.Errorf("the text of %s is dropped twice", f.Key)
		}
		delete(w.texts, f.Key)
	}
	return nil
}
