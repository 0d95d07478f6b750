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
		c.s = New(c.config(nil))
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return c.run(t, d) })
	})
}

type conversation struct {
	s       *State
	cfg     Config
	now     time.Time
	records []Record
	out     strings.Builder
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

func (c *conversation) config(d *datadriven.TestData) Config {
	c.cfg = Config{Agent: "a", Name: "BotA", CanWrite: true,
		Base:     Settings{Answer: ModeAll, Limit: 3, Threshold: 1, Judge: true},
		MaxDepth: 10, SteerBy: "members", Commands: []string{"/relay", "/中继"}, Notice: true, Window: time.Hour,
		MaxAge: 10 * time.Minute, ShareMessages: true, Directory: directory()}
	if d == nil {
		return c.cfg
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
	return c.cfg
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
		c.apply(t, Configure{c.config(d)})
		c.apply(t, Membership{In: !has(d, "out")})
		c.apply(t, CaughtUp{})
		for _, agent := range agentsIn(arg(d, "bots")) {
			set := Changes{}
			set.set(keyIn+string(agent), Member{Name: "Bot" + strings.ToUpper(string(agent)), CanWrite: !has(d, "no-write"),
				Answer: c.cfg.Base.Answer, Budget: c.cfg.Base.Budget, MentionAll: agent == "c"})
			for key, v := range set {
				set[key] = Value{relay.MillisOf(c.now), string(agent), v.V}
			}
			c.apply(t, Side{Record{Kind: KindSet, Agent: agent, Set: set}})
		}
		c.apply(t, Online{Agents: agentsIn(arg(d, "bots"))})
		c.now = c.now.Add(time.Second)
		c.apply(t, Tick{})
		return ""
	case "config":
		c.apply(t, Configure{c.config(d)})
	case "online":
		c.apply(t, Online{Agents: agentsIn(arg(d, "bots")), Away: has(d, "away")})
	case "member":
		c.apply(t, Membership{In: !has(d, "out")})
	case "say":
		c.apply(t, Said{c.message(d)})
	case "arrive":
		c.apply(t, Arrived{Msg: c.message(d), History: has(d, "history"), Stop: relay.Reason(arg(d, "stop"))})
	case "hear":
		c.apply(t, Heard{Msg: c.message(d), User: !has(d, "app"), MayEdit: !has(d, "may-not")})
	case "shared":
		m := c.message(d)
		m.Role = relay.RoleUser
		c.apply(t, Shared{m})
	case "judged":
		c.apply(t, Judged{id, policy.Decision{Allow: has(d, "yes"), Tier: policy.TierJudge, Reason: "judge_no"}})
	case "delivered":
		c.apply(t, Delivered{id, Verdict{Delivered: relay.MillisOf(c.now), Stopped: relay.Reason(arg(d, "stop"))}})
	case "stop": // the verdict of another sidecar
		c.apply(t, Side{Record{Kind: KindVerdict, Agent: relay.AgentName(arg(d, "at")), Of: id, Thread: arg(d, "topic"),
			Sender: relay.AgentName(arg(d, "from")), Round: c.line(arg(d, "round")), Said: c.line(string(id)),
			Verdict: &Verdict{At: relay.MillisOf(c.now), Stopped: relay.Reason(arg(d, "why"))}}})
	case "took": // another bot was given a person's message
		c.apply(t, Side{Record{Kind: KindVerdict, Agent: relay.AgentName(arg(d, "at")), Of: id,
			Verdict: &Verdict{At: relay.MillisOf(c.now), Delivered: relay.MillisOf(c.now)}}})
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
		c.apply(t, Side{r})
	case "recall":
		c.apply(t, Recalled{id})
	case "edit":
		c.apply(t, Edited{id, d.Input})
	case "patch", "api":
		c.apply(t, Changed{Call: "call", Verb: Verb(id), Body: []byte(d.Input), Bots: agentsIn(arg(d, "bots"))})
	case "claimed":
		c.apply(t, Claimed{Key: string(id), Holder: relay.AgentName(cmp.Or(arg(d, "by"), "a")), Mine: !has(d, "by")})
	case "done":
		c.apply(t, Done{Key: string(id), Failed: has(d, "failed"), Message: relay.MessageID(arg(d, "message"))})
	case "wait":
		c.now = c.now.Add(time.Duration(number2(d, "s", 1))*time.Second - 100*time.Millisecond)
		c.apply(t, Tick{})
	case "restart":
		c.s = Restore(c.cfg, c.records)
		for _, e := range c.s.Pending() {
			c.print("again ", effectText(&e))
		}
		c.apply(t, CaughtUp{})
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
		m := c.message(d)
		if arg(d, "by") != "" {
			m.Role = relay.RoleUser
		}
		why, decision, asks := c.s.Weigh(c.now, m, true)
		c.print("", strings.TrimSpace(fmt.Sprintf("%s judge=%t %s", cmp.Or(why, "pass"), asks, encode(decision))))
	case "fate":
		c.print("", string(cmp.Or(c.s.Fate(relay.MillisOf(c.now), id, has(d, "given")), "stays")))
	default:
		t.Fatalf("%s: unknown event %s", d.Pos, d.Cmd)
	}
	return c.out.String()
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
	records, effects := c.s.Apply(c.now, e)
	for i := range records {
		c.print("", recordText(&records[i]))
		raw, err := json.Marshal(&records[i])
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		c.records = append(c.records, r)
	}
	for i := range effects {
		c.print("", effectText(&effects[i]))
	}
	if was, is := snapshot(t, c.s), snapshot(t, Restore(c.cfg, c.records)); !bytes.Equal(was, is) {
		t.Fatalf("after %T the records make another state:\n%s\nwant\n%s", e, is, was)
	}
	for _, e := range effects {
		switch e.Do {
		case Append, Publish, Share, Redact, Deliver:
			c.apply(t, Done{Key: e.Key})
		}
	}
}

func snapshot(t *testing.T, s *State) []byte {
	t.Helper()
	raw, err := json.Marshal(s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// recordText is a record in the trace; those that only keep books are left out.
func recordText(r *Record) string {
	var b strings.Builder
	shared := ""
	if r.Share {
		shared = "share "
	}
	switch r.Kind {
	case kindLine:
		if r.Line == nil {
			return ""
		}
		fmt.Fprintf(&b, "line %s %s", r.Line.ID, cmp.Or(string(r.Line.Bot), r.Line.Person))
		if r.Line.Depth > 0 {
			fmt.Fprintf(&b, " depth=%d", r.Line.Depth)
		}
	case kindQueue:
		fmt.Fprintf(&b, "waits %s for %s", r.Wait.ID, stages[r.Wait.Stage].name)
	case kindDrop:
		fmt.Fprintf(&b, "drop %s", r.Of)
	case kindTurn:
		if r.Turn.Over {
			return ""
		}
		fmt.Fprintf(&b, "turn %s", r.Turn.claim())
		if r.Turn.Kind == turnOne {
			fmt.Fprintf(&b, " of %v", r.Turn.Bots)
		}
	case KindVerdict:
		fmt.Fprintf(&b, "%sverdict %s %s", shared, r.Of, verdictText(r.Verdict))
		if r.Msg != nil {
			b.WriteString(", held")
		}
	case KindSet:
		fmt.Fprintf(&b, "%sset %s", shared, changesText(r.Set))
	case KindCommand:
		fmt.Fprintf(&b, "%scommand %s %s by=%s", shared, r.ID, r.Act, r.By)
		if len(r.Set) > 0 {
			fmt.Fprintf(&b, " %s", changesText(r.Set))
		}
		if len(r.Bots) > 0 {
			fmt.Fprintf(&b, " bots=%v", r.Bots)
		}
		if r.Answer != "" {
			fmt.Fprintf(&b, " answer=%q", r.Answer)
		}
	case KindNotice:
		fmt.Fprintf(&b, "%snotice %s %s", shared, r.Key, r.Message)
	case KindFailed, KindRecall, KindEdit:
		fmt.Fprintf(&b, "%s%s %s", shared, r.Kind, cmp.Or(string(r.Of), r.Key))
	}
	return b.String()
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
		return ""
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
