package filerelay_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
)

// Two sidecars share a folder: what one publishes, the other hears.
func Example() {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	a, err := filerelay.New(filerelay.Options{Dir: dir, Queue: "outbound", Agent: "agent_a"})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := filerelay.New(filerelay.Options{Dir: dir, Queue: "outbound", Agent: "agent_b"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	m := relay.Message{RelayMsgID: "om_1", ChatID: "oc_x", SenderAgentName: "agent_a", Content: "请 @BotB 看一下", Seq: 1}
	line, err := m.Encode()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := a.Publish(context.Background(), [][]byte{line}, ""); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	err = b.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
		m, err := relay.Decode(d.Line)
		fmt.Println(m.SenderAgentName, m.Content, d.History, err)
		d.Settle()
		cancel()
	})
	fmt.Println(err)
	// Output:
	// agent_a 请 @BotB 看一下 true <nil>
	// <nil>
}
