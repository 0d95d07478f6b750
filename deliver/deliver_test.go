package deliver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"feishu-relay/relay"
)

// Each file of testdata is what happens at one bot, an event a line, and below it what is to be done. With -rewrite the
// files are written anew: read the difference.
func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := &conversation{s: New(), now: time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return c.run(t, d) })
	})
}

type conversation struct {
	s    *State
	now  time.Time
	book []Event
	try  map[string]uint64 // by key, the newest
	out  strings.Builder
}

var config = Config{MaxAge: 10 * time.Minute, Timeout: 15 * time.Minute, Channels: []Channel{
	{Name: "gateway", First: 15 * time.Second, Most: 5 * time.Minute, Serial: true},
	{Name: "stream", First: time.Second, Most: 30 * time.Second},
}}

func (c *conversation) run(t *testing.T, d *datadriven.TestData) string {
	c.out.Reset()
	arg := func(i int) string {
		if i < len(d.CmdArgs) {
			return d.CmdArgs[i].Key
		}
		return ""
	}
	has := func(key string) bool { return d.HasArg(key) }
	val := func(key string) (v string) { d.MaybeScanArgs(t, key, &v); return v }
	switch d.Cmd {
	case "start":
		c.apply(t, Event{Kind: Start, Config: &config})
	case "take": // take key [chat=…] [sent=-5m] [bytes=…] [once] [waited]
		x := &Item{Key: arg(0), ID: relay.MessageID("id_" + arg(0)), Chat: val("chat"), Sent: relay.MillisOf(c.now),
			Bytes: 100, Once: has("once"), Waited: has("waited")}
		if v := val("sent"); v != "" {
			ago, err := time.ParseDuration(v)
			if err != nil {
				t.Fatal(err)
			}
			x.Sent = relay.MillisOf(c.now.Add(ago))
		}
		if v := val("bytes"); v != "" {
			x.Bytes, _ = strconv.Atoi(v)
		}
		c.apply(t, Event{Kind: Take, Item: x})
	case "open": // open channel conn [has=id] [confirms]; conn 0: closed
		conn, _ := strconv.ParseUint(arg(1), 10, 64)
		c.apply(t, Event{Kind: Open, Channel: arg(0), Conn: conn, ID: relay.MessageID(val("has")), Confirms: has("confirms")})
	case "presence":
		c.apply(t, Event{Kind: Presence, Present: arg(0) == "there"})
	case "report": // report key result [try=n]
		try := c.try[arg(0)]
		if v := val("try"); v != "" {
			try, _ = strconv.ParseUint(v, 10, 64)
		}
		c.apply(t, Event{Kind: Report, Key: arg(0), Try: try, Result: Result(arg(1))})
	case "settle":
		c.apply(t, Event{Kind: Settle, Call: "call", ID: relay.MessageID(arg(0)), Result: Result(arg(1))})
	case "withdraw":
		c.apply(t, Event{Kind: Withdraw, Key: arg(0), Reason: relay.Reason(arg(1))})
	case "wait": // wait 5m: the time passes, with ticks
		pause, err := time.ParseDuration(arg(0))
		if err != nil {
			t.Fatal(err)
		}
		for end := c.now.Add(pause); ; {
			next := c.s.Next()
			if next.IsZero() || next.After(end) {
				c.now = end
				break
			}
			c.now = next
			c.apply(t, Event{Kind: Tick})
		}
	case "state":
		undelivered, open := c.s.Counts()
		fmt.Fprintf(&c.out, "undelivered %d, in progress %d\n", undelivered.Items, open.Items)
		for _, p := range c.s.InProgress() {
			fmt.Fprintf(&c.out, "in progress: %s at %s\n", p.Key, p.Channel)
		}
	default:
		t.Fatalf("unknown: %s", d.Cmd)
	}
	if c.out.Len() == 0 {
		return "ok\n"
	}
	return c.out.String()
}

func (c *conversation) apply(t *testing.T, e Event) {
	t.Helper()
	if c.try == nil {
		c.try = map[string]uint64{}
	}
	e.At = c.now
	before, _ := json.Marshal(c.s)
	effects, changed := c.s.Apply(e)
	after, _ := json.Marshal(c.s)
	if !changed && !bytes.Equal(before, after) {
		t.Errorf("%s changed the State and says that it did not", e.Kind)
	}
	if changed {
		c.book = append(c.book, e)
	}
	for _, f := range effects {
		if f.Do == Write {
			c.try[f.Key] = f.Try
		}
		c.out.WriteString(line(f))
	}
	c.replay(t, after)
}

// replay compares the State with what the book makes of its events.
func (c *conversation) replay(t *testing.T, want []byte) {
	t.Helper()
	s := New()
	for i, e := range c.book {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		e = Event{}
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		s.Apply(e)
		if i == len(c.book)/2 { // a snapshot
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			s = New()
			if err := json.Unmarshal(data, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, _ := json.Marshal(s); !bytes.Equal(got, want) {
		t.Errorf("after a restart:\n%s\nwant:\n%s", got, want)
	}
}

// line is an effect as the files have it.
func line(f Effect) string {
	text := string(f.Do)
	add := func(ok bool, format string, args ...any) {
		if ok {
			text += " " + fmt.Sprintf(format, args...)
		}
	}
	add(f.Key != "", "%s", f.Key)
	add(f.Channel != "", "at %s", f.Channel)
	add(f.Conn > 0, "conn %d", f.Conn)
	add(f.Try > 0, "try %d", f.Try)
	add(f.Again, "again")
	add(f.Result != "", "as %s", f.Result)
	add(f.Late, "late")
	add(f.Reason != "", "for %s", f.Reason)
	add(f.Detail != "", "(%s)", f.Detail)
	add(f.Err != nil, "%v", f.Err)
	return text + "\n"
}
