package core

import (
	"encoding/json"
	"strings"
	"testing"

	"feishu-relay/deliver"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// What the book holds of mail for the stream counts in whole, with the parts that are no text.
func TestMailCountsAsItIsStored(t *testing.T) {
	c := running(t, Options{})
	in := relay.Inbound{Content: "short", Metadata: map[string]any{"mailbox_parts": strings.Repeat("x", 100)}}
	c.work.Go(func() {
		c.GiveMail(t.Context(), Mail{Key: "key", Bytes: len(in.Content), Text: &in,
			Settled: func() deliver.Result { return "" }})
	})
	var state struct{ Items []deliver.Item }
	for len(state.Items) == 0 {
		c.View(func(s *loop.Core) {
			data, _ := s.Bot().MarshalJSON()
			_ = json.Unmarshal(data, &state)
		})
	}
	if text, err := c.loop.Text("key"); err != nil || state.Items[0].Bytes != len(text) {
		t.Errorf("%d bytes count of %s, %v", state.Items[0].Bytes, text, err)
	}
}
