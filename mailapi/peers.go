package mailapi

import (
	"context"
	"math"
	"slices"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// everybody is the receiver of a broadcast.
const everybody = "*"

// peers is the result of list_peers (docs/protocol.md 6.7).
func (a *API) peers(ctx context.Context, _ webapi.None) (agent.Peers, error) {
	if a.Mailbox == nil {
		return agent.Peers{Peers: []agent.Peer{}, Note: mailbox.NoDirectory}, nil
	}
	peers, err := a.Mailbox.ListPeers(ctx)
	peers.Peers = web.List(peers.Peers)
	return peers, err
}

type peerMessage struct {
	Agent agentID `path:"agent"`
	Body  struct {
		Message       string `json:"message"`
		CorrelationID mailID `json:"correlation_id"`
	}
}

// sendToPeer leaves it to the mailbox whether the message may be sent.
func (a *API) sendToPeer(ctx context.Context, in peerMessage) (agent.PeerResult, error) {
	result, err := a.Mailbox.SendToPeer(ctx, agent.PeerMessage{To: mailbox.AgentID(in.Agent), Message: in.Body.Message,
		CorrelationID: string(in.Body.CorrelationID)})
	result.DeliveredTo, result.UnreachableReasons = web.List(result.DeliveredTo), web.List(result.UnreachableReasons)
	return result, err
}

// Goals is the answer of all routes about goals.
type Goals struct {
	GoalID string   `json:"goal_id,omitempty"` // the new one
	Goals  []string `json:"goals"`             // all live ones
}

func (a *API) goals(context.Context, webapi.None) (Goals, error) {
	return Goals{Goals: web.List(a.Mailbox.Goals())}, nil
}

type newGoal struct {
	Body struct {
		GoalID mailID `json:"goal_id"`
	} `body:"optional"`
}

func (a *API) addGoal(ctx context.Context, in newGoal) (Goals, error) {
	goal, err := a.Mailbox.AddGoal(ctx, string(in.Body.GoalID))
	return Goals{goal, web.List(a.Mailbox.Goals())}, err
}

type oldGoal struct {
	GoalID mailID `path:"goal_id"`
}

func (a *API) removeGoal(ctx context.Context, in oldGoal) (Goals, error) {
	err := a.Mailbox.RemoveGoal(ctx, string(in.GoalID))
	return Goals{Goals: web.List(a.Mailbox.Goals())}, err
}

// Agents is the answer of GET /v1/mailbox/agents: every agent's card, with its current status.
type Agents struct {
	Agents  []mailbox.Card `json:"agents"`
	Earlier string         `json:"earlier,omitempty"`
}

func (a *API) agents(ctx context.Context, in webapi.Paged) (out Agents, err error) {
	cards, err := a.Mailbox.Agents(ctx)
	if err != nil {
		return out, err
	}
	out.Agents, out.Earlier, err = webapi.Page(cards, in, func(c *mailbox.Card) webapi.Place {
		return webapi.Place{Key: string(c.AgentID)}
	})
	for i := range out.Agents {
		c := &out.Agents[i]
		c.Capabilities, c.AllowFrom = web.List(c.Capabilities), web.List(c.AllowFrom)
		c.CurrentTasks = web.List(c.CurrentTasks)
	}
	return out, err
}

var errNoAgent = relay.Errorf(web.CodeNotFound,
	"no agent of that name is registered; GET /v1/mailbox/agents lists them")

type namedAgent struct {
	Agent agentID `path:"agent"`
}

func (a *API) agent(ctx context.Context, in namedAgent) (mailbox.Card, error) {
	all, err := a.agents(ctx, webapi.Paged{Limit: math.MaxInt})
	i := slices.IndexFunc(all.Agents, func(c mailbox.Card) bool { return string(c.AgentID) == string(in.Agent) })
	switch {
	case err != nil:
		return mailbox.Card{}, err
	case i < 0:
		return mailbox.Card{}, errNoAgent
	}
	return all.Agents[i], nil
}
