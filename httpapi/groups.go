package httpapi

import (
	"context"
	"encoding/json"

	"feishu-relay/group"
	"feishu-relay/internal/webapi"
	"feishu-relay/relay"
)

// Groups are the groups of the bot and their settings. Each error is a [*relay.Error], or an
// internal one. A method that changes a group returns it after the change is on disk.
type Groups interface {
	Groups() []group.Group
	Group(channel string, chat relay.ChatID) (group.Group, error)
	// Patch changes the settings in body, all of them or none.
	Patch(channel string, chat relay.ChatID, body []byte) (group.Group, error)
	// Forget removes the settings that people have made.
	Forget(channel string, chat relay.ChatID) (group.Group, error)
	Stop(channel string, chat relay.ChatID) (group.Group, error)
	// Continue releases the messages stopped at bots, or at all bots if there
	// are none.
	Continue(channel string, chat relay.ChatID, bots []relay.AgentName) (group.Group, error)
}

// GroupList is the answer of GET /v1/groups.
type GroupList struct {
	Groups  []group.Group `json:"groups"`
	Earlier string        `json:"earlier,omitempty"`
}

func (a *api) groups(_ context.Context, in webapi.Paged) (out GroupList, err error) {
	out.Groups, out.Earlier, err = webapi.Page(a.Groups.Groups(), in, func(g *group.Group) webapi.Place {
		return webapi.Place{Key: g.Channel + "/" + string(g.ChatID)}
	})
	return out, err
}

// oneGroup names a group.
type oneGroup struct {
	Chat    relay.ChatID `path:"chat"`
	Channel string       `query:"channel" default:"feishu"`
}

// change returns a route of one group whose request has no body.
func (a *api) change(do func(Groups, string, relay.ChatID) (group.Group, error)) func(context.Context, oneGroup) (
	group.Group, error) {
	return func(_ context.Context, in oneGroup) (group.Group, error) { return do(a.Groups, in.Channel, in.Chat) }
}

type groupPatch struct {
	oneGroup
	Body json.RawMessage
}

func (a *api) patchGroup(_ context.Context, in groupPatch) (group.Group, error) {
	return a.Groups.Patch(in.Channel, in.Chat, in.Body)
}

type groupContinue struct {
	oneGroup
	Body struct {
		Bots []relay.AgentName `json:"bots"`
	} `body:"optional"`
}

func (a *api) continueGroup(_ context.Context, in groupContinue) (group.Group, error) {
	return a.Groups.Continue(in.Channel, in.Chat, in.Body.Bots)
}
