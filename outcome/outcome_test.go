package outcome

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

var (
	allow  = &policy.Decision{Allow: true, Tier: policy.TierThreshold, Reason: "depth 1 <= threshold 1", Depth: 1}
	refuse = &policy.Decision{Tier: policy.TierHardLimit, Reason: policy.StopMaxDepth, Depth: 3}
)

// at is an outcome at the time ms of one message; change sets its fields.
func at(ms relay.Millis, change func(*Outcome)) Outcome {
	o := Outcome{Agent: "b", Channel: "feishu", ChatID: "oc_1", RelayMsgID: "om_1", Sender: "a", At: ms}
	if change != nil {
		change(&o)
	}
	return o
}

func TestMerge(t *testing.T) {
	decided := at(1, func(o *Outcome) { o.Decision = allow })
	delivered := at(2, func(o *Outcome) { o.Delivered, o.Door = 2, "stream" })
	tests := []struct {
		name        string
		older, then Outcome
		want        Outcome
	}{
		{"a delivery adds to a decision", decided, delivered,
			at(2, func(o *Outcome) { o.Decision, o.Delivered, o.Door = allow, 2, "stream" })},
		{"a receipt adds to a delivery", delivered, at(3, func(o *Outcome) { o.Acknowledged = 3 }),
			at(3, func(o *Outcome) { o.Delivered, o.Door, o.Acknowledged = 2, "stream", 3 })},
		{"a later decision takes the place of an earlier", decided, at(2, func(o *Outcome) { o.Decision = refuse }),
			at(2, func(o *Outcome) { o.Decision = refuse })},
		{"a later stop takes the place of an earlier", at(1, func(o *Outcome) { o.Stopped = relay.JudgeError }),
			at(2, func(o *Outcome) { o.Stopped = relay.Expired }), at(2, func(o *Outcome) { o.Stopped = relay.Expired })},
		{"a repeat does not change a stop", at(1, func(o *Outcome) { o.Stopped = relay.MaxDepth }),
			at(2, func(o *Outcome) { o.Stopped = relay.Duplicate }), at(2, func(o *Outcome) { o.Stopped = relay.MaxDepth })},
		{"a repeat does not change a delivery", delivered, at(3, func(o *Outcome) { o.Stopped = relay.Duplicate }),
			at(3, func(o *Outcome) { o.Delivered, o.Door = 2, "stream" })},
		{"an unsigned line does not change a stop", at(1, func(o *Outcome) { o.Stopped = relay.MaxDepth }),
			at(2, func(o *Outcome) { o.Stopped = relay.BadSignature }), at(2, func(o *Outcome) { o.Stopped = relay.MaxDepth })},
		{"and nothing of a decision", decided, at(2, func(o *Outcome) { o.Stopped, o.Detail = relay.BadSignature, "x" }),
			at(2, func(o *Outcome) { o.Decision = allow })},
		{"a delivery ends a stop", at(1, func(o *Outcome) { o.Stopped = relay.Expired }), delivered, delivered},
		{"the sender stays", decided, at(2, func(o *Outcome) { o.Sender = "" }), at(2, func(o *Outcome) { o.Decision = allow })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, got := range []Outcome{merge(tt.older, tt.then), merge(tt.then, tt.older)} {
				if !same(got, tt.want) {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
			}
		})
	}
}

// Lines come again, from the beginning: what is known does not change by that.
func TestHistoryReadAnewChangesNothing(t *testing.T) {
	for range 500 {
		var lines []Outcome
		for ms := range relay.Millis(1 + rand.IntN(6)) {
			lines = append(lines, at(ms+1, func(o *Outcome) {
				switch rand.IntN(4) {
				case 0:
					o.Decision = []*policy.Decision{allow, refuse}[rand.IntN(2)]
				case 1:
					o.Stopped = relay.Reasons()[rand.IntN(len(relay.Reasons()))]
				case 2:
					o.Delivered, o.Door = ms+1, "webhook"
				case 3:
					o.Acknowledged = ms + 1
				}
			}))
		}
		x := index{max: 10, all: map[key]record{}}
		for _, o := range lines {
			x.add(o)
		}
		for _, o := range lines {
			before := x.all[o.key()]
			if got, changed := x.add(o); changed {
				t.Fatalf("the line %+v of %+v made of %+v: %+v", o, lines, before.Outcome, got)
			}
		}
	}
}

func TestLinesFromOutside(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	long := strings.Repeat("理", maxText)
	good := at(1_799_999_999_000, func(o *Outcome) { o.Decision = refuse; o.Stopped = relay.MaxDepth })
	line := func(change func(*Outcome)) string {
		o := good
		o.Decision = new(*refuse)
		change(&o)
		text, err := relay.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tests := []struct {
		name, line string
		want       func(*Outcome) // nil: refused
	}{
		{"as we write it", line(func(*Outcome) {}), func(*Outcome) {}},
		{"a later version's fields", strings.Replace(line(func(*Outcome) {}), "{", `{"mood":{"x":[1]},`, 1), func(*Outcome) {}},
		{"a reason of a later version", line(func(o *Outcome) { o.Stopped = "bored" }), func(o *Outcome) { o.Stopped = "bored" }},
		{"an endless reason", line(func(o *Outcome) { o.Stopped = relay.Reason(long) }),
			func(o *Outcome) { o.Stopped = relay.Reason(long[:maxText/3*3]) }},
		{"an endless detail", line(func(o *Outcome) { o.Decision.Detail = long }),
			func(o *Outcome) { o.Decision.Detail = long[:maxText/3*3] }},
		{"a clock that is ahead", line(func(o *Outcome) { o.At = 4_000_000_000_000 }), func(o *Outcome) { o.At = relay.MillisOf(now) }},
		{"a delivery in the future", line(func(o *Outcome) { o.Delivered, o.Stopped = 4_000_000_000_000, "" }),
			func(o *Outcome) { o.Delivered, o.Stopped = relay.MillisOf(now), "" }},
		{"a negative depth", line(func(o *Outcome) { o.Decision.Depth = -3 }), func(o *Outcome) { o.Decision.Depth = 0 }},
		{"no time", line(func(o *Outcome) { o.At = 0 }), nil},
		{"no agent", line(func(o *Outcome) { o.Agent = "" }), nil},
		{"no message", line(func(o *Outcome) { o.RelayMsgID = "" }), nil},
		{"a chat with a control character", line(func(o *Outcome) { o.ChatID = "oc\x1b" }), nil},
		{"an endless id", line(func(o *Outcome) { o.Agent = relay.AgentName(strings.Repeat("a", relay.MaxID+1)) }), nil},
		{"a number for a name", strings.Replace(line(func(*Outcome) {}), `"b"`, "7", 1), nil},
		{"half a line", line(func(*Outcome) {})[:70], nil},
		{"a message of the relay", `{"relay_msg_id":"om_1","channel":"feishu","chat_id":"oc_1","content":"x","sender_bot_open_id":"","sender_agent_name":"a","metadata":{},"ts":1799999999000}`, nil},
		{"null", "null", nil},
		{"nothing", "", nil},
		{"too long", line(func(o *Outcome) { o.Door = strings.Repeat("d", maxLine) }), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decode([]byte(tt.line), "", now)
			if tt.want == nil {
				if err == nil {
					t.Errorf("got %+v, want an error", got)
				}
				return
			}
			want := good
			want.Decision = new(*refuse)
			tt.want(&want)
			if err != nil || !same(got, want) {
				t.Errorf("got %+v %+v, %v, want %+v", got, got.Decision, err, want)
			}
		})
	}
}

func TestSignedLines(t *testing.T) {
	now := time.Now()
	o := at(relay.MillisOf(now), func(o *Outcome) { o.Decision = allow })
	plain, err := encode(&o, 1)
	if err != nil {
		t.Fatal(err)
	}
	signed := mustSign(t, plain, "secret")
	if got, err := decode(signed, "secret", now); err != nil || !same(got, o) {
		t.Errorf("got %+v, %v, want %+v", got, err, o)
	}
	if _, err := decode(signed, "", now); err != nil {
		t.Errorf("without a secret a signature is ignored: got %v", err)
	}
	for name, line := range map[string][]byte{
		"unsigned":              plain,
		"another secret":        mustSign(t, plain, "other"),
		"changed":               bytes.Replace(signed, []byte(`"om_1"`), []byte(`"om_2"`), 1),
		"a message of the same": mustSign(t, []byte(`{"relay_msg_id":"om_1","channel":"feishu","chat_id":"oc_1","content":"x","sender_agent_name":"a","metadata":{},"ts":1}`), "secret"),
	} {
		if got, err := decode(line, "secret", now); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
	// Nor can a signed outcome be handed to a bot as a message.
	if m, err := relay.Decode(signed); err == nil {
		t.Errorf("a signed outcome is the message %+v", m)
	}
}

func mustSign(t *testing.T, line []byte, secret string) []byte {
	t.Helper()
	signed, err := relay.Sign(line, secret)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func FuzzDecode(f *testing.F) {
	o := at(1, func(o *Outcome) { o.Decision, o.Stopped, o.Door = refuse, relay.MaxDepth, "stream" })
	line, _ := encode(&o, 1)
	f.Add(line)
	f.Add([]byte(`{"agent":"a","channel":"c","chat_id":"d","relay_msg_id":"e","at":"99999999999999","decision":{},"stopped":"\u2028"}`))
	f.Add([]byte(`{"agent":"a","at":-1,"decision":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		now := time.UnixMilli(1_800_000_000_000)
		o, err := decode(line, "", now)
		if err != nil {
			return
		}
		if o.At <= 0 || o.At.Time().After(now.Add(relay.MaxAhead)) || o.Delivered < 0 || o.Acknowledged < 0 {
			t.Errorf("times out of bounds: %+v", o)
		}
		texts := []string{string(o.Stopped), o.Door}
		if d := o.Decision; d != nil {
			texts = append(texts, string(d.Tier), d.Reason, d.Detail)
		}
		for _, text := range texts {
			if len(text) > maxText || !utf8.ValidString(text) {
				t.Errorf("%q is out of bounds", text)
			}
		}
		for _, id := range []string{string(o.Agent), o.Channel, string(o.ChatID), string(o.RelayMsgID), string(o.Sender)} {
			if relay.CheckID(id) != nil {
				t.Errorf("%q is no id", id)
			}
		}
		again, err := encode(&o, 1)
		if err != nil || !json.Valid(again) {
			t.Fatalf("what was read has no line: %v", err)
		}
		if got, err := decode(again, "", now); err != nil || !same(got, o) {
			t.Errorf("got %+v, %v, want %+v", got, err, o)
		}
	})
}
