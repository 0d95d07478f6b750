package relay_test

import (
	"context"
	"fmt"

	"feishu-relay/relay"
)

// A line from a program that knows the first seven fields only, on its way
// through a pipeline of two stages.
func Example() {
	line := []byte(`{"relay_msg_id":"r1","channel":"feishu","chat_id":"oc_x","content":"请 @BotB 看一下",` +
		`"sender_bot_open_id":"ou_a","sender_agent_name":"agent_a","metadata":{"chat_type":"group"}}`)
	m, err := relay.Decode(line)
	if err != nil {
		fmt.Println(err)
		return
	}
	seen := map[relay.MessageID]bool{}
	way := relay.Pipeline[relay.Message]{
		{Name: "own", Apply: func(_ context.Context, m relay.Message) (relay.Reason, error) {
			if m.SenderAgentName == "agent_b" {
				return relay.OwnMessage, nil
			}
			return relay.Pass, nil
		}},
		{Name: "repeats", Apply: func(_ context.Context, m relay.Message) (relay.Reason, error) {
			if seen[m.ID()] {
				return relay.Duplicate, nil
			}
			seen[m.ID()] = true
			return relay.Pass, nil
		}},
	}
	for range 2 {
		if stage, why, _ := way.Run(context.Background(), m); why != relay.Pass {
			fmt.Printf("stopped at %s: %s\n", stage, why)
			continue
		}
		fmt.Printf("%s says: %s\n", m.SenderAgentName, m.Content)
	}
	// Output:
	// agent_a says: 请 @BotB 看一下
	// stopped at repeats: duplicate
}
