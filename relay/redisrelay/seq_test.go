package redisrelay

import (
	"encoding/json"
	"strings"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

func TestNumbered(t *testing.T) {
	tests := []struct {
		name, line string
		want       bool
	}{
		{"a sidecar's message", string(relaytest.Line("a", 3)), true},
		{"spaces", " {\n\"seq\" :\t7 } ", true},
		{"first", `{"seq":1,"a":[{"b":"}"}]}`, true},
		{"behind nested values", `{"a":{"seq":0,"b":["]",{}]},"c":"\\\"","seq":2}`, true},
		{"as a string", `{"seq":"17"}`, true},
		{"with a fraction", `{"seq":1.0e2}`, true},
		{"escaped key", `{"\u0073eq":1}`, true},
		{"the last of two", `{"seq":0,"seq":1}`, true},
		{"nothing", ``, false},
		{"empty", `{}`, false},
		{"the original seven fields", string(foreignLine(1)), false},
		{"zero", `{"seq":0}`, false},
		{"null", `{"seq":null}`, false},
		{"negative", `{"seq":-1}`, false},
		{"in metadata", `{"metadata":{"seq":5}}`, false},
		{"in a text", `{"content":"\"seq\":5"}`, false},
		{"an array", `[{"seq":5}]`, false},
		{"torn", `{"seq":5,"content":"abc`, false},
		{"torn in an escape", `{"seq":5,"content":"abc\`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := numbered(tt.line); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// What encoding/json makes of a valid line is what numbered makes of it.
func FuzzNumbered(f *testing.F) {
	f.Add(string(relaytest.Line("a", 3)))
	f.Add(string(foreignLine(1)))
	f.Add(`{"seq":0,"a":"\\","seq":12345678901234567890}`)
	f.Add(`{"a":{"seq":[1,{"x":"]}"}]},"\u0073eq":"5"}`)
	f.Add(`{"` + strings.Repeat(`\"`, 50))
	f.Fuzz(func(t *testing.T, line string) {
		got := numbered(line)
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(line), &fields) != nil {
			return // any answer will do
		}
		var seq relay.Seq
		if raw, ok := fields["seq"]; ok {
			if err := seq.UnmarshalJSON(raw); err != nil {
				t.Fatal(err)
			}
		}
		if want := seq > 0; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func BenchmarkNumbered(b *testing.B) {
	line := string(relaytest.Line("a", 3))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		numbered(line)
	}
}
