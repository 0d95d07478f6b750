package httpapi

import (
	"cmp"
	"net/http"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// everybody is the receiver of a broadcast.
const everybody mailbox.AgentID = "*"

// peers serves GET /v1/peers: what list_peers tells (docs/protocol.md 6.7).
func (a *api) peers(w http.ResponseWriter, r *http.Request) {
	if a.Mailbox == nil {
		writeJSON(w, http.StatusOK, agent.Peers{Peers: []agent.Peer{}, Note: mailbox.NoDirectory})
		return
	}
	peers, err := a.Mailbox.ListPeers(r.Context())
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	peers.Peers = list(peers.Peers)
	writeJSON(w, http.StatusOK, peers)
}

// sendToPeer serves POST /v1/peers/{agent}/messages. The gates are the mailbox's.
func (a *api) sendToPeer(w http.ResponseWriter, r *http.Request) {
	m, err := peerMessage(w, r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	result, err := a.Mailbox.SendToPeer(r.Context(), m)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	result.DeliveredTo, result.UnreachableReasons = list(result.DeliveredTo), list(result.UnreachableReasons)
	writeJSON(w, http.StatusOK, result)
}

func peerMessage(w http.ResponseWriter, r *http.Request) (m agent.PeerMessage, err error) {
	to := everybody
	if r.PathValue("agent") != string(everybody) {
		if to, err = pathAgent(r, "to"); err != nil {
			return m, err
		}
	}
	var body struct {
		Message       string `json:"message"`
		CorrelationID string `json:"correlation_id"`
		Body          string `json:"body"` // the message, as payloads of peer inboxes call it
	}
	if err := readMail(w, r, &body); err != nil {
		return m, err
	}
	if body.CorrelationID != "" {
		if err := checkMailID("correlation_id", body.CorrelationID); err != nil {
			return m, err
		}
	}
	return agent.PeerMessage{To: to, Message: cmp.Or(body.Message, body.Body), CorrelationID: body.CorrelationID}, nil
}

// goalsAnswer is the answer of all routes about goals.
type goalsAnswer struct {
	GoalID string   `json:"goal_id,omitempty"` // the new one
	Goals  []string `json:"goals"`             // all live ones
}

func (a *api) goals(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, goalsAnswer{Goals: list(a.Mailbox.Goals())})
}

func (a *api) addGoal(w http.ResponseWriter, r *http.Request) {
	var body struct {
		GoalID string `json:"goal_id"`
		Goal   string `json:"goal"` // the same
	}
	_, err := readMailOrNone(w, r, &body)
	body.GoalID = cmp.Or(body.GoalID, body.Goal)
	if err == nil && body.GoalID != "" {
		err = checkMailID("goal_id", body.GoalID)
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	goal, err := a.Mailbox.AddGoal(r.Context(), body.GoalID)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, goalsAnswer{goal, list(a.Mailbox.Goals())})
}

func (a *api) removeGoal(w http.ResponseWriter, r *http.Request) {
	goal := r.PathValue("goal")
	if err := checkMailID("goal_id", goal); err != nil {
		a.refuse(w, r, err)
		return
	}
	if err := a.Mailbox.RemoveGoal(r.Context(), goal); err != nil {
		a.refuse(w, r, err, about{"goal_id", http.StatusNotFound})
		return
	}
	writeJSON(w, http.StatusOK, goalsAnswer{Goals: list(a.Mailbox.Goals())})
}

// agents serves GET /v1/mailbox/agents: everybody's card, with the status as of now.
func (a *api) agents(w http.ResponseWriter, r *http.Request) {
	cards, err := a.Mailbox.Agents(r.Context())
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	all := []mailbox.Card{}
	for _, c := range cards {
		all = append(all, whole(c))
	}
	writeJSON(w, http.StatusOK, map[string][]mailbox.Card{"agents": all})
}

// whole is c without lists that are null.
func whole(c mailbox.Card) mailbox.Card {
	c.Capabilities, c.AllowFrom, c.CurrentTasks = list(c.Capabilities), list(c.AllowFrom), list(c.CurrentTasks)
	return c
}

var errNoAgent = relay.Errorf(codeNotFound, "no agent of that name is registered; GET /v1/mailbox/agents lists them")

func (a *api) agent(w http.ResponseWriter, r *http.Request) {
	id, err := pathAgent(r, "agent")
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	cards, err := a.Mailbox.Agents(r.Context())
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	for _, c := range cards {
		if c.AgentID == id {
			writeJSON(w, http.StatusOK, whole(c))
			return
		}
	}
	writeError(w, errNoAgent)
}
