package mcptools

import (
	"context"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// maxPeers is the most agents that list_peers names, and maxDescription the
// most bytes of what each says of itself; a note tells when there are more.
const (
	maxPeers       = 200
	maxDescription = 1024
)

// errOff is the answer of the tools that need a mailbox where there is none.
var errOff = badArgument("this agent's mailbox is off; who runs its sidecar can turn it on (MAILBOX=on)")

type noArguments struct{}

func listPeersTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "list_peers",
		Title: "List the other agents",
		Description: "List the other agents that you can talk to directly: what each is for, whether it is reachable, and " +
			"whether it is idle, busy or offline. Call it before you choose whom to ask; agent_id is what the other tools take as `to`.",
		Annotations: reads(false),
		InputSchema: arguments(schema{}),
		OutputSchema: object(schema{
			"peers": listOf(object(schema{
				"agent_id":    textOf("its name"),
				"description": textOf("what it says that it is for"),
				"reachable":   flagOf("you may write to it, and it is alive"),
				"status":      textOf("what it can do now: idle, busy or offline"),
				"reason":      textOf("why it is not reachable"),
			}, "agent_id", "description", "reachable"), "every known agent but you"),
			"note": textOf("anything else about this list"),
		}, "peers"),
	}
}

func listPeers(s *service, ctx context.Context, _ noArguments) (answer, error) {
	if s.Mailbox == nil {
		return answer{value: agent.Peers{Peers: []agent.Peer{}, Note: mailbox.NoDirectory}}, nil
	}
	list, err := s.Mailbox.ListPeers(ctx)
	if err != nil {
		return answer{}, err
	}
	peers := append([]agent.Peer{}, list.Peers...)
	if more := len(peers) - maxPeers; more > 0 {
		// Whom one can reach comes first, else the order stays.
		slices.SortStableFunc(peers, func(a, b agent.Peer) int { return order(b.Reachable) - order(a.Reachable) })
		peers = peers[:maxPeers]
		list.Note = join(list.Note, fmt.Sprintf("%d more agents are left out", more))
	}
	for i := range peers {
		peers[i].Description = cut(peers[i].Description, maxDescription)
	}
	return answer{value: agent.Peers{Peers: peers, Note: list.Note}}, nil
}

func order(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func sendToPeerTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "send_to_peer",
		Title: "Send a message to an agent",
		Description: "Send another agent a word: a question, an answer, a hand-over. It does not wait for an answer; one comes " +
			"to your inbox. For work that you want a result of use send_task. Say all that the other needs to know: it does not see " +
			"your conversation. Do not send thanks or confirmations. `to` \"*\" reaches every agent and wakes all of them: that is " +
			"expensive, use it only for what truly concerns everybody.",
		Annotations: acts(),
		InputSchema: arguments(schema{
			"to":      textOf("agent_id of the receiver, as list_peers shows it; \"*\": all"),
			"message": textOf("what to tell it, at most 64 KiB"),
			"correlation_id": textOf(
				"when you answer a message that has a correlation_id: the same; else a UUID of your own, if you want one on the answer. What is no UUID is left out"),
		}, "to", "message"),
		OutputSchema: object(schema{
			"delivered_to":        listOf(textOf("a goal (session) of a receiver"), "who got it"),
			"unreachable_reasons": listOf(textOf("a sentence"), "who did not, and why"),
		}, "delivered_to", "unreachable_reasons"),
	}
}

type sendToPeerArguments struct {
	To            string `json:"to"`
	Message       string `json:"message"`
	CorrelationID string `json:"correlation_id"`
}

// sendToPeer leaves the gates to the mailbox, which has them in the order of docs/protocol.md 6.7.
func sendToPeer(s *service, ctx context.Context, in sendToPeerArguments) (answer, error) {
	if s.Mailbox == nil {
		return answer{}, errOff
	}
	if err := short("to", in.To, "correlation_id", in.CorrelationID); err != nil {
		return answer{}, err
	}
	got, err := s.Mailbox.SendToPeer(ctx, agent.PeerMessage{
		To: mailbox.AgentID(in.To), Message: in.Message, CorrelationID: in.CorrelationID})
	if err != nil {
		return answer{}, err
	}
	return answer{value: agent.PeerResult{
		DeliveredTo:        append([]string{}, got.DeliveredTo...),
		UnreachableReasons: append([]string{}, got.UnreachableReasons...),
	}}, nil
}
