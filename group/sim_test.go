package group

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
	"feishu-relay/internal/test/verify"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// TestSimulation runs whole groups in one goroutine: sidecars whose clocks differ, lanes that delay, and repeat, and
// reorder between senders, bots that answer, people who speak, command, recall and edit, and kills between any two
// effects.
func TestSimulation(t *testing.T) {
	simtest.Run(t, 1000, func(seed uint64, trace simtest.Trace) error { return simulate(seed, nil, trace) })
}

// fault is a mistake that is planted in a sidecar, or in all.
type fault struct {
	name   string
	want   string                        // what is found
	change func(*Config)                 // of the first sidecar
	apply  func(n *node, e *Event) bool  // false: the event is lost
	effect func(n *node, e *Effect) bool // false: it is not run
	book   func(e *Event) bool           // false: it is not in the book
}

// claimAgain lets everybody have the claims whose keys begin so, and none hears that it was done.
func claimAgain(prefix string) func(n *node, e *Effect) bool {
	return func(n *node, e *Effect) bool {
		if strings.HasPrefix(e.Key, prefix) {
			delete(n.w.claims, e.Key)
		}
		return e.Do != Share || e.Record.Kind != KindNotice || !strings.HasPrefix(e.Record.Key, prefix)
	}
}

var faults = []fault{
	{name: "a sidecar knows no limit", want: "of depth",
		change: func(cfg *Config) { cfg.Base.Limit, cfg.Base.Threshold = 1000, 1000 }},
	{name: "each message ends the count", want: "after the last one of a person", apply: func(_ *node, e *Event) bool {
		if e.Kind == Arrived {
			m := *e.Msg
			m.UserTS, m.ParentID = m.TS-1, ""
			e.Msg = &m
		}
		return true
	}},
	{name: "everybody has the claim to a notice", want: "shown 2 times", effect: claimAgain("stop/")},
	{name: "everybody has the claim to an answer", want: "answered 2 times", effect: claimAgain("answer/")},
	{name: "everybody has the claim to a person's message", want: "given to 2 bots", effect: claimAgain("one/")},
	{name: "nobody shows notices", want: "shown 0 times",
		effect: func(_ *node, e *Effect) bool { return e.Do != React }},
	{name: "nobody answers", want: "answered 0 times",
		effect: func(_ *node, e *Effect) bool { return e.Do != Reply }},
	{name: "nobody gives a person's message", want: "given to 0 bots",
		effect: func(_ *node, e *Effect) bool { return e.Do != Give }},
	{name: "commands are not shared", want: "different settings", effect: func(_ *node, e *Effect) bool {
		return e.Do != Share || e.Record.Kind != KindCommand
	}},
	{name: "a delivery is not in the book", want: "another state",
		book: func(e *Event) bool { return e.Kind != Delivered }},
	{name: "a tick is not in the book", want: "another state",
		book: func(e *Event) bool { return e.Kind != Tick }},
	{name: "repeats are not known", want: "again", apply: func(n *node, e *Event) bool {
		if e.Kind == Arrived {
			delete(n.s.byID, e.Msg.MessageID)
		}
		return true
	}},
	{name: "the transcript keeps what was recalled", want: "transcript",
		effect: func(_ *node, e *Effect) bool { return e.Do != Redact }},
	{name: "a recall is not heard", want: "still has", apply: func(n *node, e *Event) bool {
		return n.agent != "b" || e.Kind != Recalled && (e.Kind != Side || e.Records[0].Kind != KindRecall)
	}},
}

// Each planted fault is found by its invariant.
func TestSimulationFindsFaults(t *testing.T) {
	verify.Only(t)
	for _, f := range faults {
		simtest.Finds(t, f.name, f.want, func(seed uint64) error { return simulate(seed, &f, nil) })
	}
}

// world is one run.
type world struct {
	r      *rand.Rand
	now    int64 // true time in ms
	nodes  []*node
	claims map[string]holder
	trace  simtest.Trace
	fault  *fault
	skewed bool // clocks differ
	one    bool // mode one
	calm   bool // people wait until the bots are silent
	writes bool // a sidecar can write to Feishu
	shown  int  // notices in this round
	failed bool // Feishu refused one
	muted  bool // a bot was muted over the API
	limit  int

	people   []*said // what people said, in their order
	nr       int
	spoke    int64 // when a person spoke last; 0: the round is not looked at
	replies  map[string]int
	reacted  map[string]bool
	recalled map[relay.MessageID]bool
	commands map[relay.MessageID]bool
	talk     int // bots' messages since the last word of a person
	err      error
}

type holder struct {
	agent relay.AgentName
	life  int
}

type said struct {
	m       relay.Message
	gave    map[relay.AgentName]bool
	tainted bool // its bot may have been given it by a process that was killed before it said so
	plain   bool
}

// node is one sidecar and its bot.
type node struct {
	w      *world
	agent  relay.AgentName
	cfg    Config
	skew   int64
	s      *State
	book   []Event
	from   []byte // the snapshot before the book; nil: none
	life   int
	todo   []Effect
	lanes  map[relay.AgentName][]parcel // by sender, in its order
	texts  map[relay.MessageID]string   // the transcript
	issued map[relay.MessageID]int      // deliveries
}

type parcel struct {
	at int64
	e  Event
}

func (w *world) logf(format string, args ...any) {
	w.trace.Print("%6d "+format, slices.Insert(args, 0, any(w.now-simStart))...)
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.logf("FAILED: %v", w.err)
	}
}

const simStart = 1_767_000_000_000

var simNames = directory()

// simulate runs a seed and returns the first invariant that fails.
func simulate(seed uint64, f *fault, trace simtest.Trace) error {
	w := &world{r: rand.New(rand.NewPCG(seed, 7)), now: simStart, claims: map[string]holder{}, trace: trace, fault: f,
		replies: map[string]int{}, reacted: map[string]bool{}, recalled: map[relay.MessageID]bool{},
		commands: map[relay.MessageID]bool{}}
	w.skewed, w.one, w.calm, w.limit = w.r.IntN(3) == 0, w.r.IntN(3) == 0, w.r.IntN(2) == 0, 2+w.r.IntN(3)
	for i := range 2 + w.r.IntN(4) {
		n := &node{w: w, agent: relay.AgentName(string(rune('a' + i))), lanes: map[relay.AgentName][]parcel{},
			texts: map[relay.MessageID]string{}, issued: map[relay.MessageID]int{}}
		n.cfg = Config{Agent: n.agent, Name: "Bot" + strings.ToUpper(string(n.agent)), CanWrite: w.r.IntN(4) > 0,
			Base:     Settings{Answer: ModeAll, Limit: w.limit, Threshold: w.limit - 1, Judge: true},
			MaxDepth: 6, SteerBy: "members", Commands: []string{"/relay"}, Notice: true, Window: time.Hour,
			MaxAge: 10 * time.Minute, ShareMessages: true}
		if w.one {
			n.cfg.Base.Answer = ModeOne
		}
		if w.r.IntN(3) == 0 {
			n.cfg.Base.Threshold = 1
		}
		if w.skewed {
			n.skew = int64(w.r.IntN(360_000) - 180_000)
		}
		w.writes = w.writes || n.cfg.CanWrite
		if f != nil && f.change != nil && i == 0 {
			f.change(&n.cfg)
		}
		n.s = New()
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		n.apply(Event{Kind: Start, Config: &n.cfg})
		n.join()
	}
	for range 20 { // they get to know each other
		w.step(0)
	}
	w.settle()
	for range 20 + w.r.IntN(60) {
		w.step(1)
	}
	w.settle()
	w.checkRound()
	w.check()
	return w.err
}

func (n *node) join() {
	var all []relay.AgentName
	for _, o := range n.w.nodes {
		all = append(all, o.agent)
	}
	n.apply(Event{Kind: Online, Agents: all})
	n.apply(Event{Kind: Joined})
	n.apply(Event{Kind: CaughtUp})
}

func (n *node) clock() time.Time { return time.UnixMilli(n.w.now + n.skew).UTC() }

// apply applies an event, and collects what is to be done.
func (n *node) apply(e Event) {
	w := n.w
	if w.fault != nil && w.fault.apply != nil && !w.fault.apply(n, &e) {
		return
	}
	e.At = n.clock()
	if e.Msg != nil {
		e.Names = NamesOf(simNames, e.Msg)
	}
	limit := n.limit() // which this event may change
	effects, changed := n.s.Apply(e)
	limit = max(limit, n.limit())
	if changed && (w.fault == nil || w.fault.book == nil || w.fault.book(&e)) {
		n.book = append(n.book, e)
	}
	again := e.Kind == Start
	for _, e := range effects {
		if e.Do == Deliver && !again {
			if n.issued[e.ID]++; n.issued[e.ID] > 1 {
				w.failf("%s delivers %s again", n.agent, e.ID)
			}
			if EditOf(e.Msg) != "" { // of a message that the bot was given, or was released
				n.todo = append(n.todo, e)
				continue
			}
			if e.Decision.Depth >= 6 || e.Decision.Tier != policy.TierReleased && e.Decision.Depth >= limit {
				w.failf("%s delivers %s of depth %d", n.agent, e.ID, e.Decision.Depth)
			}
		}
		n.todo = append(n.todo, e)
	}
	if w.trace != nil {
		w.logf("%s %s %s%s", n.agent, e.Kind, e.Key, e.ID)
		for i := range effects {
			if text := effectText(&effects[i]); text != "" {
				w.logf("    > %s", text)
			}
		}
	}
}

// limit is the one that holds at a node.
func (n *node) limit() int {
	return n.s.settings().Limit
}

// send puts an event on the way to a node, behind what its sender sent before.
func (n *node) send(from relay.AgentName, e Event) {
	lane := n.lanes[from]
	at := n.w.now + int64(n.w.r.IntN(700))
	if len(lane) > 0 {
		at = max(at, lane[len(lane)-1].at)
	}
	n.lanes[from] = append(lane, parcel{at, e})
	if n.w.r.IntN(20) == 0 && (e.Msg == nil || EditOf(e.Msg) == "") { // the loop knows the ids of edits
		n.lanes[from] = append(n.lanes[from], parcel{at, e})
	}
}

// step does one thing; people take part if that is 1.
func (w *world) step(people int) {
	n := w.nodes[w.r.IntN(len(w.nodes))]
	switch x := w.r.IntN(100); {
	case x < 40:
		w.now += int64(w.r.IntN(60))
		w.deliver(n)
	case x < 80:
		n.work()
	case x < 88:
		w.now += int64(w.r.IntN(300))
		w.tick()
	case x < 90:
		n.kill()
	case x < 91: // it takes some for offline, or its bot is not connected
		var some []relay.AgentName
		for _, o := range w.nodes {
			if w.r.IntN(2) == 0 {
				some = append(some, o.agent)
			}
		}
		n.apply(Event{Kind: Online, Agents: some, Away: w.r.IntN(2) == 0})
	case people == 0:
	default:
		w.person()
	}
}

// deliver takes what is due from the lanes to a node.
func (w *world) deliver(n *node) {
	var senders []relay.AgentName
	for from, lane := range n.lanes {
		if len(lane) > 0 && lane[0].at <= w.now {
			senders = append(senders, from)
		}
	}
	if len(senders) == 0 {
		return
	}
	slices.Sort(senders)
	from := senders[w.r.IntN(len(senders))]
	e := n.lanes[from][0].e
	n.lanes[from] = n.lanes[from][1:]
	n.apply(e)
}

func (w *world) tick() {
	for _, n := range w.nodes {
		if at := n.s.Next(); !at.IsZero() && !at.After(n.clock()) {
			n.apply(Event{Kind: Tick})
		}
	}
}

// kill ends a node between two effects, and starts it again from its records.
func (n *node) kill() {
	w := n.w
	was, _ := json.Marshal(n.s)
	raw, _ := json.Marshal(n.book)
	var book []Event
	n.s = New()
	if err := json.Unmarshal(raw, &book); err != nil {
		panic(err)
	}
	if n.from != nil {
		if err := json.Unmarshal(n.from, n.s); err != nil {
			panic(err)
		}
	}
	for _, e := range book {
		n.s.Apply(e)
	}
	is, _ := json.Marshal(n.s)
	if !bytes.Equal(was, is) {
		w.failf("%s: the events make another state:\n%s\nwant\n%s", n.agent, is, was)
	}
	if w.r.IntN(2) == 0 { // the book begins again
		n.from, n.book = is, nil
	}
	for _, e := range n.todo {
		if e.Do == Give {
			for _, p := range w.people {
				p.tainted = p.tainted || p.m.MessageID == e.ID
			}
		}
	}
	w.logf("%s is killed", n.agent)
	n.life++
	n.todo = nil
	n.apply(Event{Kind: Start, Config: &n.cfg})
	n.join()
}

// work does one thing that a node has to do, in its order for each kind.
func (n *node) work() {
	if len(n.todo) == 0 {
		return
	}
	i := n.w.r.IntN(len(n.todo))
	for j := range i { // the lanes keep their order
		if lane(n.todo[j].Do) != "" && lane(n.todo[j].Do) == lane(n.todo[i].Do) {
			i = j
			break
		}
	}
	e := n.todo[i]
	n.todo = slices.Delete(n.todo, i, i+1)
	if n.w.fault != nil && n.w.fault.effect != nil && !n.w.fault.effect(n, &e) {
		return
	}
	n.run(&e)
}

func lane(do Do) string {
	switch do {
	case Append, Redact:
		return "transcript"
	case Publish, Share, Deliver:
		return string(do)
	}
	return ""
}

func (n *node) run(e *Effect) {
	w := n.w
	switch e.Do {
	case Append:
		if of := EditOf(e.Msg); of != "" {
			if _, there := n.texts[of]; there {
				n.texts[of] = e.Msg.Content
			}
		} else {
			n.texts[e.ID] = e.Msg.Content
		}
	case Redact:
		delete(n.texts, e.ID)
	case Publish:
		for _, o := range w.nodes {
			if o != n && e.Msg.Role == relay.RoleUser {
				o.send(n.agent+" people", Event{Kind: Shared, Msg: e.Msg})
			} else if o != n {
				o.send(n.agent+" bots", Event{Kind: Arrived, Msg: e.Msg})
			}
		}
	case Share:
		for _, o := range w.nodes {
			if o != n {
				o.send(n.agent+" side", Event{Kind: Side, Records: []*Record{e.Record}})
			}
		}
	case Deliver:
		n.apply(Event{Kind: Done, Key: e.Key})
		n.apply(Event{Kind: Delivered, ID: e.ID, Verdict: &Verdict{Door: "stream"}})
		if EditOf(e.Msg) == "" {
			n.answer(e.Msg)
		}
		return
	case Give:
		late := e.Until > 0 && n.clock().UnixMilli() > int64(e.Until) || w.r.IntN(30) == 0 && e.Until > 0
		if !late {
			for _, p := range w.people {
				if p.m.MessageID == e.ID {
					p.gave[n.agent] = true
				}
			}
			n.answer(e.Msg)
		}
		n.apply(Event{Kind: Done, Key: e.Key, Failed: late})
		return
	case Ask:
		n.apply(Event{Kind: Done, Key: e.Key,
			Decision: &policy.Decision{Allow: w.r.IntN(3) > 0, Tier: policy.TierJudge, Reason: "judge_no"}})
		return
	case Claim:
		h, ok := w.claims[e.Key]
		if !ok {
			h = holder{n.agent, n.life}
			w.claims[e.Key] = h
		}
		n.apply(Event{Kind: Done, Key: e.Key, Failed: h != holder{n.agent, n.life}})
		return
	case React, Reply:
		if late := n.clock().UnixMilli() > int64(e.Until); late || w.r.IntN(8) == 0 && len(w.nodes) > 2 {
			w.failed = w.failed || e.Do == React
			n.apply(Event{Kind: Done, Key: e.Key, Failed: true})
			return
		}
		if e.Do == Reply {
			w.replies[string(e.ID)+" "+string(n.agent)] = 1
		} else {
			if key := e.Key + " " + string(n.agent); !w.reacted[key] {
				w.shown++
				w.reacted[key] = true
			}
		}
	}
	if e.Key != "" {
		n.apply(Event{Kind: Done, Key: e.Key, ID: relay.MessageID("om_shown_" + e.Key)})
	}
}

// answer has the bot speak, or not.
func (n *node) answer(to *relay.Message) {
	w := n.w
	if to == nil || w.r.IntN(6) == 0 || w.nr > 80 && w.r.IntN(3) > 0 || w.nr > 120 {
		return
	}
	m := w.message()
	m.Content = "says " + string(m.MessageID)
	switch w.r.IntN(4) {
	case 0:
	case 1:
		if len(w.people) > 0 {
			m.ParentID = w.people[len(w.people)-1].m.MessageID
		}
	default:
		m.ParentID = to.MessageID
	}
	m.ThreadID = to.ThreadID
	if w.skewed || w.r.IntN(2) == 0 {
		m.TS = 0
	}
	w.talk++
	n.apply(Event{Kind: Said, Msg: &m})
	if w.r.IntN(25) == 0 {
		edit := m
		edit.MessageID += "_edit"
		edit.RelayMsgID = edit.MessageID
		edit.Content, edit.Metadata = "edited "+string(m.MessageID), relay.Metadata{MetaEditOf: encode(m.MessageID)}
		n.apply(Event{Kind: Said, Msg: &edit})
	}
}

func (w *world) message() relay.Message {
	w.nr++
	id := relay.MessageID(fmt.Sprintf("om_%d", w.nr))
	return relay.Message{Channel: "feishu", ChatID: "oc", RelayMsgID: id, MessageID: id, MsgType: "text",
		TS: relay.Millis(w.now), Metadata: relay.Metadata{}}
}

// person has a person do something.
func (w *world) person() {
	if w.calm {
		w.settle()
		w.checkRound()
	}
	m := w.message()
	m.SenderName, m.SenderID = []string{"Ann", "Tom"}[w.r.IntN(2)], "ou_x"
	m.Content = "text " + string(m.MessageID)
	if w.r.IntN(5) == 0 {
		m.ThreadID = "omt_1"
	}
	p := &said{m: m, gave: map[relay.AgentName]bool{}}
	switch x := w.r.IntN(12); {
	case x == 0 && len(w.people) > 0:
		w.recall(w.people[w.r.IntN(len(w.people))].m.MessageID)
		return
	case x == 1 && w.nr > 1:
		id := relay.MessageID(fmt.Sprintf("om_%d", 1+w.r.IntN(w.nr)))
		w.recall(id)
		return
	case x == 2:
		bodies := []string{`{"limit":3}`, `{"paused":true}`, `{"paused":false,"limit":2}`, `{"budget":7}`, `{"muted":{"a":"1m"}}`}
		n := w.nodes[w.r.IntN(len(w.nodes))]
		n.apply(Event{Kind: Changed, Verb: []Verb{"", "", VerbForget, VerbStop}[w.r.IntN(4)],
			Body: bodies[w.r.IntN(len(bodies))]})
		w.muted = true
		return
	case x < 5:
		commands := []string{"pause 1m", "resume", "limit 2", "limit 4", "mute BotA", "unmute BotA", "stop", "continue",
			"status", "why", "help", "budget 9", "budget 0", "forget", "judge off", "nonsense", "threshold 1"}
		p.m.Content = "/relay " + commands[w.r.IntN(len(commands))]
		w.commands[p.m.MessageID] = true
	case x < 7:
		p.m.Content = "继续"
	case x == 7:
		p.m.Content = "@BotB " + p.m.Content
	default:
		p.plain = p.m.ThreadID == "" // a topic goes on with its bot
	}
	if !w.commands[p.m.MessageID] {
		w.talk, w.shown, w.spoke = 0, 0, w.now
	}
	if strings.Contains(p.m.Content, "continue") || p.m.Content == "继续" { // which releases as much as has stopped
		w.talk, w.shown, w.spoke = -1<<30, 0, 0
	}
	w.people = append(w.people, p)
	heard := false
	for i, n := range w.nodes {
		if w.r.IntN(6) > 0 || i == len(w.nodes)-1 && !heard {
			heard = true
			n.send("feishu", Event{Kind: Heard, Msg: &p.m, User: true, MayEdit: w.r.IntN(10) > 0 || i == 0})
		}
	}
	w.logf("%s says %s %q", p.m.SenderName, p.m.MessageID, p.m.Content)
}

func (w *world) recall(id relay.MessageID) {
	w.logf("%s is recalled", id)
	w.recalled[id] = true
	for i, n := range w.nodes {
		if w.r.IntN(3) > 0 || i == 0 {
			n.send("feishu", Event{Kind: Recalled, ID: id})
		}
	}
}

// settle lets the group run until nothing happens any more.
func (w *world) settle() {
	for _, n := range w.nodes {
		n.join()
	}
	for range 20_000 {
		if w.err != nil {
			return
		}
		busy := false
		for _, n := range w.nodes {
			if len(n.todo) > 0 {
				busy = true
				n.work()
			}
			for _, lane := range n.lanes {
				busy = busy || len(lane) > 0
			}
			w.deliver(n)
		}
		w.tick()
		w.now += int64(w.r.IntN(20))
		if busy || slices.ContainsFunc(w.nodes, func(n *node) bool { return len(n.todo) > 0 }) {
			continue
		}
		next := time.Time{}
		for _, n := range w.nodes {
			if at := n.s.Next(); !at.IsZero() {
				at = at.Add(-time.Duration(n.skew) * time.Millisecond)
				if next.IsZero() || at.Before(next) {
					next = at
				}
			}
		}
		if next.IsZero() {
			return
		}
		w.now = max(w.now, next.UnixMilli())
	}
	w.failf("the group never comes to rest")
}

// check holds what has to be true of every run.
func (w *world) check() {
	first := w.nodes[0]
	for _, n := range w.nodes {
		if a, b := string(encode(first.s.d.Settings)), string(encode(n.s.d.Settings)); a != b {
			w.failf("%s and %s have different settings: %s and %s", first.agent, n.agent, a, b)
		}
		n.checkRounds()
		n.checkRecalled()
	}
	w.checkAnswers()
	for _, p := range w.people {
		if !w.one || !p.plain || p.tainted || w.recalled[p.m.MessageID] {
			continue
		}
		if muted := w.everMuted(); len(p.gave) > 1 || len(p.gave) == 0 && !muted {
			w.failf("%s was given to %d bots: %v", p.m.MessageID, len(p.gave), p.gave)
		}
	}
}

func (w *world) everMuted() bool {
	return w.muted || slices.ContainsFunc(w.people, func(p *said) bool { return strings.Contains(p.m.Content, "mute") })
}

// checkRound holds, once the bots are silent, that they said no more than the bound since the last word of a person,
// and that the group was shown once that they stopped, if they did.
func (w *world) checkRound() {
	if n := len(w.nodes); w.calm && w.talk > n+n*(n-1)*6 {
		w.failf("bots said %d messages after the last one of a person", w.talk)
	}
	stops := false
	for _, l := range w.nodes[0].s.Lines() {
		if int64(l.TS) > w.spoke && !l.Recalled {
			stops = stops || slices.ContainsFunc(l.Verdicts, func(v Verdict) bool { return v.Stopped == relay.MaxDepth })
		}
	}
	if !w.calm || w.skewed || w.spoke == 0 {
		return
	}
	if w.shown > 1 || stops && w.shown == 0 && w.writes && !w.failed {
		w.failf("the group was shown %d times that its bots stopped: %t", w.shown, stops)
	}
}

// checkRounds holds that a bot is given at most as many answers of one sender and round as the highest limit.
func (n *node) checkRounds() {
	type key struct {
		bot    relay.AgentName
		thread string
		round  relay.Millis
	}
	given, last := map[key]int{}, map[relay.AgentName]*Line{}
	for _, l := range n.s.Lines() {
		if v := l.of(n.agent); v != nil && l.Bot != "" && v.Decision != nil && v.Decision.Allow &&
			v.Decision.Tier != policy.TierReleased {
			k := key{l.Bot, l.Thread, l.Round}
			if was := last[l.Bot]; was != nil && continues(was, l, false) {
				continue // a piece of one answer
			}
			last[l.Bot] = l
			if given[k]++; given[k] > 6 {
				n.w.failf("%s was given %d messages of %s in one round", n.agent, given[k], l.Bot)
			}
		}
	}
}

// checkRecalled holds that a recalled text is nowhere.
func (n *node) checkRecalled() {
	raw, _ := json.Marshal(n.s)
	for id := range n.w.recalled {
		for _, text := range []string{"text " + string(id), "says " + string(id), "edited " + string(id)} {
			if bytes.Contains(raw, []byte(`"`+text+`"`)) {
				n.w.failf("%s still has %q", n.agent, text)
			}
			if n.texts[id] == text {
				n.w.failf("the transcript of %s still has %q", n.agent, text)
			}
		}
	}
}

// checkAnswers holds that the group is shown each answer once.
func (w *world) checkAnswers() {
	answers := map[relay.MessageID]int{}
	for key := range w.replies {
		id, _, _ := strings.Cut(key, " ")
		answers[relay.MessageID(id)]++
	}
	for id := range w.commands {
		if n := answers[id]; n > 1 || n == 0 && w.writes && !w.recalled[id] && !w.refused(id) {
			w.failf("the command %s was answered %d times", id, n)
		}
	}
}

// refused reports whether a command has no answer for a reason: each sidecar that could write has failed.
func (w *world) refused(id relay.MessageID) bool {
	for _, n := range w.nodes {
		for _, r := range n.s.Shown() {
			if r.Kind == KindNotice && r.Of == id && strings.HasPrefix(string(r.Message), "notice:") {
				return true
			}
		}
	}
	return false
}
