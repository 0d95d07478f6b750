package redisrelay

import (
	"encoding/json"
	"strings"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

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
