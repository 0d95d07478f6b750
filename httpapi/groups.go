package httpapi

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// Groups are the groups of the bot and their settings. Each error is a [*relay.Error], or an
// internal one. A method that changes a group returns it after the change is on disk.
type Groups interface {
	Groups() []steer.Group
	Group(channel string, chat relay.ChatID) (steer.Group, error)
	// Patch changes the settings in body, all of them or none.
	Patch(channel string, chat relay.ChatID, body []byte) (steer.Group, error)
	// Forget removes the settings that people have made.
	Forget(channel string, chat relay.ChatID) (steer.Group, error)
	Stop(channel string, chat relay.ChatID) (steer.Group, error)
	// Continue releases the messages stopped at bots, or at all bots if there
	// are none.
	Continue(channel string, chat relay.ChatID, bots []relay.AgentName) (steer.Group, error)
}

// groups serves GET /v1/groups.
func (a *api) groups(*http.Request) (any, error) {
	return map[string]any{"groups": web.List(a.Groups.Groups())}, nil
}

// ofGroup serves a route of one group, with its chat in the path and its channel in the
// query.
func ofGroup(do func(r *http.Request, channel string, chat relay.ChatID) (any, error)) web.Handler {
	return func(r *http.Request) (any, error) {
		channel := cmp.Or(r.URL.Query().Get("channel"), relay.DefaultChannel)
		chat := r.PathValue("chat")
		if err := cmp.Or(relay.CheckField("channel", channel), relay.CheckField("chat", chat)); err != nil {
			return nil, err
		}
		return do(r, channel, relay.ChatID(chat))
	}
}

// bare serves a route of one group whose request has no body.
func (a *api) bare(do func(Groups, string, relay.ChatID) (steer.Group, error)) web.Handler {
	return ofGroup(func(_ *http.Request, channel string, chat relay.ChatID) (any, error) {
		return do(a.Groups, channel, chat)
	})
}

func (a *api) patchGroup(r *http.Request, channel string, chat relay.ChatID) (any, error) {
	body, err := web.ReadBody(r)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errEmpty
	}
	return a.Groups.Patch(channel, chat, body)
}

func (a *api) continueGroup(r *http.Request, channel string, chat relay.ChatID) (any, error) {
	var asked struct {
		Bots []relay.AgentName `json:"bots"`
	}
	if err := readJSON(r, &asked); err != nil && !errors.Is(err, errEmpty) {
		return nil, err
	}
	return a.Groups.Continue(channel, chat, asked.Bots)
}
