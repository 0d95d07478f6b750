package policy_test

import (
	"context"
	"fmt"

	"feishu-relay/policy"
)

// Three bots answer each other. The first answer passes, the second is the
// judge's, the third stops whatever the judge would say.
func Example() {
	chat := []policy.Entry{
		{Role: policy.RoleUser, Sender: "Ann", MessageID: "om_1", Content: "How do we ship it?", TS: 1000},
		{Role: policy.RoleAssistant, Sender: "agent_a", MessageID: "om_2", Content: "Build it first.", TS: 2000},
		{Role: policy.RoleAssistant, Sender: "agent_b", MessageID: "om_3", Content: "Who tests it?", TS: 3000},
		{Role: policy.RoleAssistant, Sender: "agent_a", MessageID: "om_4", Content: "I do.", TS: 4000},
	}
	limits := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}
	for _, m := range chat[1:] {
		depth := policy.Depth(chat, m, limits.Count)
		q := policy.Question{Transcript: chat, Message: m, AgentName: "agent_c"}
		d := policy.Decide(context.Background(), limits, depth, q, says(true, nil))
		fmt.Printf("%s: %t, %s, %s\n", m.Content, d.Allow, d.Tier, d.Reason)
	}
	// Output:
	// Build it first.: true, threshold, depth 1 <= threshold 1
	// Who tests it?: true, judge, judge: YES
	// I do.: false, hard_limit, max_depth
}
