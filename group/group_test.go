package group

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"feishu-relay/mention"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Each file of testdata is a conversation as the sidecar of agent "a", whose bot is BotA, sees it: an event a line, its
// text below it, and behind the dashes the records and effects that follow. Effects that only wait for a disk or a lane
// have their results at once. With -rewrite the files are written anew: read the difference.
func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := &conversation{now: time.Date(2026, 1, 2, 14, 0, 0, 0, time.FixedZone("CST", 8*3600))}
		c.s = New()
		c.config(nil)
		c.apply(t, Event{Kind: Start, Config: &c.cfg})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return c.run(t, d) })
	})
}

type conversation struct {
	s    *State
	cfg  Config
	now  time.Time
	book []Event
	out  strings.Builder
}

// arg is the value of an argument, "" if it is missing.
func arg(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func has(d *datadriven.TestData, key string) bool {
	return slices.ContainsFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
}

func number2(d *datadriven.TestData, key string, otherwise int) int {
	if n, err := strconv.Atoi(arg(d, key)); err == nil {
		return n
	}
	return otherwise
}

func agentsIn(text string) (out []relay.AgentName) {
	for name := range strings.SplitSeq(text, ",") {
		if name != "" {
			out = append(out, relay.AgentName(name))
		}
	}
	return out
}

// directory knows the bots a to d by the names BotA to BotD.
func directory() *mention.Directory {
	var agents []mention.Agent
	for _, x := range []string{"a", "b", "c", "d"} {
		agents = append(agents, mention.Agent{ID: x, Names: []string{"Bot" + strings.ToUpper(x)}})
	}
	return mention.NewDirectory(agents)
}

func (c *conversation) config(d *datadriven.TestData) *Config {
	c.cfg = Config{Agent: "a", Name: "BotA", CanWrite: true,
		Base:     Settings{Answer: ModeAll, Limit: 3, Threshold: 1, Judge: true},
		MaxDepth: 10, SteerBy: "members", Commands: []string{"/relay", "/中继"}, Notice: true, Window: time.Hour,
		MaxAge: 10 * time.Minute, ShareMessages: true}
	if d == nil {
		return &c.cfg
	}
	for _, a := range d.CmdArgs {
		v := strings.Join(a.Vals, ",")
		n, _ := strconv.Atoi(v)
		switch a.Key {
		case "mode":
			c.cfg.Base.Answer = Mode(v)
		case "default":
			c.cfg.Base.DefaultBot = relay.AgentName(v)
		case "limit":
			c.cfg.Base.Limit = n
		case "threshold":
			c.cfg.Base.Threshold = n
		case "judge":
			c.cfg.Base.Judge = v == "on"
		case "budget":
			c.cfg.Base.Budget = n
		case "locked":
			c.cfg.Locked = true
		case "by":
			c.cfg.SteerBy = v
		case "notice":
			c.cfg.Notice = v != "off"
		case "policy":
			c.cfg.GroupPolicy = v
		case "turns":
			c.cfg.Count.Turns = true
		case "idle":
			c.cfg.Count.IdleReset = time.Duration(n) * time.Second
		case "window":
			c.cfg.Window = time.Duration(n) * time.Second
		case "all":
			c.cfg.MentionAll = true
		case "mute-on-error":
			c.cfg.OnErrorAllow = false
		case "no-write":
			c.cfg.CanWrite = false
		}
	}
	return &c.cfg
}

// message is the message of an event.
func (c *conversation) message(d *datadriven.TestData) relay.Message {
	m := relay.Message{Channel: "feishu", ChatID: "oc_x", Content: d.Input, MessageID: relay.MessageID(d.CmdArgs[0].Key),
		RelayMsgID: relay.MessageID(d.CmdArgs[0].Key), TS: relay.MillisOf(c.now), MsgType: "text",
		ParentID: relay.MessageID(arg(d, "parent")), ThreadID: arg(d, "topic"), RootID: relay.MessageID(arg(d, "root")),
		SenderName: arg(d, "by"), SenderAgentName: relay.AgentName(arg(d, "from")), Metadata: relay.Metadata{}}
	if d, err := time.ParseDuration(arg(d, "ago")); err == nil {
		m.TS -= relay.Millis(d.Milliseconds())
	}
	if has(d, "no-ts") {
		m.TS = 0
	}
	if d, err := time.ParseDuration(arg(d, "user")); err == nil {
		m.UserTS = relay.MillisOf(c.now.Add(-d))
	}
	for _, key := range []string{"edit_of", "part_of"} {
		if v := arg(d, key); v != "" {
			m.Metadata[key] = encode(v)
		}
	}
	if who := arg(d, "person"); who != "" {
		m.Mentions = append(m.Mentions, relay.Mention{Name: who, OpenID: relay.OpenID("ou_" + who)})
	}
	return m
}

func (c *conversation) run(t *testing.T, d *datadriven.TestData) string {
	c.out.Reset()
	c.now = c.now.Add(100 * time.Millisecond)
	if after, err := time.ParseDuration(arg(d, "after")); err == nil {
		c.now = c.now.Add(after)
	}
	id := relay.MessageID("")
	if len(d.CmdArgs) > 0 {
		id = relay.MessageID(d.CmdArgs[0].Key)
	}
	switch d.Cmd {
	case "group": // the bots that are in the group and online; a is
		c.apply(t, Event{Kind: Configure, Config: c.config(d)})
		c.member(t, !has(d, "out"))
		c.apply(t, Event{Kind: CaughtUp})
		for _, agent := range agentsIn(arg(d, "bots")) {
			set := Changes{}
			set.set(keyIn+string(agent), Peer{Name: "Bot" + strings.ToUpper(string(agent)), CanWrite: !has(d, "no-write"),
				Answer: c.cfg.Base.Answer, Budget: c.cfg.Base.Budget, MentionAll: agent == "c"})
			for key, v := range set {
				set[key] = Value{relay.MillisOf(c.now), string(agent), v.V}
			}
			c.side(t, Record{Kind: KindSet, Agent: agent, Set: set})
		}
		c.apply(t, Event{Kind: Online, Agents: agentsIn(arg(d, "bots"))})
		c.now = c.now.Add(time.Second)
		c.apply(t, Event{Kind: Tick})
		return ""
	case "config":
		c.apply(t, Event{Kind: Configure, Config: c.config(d)})
	case "online":
		c.apply(t, Event{Kind: Online, Agents: agentsIn(arg(d, "bots")), Away: has(d, "away")})
	case "member":
		c.apply(t, Event{Kind: CaughtUp})
		c.member(t, !has(d, "out"))
	case "say":
		c.apply(t, c.said(Said, d))
	case "arrive":
		e := c.said(Arrived, d)
		e.History, e.Reason = has(d, "history"), relay.Reason(arg(d, "stop"))
		c.apply(t, e)
	case "native":
		c.apply(t, c.said(Native, d))
	case "hear":
		e := c.said(Heard, d)
		e.User, e.MayEdit = !has(d, "app"), !has(d, "may-not")
		c.apply(t, e)
	case "shared":
		e := c.said(Shared, d)
		e.Msg.Role = relay.RoleUser
		c.apply(t, e)
	case "judged":
		c.apply(t, Event{Kind: Done, Key: "ask/" + string(id),
			Decision: &policy.Decision{Allow: has(d, "yes"), Tier: policy.TierJudge, Reason: "judge_no"}})
	case "delivered":
		c.apply(t, Event{Kind: Delivered, ID: id,
			Verdict: &Verdict{Delivered: relay.MillisOf(c.now), Stopped: relay.Reason(arg(d, "stop"))}})
	case "stop": // the verdict of another sidecar
		c.side(t, Record{Kind: KindVerdict, Agent: relay.AgentName(arg(d, "at")), Of: id, Thread: arg(d, "topic"),
			Sender: relay.AgentName(arg(d, "from")), Round: c.line(arg(d, "round")), Said: c.line(string(id)),
			Verdict: &Verdict{At: relay.MillisOf(c.now), Stopped: relay.Reason(arg(d, "why"))}})
	case "took": // another bot was given a person's message
		c.side(t, Record{Kind: KindVerdict, Agent: relay.AgentName(arg(d, "at")), Of: id,
			Verdict: &Verdict{At: relay.MillisOf(c.now), Delivered: relay.MillisOf(c.now)}})
	case "side":
		var r Record
		if err := json.Unmarshal([]byte(d.Input), &r); err != nil {
			t.Fatal(err)
		}
		r.TS = cmp.Or(r.TS, relay.MillisOf(c.now))
		for key, v := range r.Set {
			v.At = cmp.Or(v.At, r.TS)
			r.Set[key] = v
		}
		c.side(t, r)
	case "recall":
		c.apply(t, Event{Kind: Recalled, ID: id})
	case "patch", "api":
		c.apply(t, Event{Kind: Changed, Call: "call", Verb: Verb(id), Body: d.Input})
	case "claimed":
		c.apply(t, Event{Kind: Done, Key: string(id), Failed: has(d, "by")})
	case "done":
		c.apply(t, Event{Kind: Done, Key: string(id), Failed: has(d, "failed"), ID: relay.MessageID(arg(d, "message"))})
	case "wait":
		c.now = c.now.Add(time.Duration(number2(d, "s", 1))*time.Second - 100*time.Millisecond)
		c.apply(t, Event{Kind: Tick})
	case "restart":
		c.s = replay(t, c.book)
		c.apply(t, Event{Kind: Start, Config: &c.cfg})
		c.apply(t, Event{Kind: CaughtUp})
	case "next":
		if at := c.s.Next(); !at.IsZero() {
			return fmt.Sprintf("in %v\n", at.Sub(c.now.Truncate(time.Millisecond)))
		}
		return "never\n"
	case "lines":
		for _, l := range c.s.Lines() {
			c.print("", fmt.Sprintf("%s %s%s depth=%d", l.ID, l.Bot, l.Person, l.Depth))
		}
	case "settings":
		g := c.s.View(c.now)
		c.print("", string(encode(g.Settings)))
	case "view":
		out, _ := json.Marshal(c.s.View(c.now))
		c.print("", string(out))
	case "weigh":
		e := c.said(Arrived, d)
		if arg(d, "by") != "" {
			e.Kind, e.User = Heard, true
		}
		e.At = c.now
		why, decision, asks := c.s.Weigh(e)
		c.print("", strings.TrimSpace(fmt.Sprintf("%s judge=%t %s", cmp.Or(why, "pass"), asks, encode(decision))))
	case "fate":
		c.print("", string(cmp.Or(c.s.Fate(relay.MillisOf(c.now), id, has(d, "given")), "stays")))
	default:
		t.Fatalf("%s: unknown event %s", d.Pos, d.Cmd)
	}
	return c.out.String()
}

// said is an event with a message.
func (c *conversation) said(kind EventKind, d *datadriven.TestData) Event {
	m := c.message(d)
	return Event{Kind: kind, Msg: &m, Names: NamesOf(directory(), &m)}
}

func (c *conversation) side(t *testing.T, r Record) {
	c.apply(t, Event{Kind: Side, Records: []*Record{&r}})
}

func (c *conversation) member(t *testing.T, in bool) {
	if in {
		c.apply(t, Event{Kind: Joined})
	} else {
		c.apply(t, Event{Kind: Left})
	}
}

// line is when a message was said.
func (c *conversation) line(id string) relay.Millis {
	if l := c.s.byID[relay.MessageID(id)]; l != nil {
		return l.TS
	}
	return 0
}

func (c *conversation) print(prefix, text string) {
	if text != "" {
		c.out.WriteString(prefix + text + "\n")
	}
}

// apply applies an event, and the results of effects that only wait for a disk or a lane.
func (c *conversation) apply(t *testing.T, e Event) {
	t.Helper()
	e.At = c.now
	was, before := snapshot(t, c.s), tracked(c.s)
	effects, changed := c.s.Apply(e)
	if changed {
		c.book = append(c.book, copied(t, e))
	} else if is := snapshot(t, c.s); !bytes.Equal(was, is) {
		t.Fatalf("%s changes the state, and says that it does not:\n%s\nwas\n%s", e.Kind, is, was)
	}
	for _, text := range tracked(c.s) {
		if !slices.Contains(before, text) {
			c.print("", text)
		}
	}
	for i := range effects {
		if effects[i].Do == Tell {
			continue
		}
		c.print("", effectText(&effects[i]))
	}
	if was, is := snapshot(t, c.s), snapshot(t, replay(t, c.book)); !bytes.Equal(was, is) {
		t.Fatalf("after %s the events make another state:\n%s\nwant\n%s", e.Kind, is, was)
	}
	for _, e := range effects {
		switch e.Do {
		case Append, Publish, Share, Redact, Deliver:
			c.apply(t, Event{Kind: Done, Key: e.Key})
		}
	}
}

// copied is what the book has of a value.
func copied[V any](t testing.TB, v V) (out V) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func replay(t testing.TB, events []Event) *State {
	s := New()
	for _, e := range events {
		s.Apply(copied(t, e))
	}
	return s
}

func snapshot(t *testing.T, s *State) []byte {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// tracked is what a trace shows of a state where it is new.
func tracked(s *State) (out []string) {
	for _, l := range s.d.Lines[max(0, len(s.d.Lines)-20):] {
		text := fmt.Sprintf("line %s %s", l.ID, cmp.Or(string(l.Bot), l.Person))
		if l.Depth > 0 {
			text += fmt.Sprintf(" depth=%d", l.Depth)
		}
		out = append(out, text)
	}
	for _, a := range s.d.Queue {
		out = append(out, fmt.Sprintf("waits %s for %s", a.ID, stages[a.Stage].name))
	}
	for _, a := range s.d.Held {
		out = append(out, fmt.Sprintf("holds %s", a.ID))
	}
	var turns []string
	for _, turn := range s.d.Turns {
		text := "turn " + turn.claim()
		if turn.Kind == turnOne {
			text += fmt.Sprintf(" of %v", turn.Bots)
		}
		turns = append(turns, text)
	}
	slices.Sort(turns)
	return append(out, turns...)
}

// recordText is a record that is shared.
func recordText(r *Record) string {
	text := "share " + string(r.Kind)
	switch r.Kind {
	case KindVerdict:
		text += fmt.Sprintf(" %s %s", r.Of, verdictText(r.Verdict))
	case KindSet:
		text += " " + changesText(r.Set)
	case KindCommand:
		text += fmt.Sprintf(" %s %s by=%s", r.ID, r.Act, r.By)
		if len(r.Set) > 0 {
			text += " " + changesText(r.Set)
		}
		if len(r.Bots) > 0 {
			text += fmt.Sprintf(" bots=%v", r.Bots)
		}
		if r.Answer != "" {
			text += fmt.Sprintf(" answer=%q", r.Answer)
		}
	case KindNotice:
		text += fmt.Sprintf(" %s %s", r.Key, r.Message)
	case KindRecall:
		text += " " + string(r.Of)
	}
	return text
}

func verdictText(v *Verdict) string {
	switch {
	case v.Stopped != "":
		return "stopped " + string(v.Stopped)
	case v.Delivered != 0:
		return "delivered"
	}
	return "pass " + string(v.Decision.Tier)
}

func changesText(c Changes) string {
	var out []string
	for key, v := range c {
		out = append(out, key+"="+string(v.V))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func effectText(e *Effect) string {
	text := string(e.Do)
	switch e.Do {
	case Share:
		return recordText(e.Record)
	case Claim:
		return text + " " + e.Key
	case Review:
		return text
	case Respond:
		if e.Err != nil {
			return text + " " + e.Err.Error()
		}
		return text
	}
	text += " " + string(e.ID)
	if e.Decision != nil && (e.Do == Deliver || e.Do == Stop || e.Do == Ask) {
		text += fmt.Sprintf(" depth=%d", e.Decision.Depth)
	}
	if e.Do == Deliver {
		text += " " + string(e.Decision.Tier)
	}
	if e.Reason != "" {
		text += " " + string(e.Reason)
	}
	if e.Text != "" {
		text += fmt.Sprintf(" %q", e.Text)
	}
	return text
}
