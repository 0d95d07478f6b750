package httpapi

import (
	"context"
	"encoding/json"

	"feishu-relay/group"
	"feishu-relay/internal/webapi"
	"feishu-relay/relay"
)

// Groups are the groups of the bot and their settings. Each error is a [*relay.Error], or an
// internal one.
type Groups interface {
	Groups() []group.Group
	Group(channel string, chat relay.ChatID) (group.Group, error)
	// Change applies a verb to a group, and returns it after the change is on disk. The verb "" changes the settings in
	// body, all of them or none; [group.VerbContinue] is for bots, or for all bots if there are none.
	Change(channel string, chat relay.ChatID, verb group.Verb, body []byte, bots []relay.AgentName) (group.Group, error)
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

func (a *api) group(_ context.Context, in oneGroup) (group.Group, error) {
	return a.Groups.Group(in.Channel, in.Chat)
}

// change returns a route that applies a verb without a body.
func (a *api) change(verb group.Verb) func(context.Context, oneGroup) (group.Group, error) {
	return func(_ context.Context, in oneGroup) (group.Group, error) {
		return a.Groups.Change(in.Channel, in.Chat, verb, nil, nil)
	}
}

type groupPatch struct {
	oneGroup
	Body json.RawMessage
}

func (a *api) patchGroup(_ context.Context, in groupPatch) (group.Group, error) {
	return a.Groups.Change(in.Channel, in.Chat, "", in.Body, nil)
}

type groupContinue struct {
	oneGroup
	Body struct {
		Bots []relay.AgentName `json:"bots"`
	} `body:"optional"`
}

func (a *api) continueGroup(_ context.Context, in groupContinue) (group.Group, error) {
	return a.Groups.Change(in.Channel, in.Chat, group.VerbContinue, nil, in.Body.Bots)
}
