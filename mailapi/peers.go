package mailapi

import (
	"cmp"
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// everybody is the receiver of a broadcast.
const everybody mailbox.AgentID = "*"

// peers serves GET /v1/peers: the result of list_peers (docs/protocol.md 6.7).
func (a *API) peers(r *http.Request) (any, error) {
	if a.Mailbox == nil {
		return agent.Peers{Peers: []agent.Peer{}, Note: mailbox.NoDirectory}, nil
	}
	peers, err := a.Mailbox.ListPeers(r.Context())
	peers.Peers = web.List(peers.Peers)
	return peers, err
}

// sendToPeer serves POST /v1/peers/{agent}/messages. The mailbox checks whether
// it may be sent.
func (a *API) sendToPeer(r *http.Request) (any, error) {
	m, err := peerMessage(r)
	if err != nil {
		return nil, err
	}
	result, err := a.Mailbox.SendToPeer(r.Context(), m)
	result.DeliveredTo, result.UnreachableReasons = web.List(result.DeliveredTo), web.List(result.UnreachableReasons)
	return result, err
}

func peerMessage(r *http.Request) (m agent.PeerMessage, err error) {
	to := everybody
	if r.PathValue("agent") != string(everybody) {
		if to, err = pathAgent(r, "to"); err != nil {
			return m, err
		}
	}
	var body struct {
		Message       string `json:"message"`
		CorrelationID string `json:"correlation_id"`
		Body          string `json:"body"` // the message, by its name in payloads of peer inboxes
	}
	if err := readMail(r, &body); err != nil {
		return m, err
	}
	if err := checkOptional("correlation_id", body.CorrelationID); err != nil {
		return m, err
	}
	return agent.PeerMessage{To: to, Message: cmp.Or(body.Message, body.Body), CorrelationID: body.CorrelationID}, nil
}

// goalsAnswer is the answer of all routes about goals.
type goalsAnswer struct {
	GoalID string   `json:"goal_id,omitempty"` // the new one
	Goals  []string `json:"goals"`             // all live ones
}

func (a *API) goals(r *http.Request) (any, error) {
	return goalsAnswer{Goals: web.List(a.Mailbox.Goals())}, nil
}

func (a *API) addGoal(r *http.Request) (any, error) {
	var body struct {
		GoalID string `json:"goal_id"`
		Goal   string `json:"goal"` // the same, by another name
	}
	if _, err := readMailOrNone(r, &body); err != nil {
		return nil, err
	}
	body.GoalID = cmp.Or(body.GoalID, body.Goal)
	if err := checkOptional("goal_id", body.GoalID); err != nil {
		return nil, err
	}
	goal, err := a.Mailbox.AddGoal(r.Context(), body.GoalID)
	if err != nil {
		return nil, err
	}
	return goalsAnswer{goal, web.List(a.Mailbox.Goals())}, nil
}

func (a *API) removeGoal(r *http.Request) (any, error) {
	goal := r.PathValue("goal")
	if err := checkMailID("goal_id", goal); err != nil {
		return nil, err
	}
	if err := a.Mailbox.RemoveGoal(r.Context(), goal); err != nil {
		return nil, about("goal_id", http.StatusNotFound, err)
	}
	return goalsAnswer{Goals: web.List(a.Mailbox.Goals())}, nil
}

// agents serves GET /v1/mailbox/agents: every agent's card, with its current status.
func (a *API) agents(r *http.Request) (any, error) {
	cards, err := a.Mailbox.Agents(r.Context())
	if err != nil {
		return nil, err
	}
	all := []mailbox.Card{}
	for _, c := range cards {
		all = append(all, whole(c))
	}
	return map[string][]mailbox.Card{"agents": all}, nil
}

// whole returns c with empty lists in place of null.
func whole(c mailbox.Card) mailbox.Card {
	c.Capabilities, c.AllowFrom, c.CurrentTasks = web.List(c.Capabilities), web.List(c.AllowFrom), web.List(c.CurrentTasks)
	return c
}

var errNoAgent = relay.Errorf(web.CodeNotFound,
	"no agent of that name is registered; GET /v1/mailbox/agents lists them")

func (a *API) agent(r *http.Request) (any, error) {
	id, err := pathAgent(r, "agent")
	if err != nil {
		return nil, err
	}
	cards, err := a.Mailbox.Agents(r.Context())
	if err != nil {
		return nil, err
	}
	for _, c := range cards {
		if c.AgentID == id {
			return whole(c), nil
		}
	}
	return nil, errNoAgent
}
