package core

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"feishu-relay/deliver"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// What the book holds of mail for the stream counts in whole, with the parts that are no text.
func TestMailCountsAsItIsStored(t *testing.T) {
	c, err := Open(Options{Dir: t.TempDir(), Revision: func() any { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	defer c.stop() // first: then nothing is done that follows
	in := relay.Inbound{Content: "short", Metadata: map[string]any{"mailbox_parts": strings.Repeat("x", 100)}}
	work.Go(func() { _ = c.loop.Run(ctx) })
	work.Go(func() {
		c.GiveMail(ctx, Mail{Key: "key", Bytes: len(in.Content), Text: &in, Settled: func() deliver.Result { return "" }})
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
