package sidecar

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

// group is a group as people and the API are shown it.
func (s *steering) group(channel string, chat relay.ChatID) steer.Group {
	g := s.records.state(channel, chat)
	shown := steer.Group{Channel: channel, ChatID: chat, Name: s.watch.groupShown(channel, chat).Name,
		Locked: g.file.Locked, Version: g.record.Version(), Settings: g.Settings, Sources: g.sources, Bots: s.bots(g),
		MaxDepth: g.maxDepth, Operator: g.operator}
	connections, _ := s.presence.cards()
	for i := range shown.Bots {
		bot := &shown.Bots[i]
		bot.Name = s.botName(g, bot.Agent)
		connection := connections[bot.Agent]
		if bot.Agent == s.cfg.Agent {
			connection = s.deliver.bot()
		}
		if bot.Online && connection != nil && !connection.Connected {
			bot.Away = relay.MillisOf(connection.Since)
		}
	}
	shown.Depth = s.depthNow(channel, chat)
	if at := g.record.Stopped(); at > g.record.Continued() {
		spoke, err := s.chats.lastUser(channel, chat, "", relay.MillisOf(time.Now()))
		shown.Stopped = err != nil || spoke <= at
	}
	return shown
}

// noStops are reasons that are no stop of a conversation: others got the message.
var noStops = []relay.Reason{"", relay.NotForMe, relay.NotMentioned, relay.Muted}

// withLastStop is a group with the newest message of a bot that stopped; where what became of the
// messages is not known in time, with the newest notice.
func (s *steering) withLastStop(ctx context.Context, g steer.Group) steer.Group {
	for _, o := range slices.Backward(s.recent(ctx, g.Channel, g.ChatID)) {
		if slices.Contains(noStops, o.Stopped) || o.Sender == o.Agent { // which is a person's
			continue
		}
		if g.LastStop == nil {
			g.LastStop = &steer.LastStop{MessageID: o.RelayMsgID, Sender: o.Sender, Reason: o.Stopped, At: o.At}
		}
		if o.RelayMsgID == g.LastStop.MessageID {
			g.LastStop.Bots = append(g.LastStop.Bots, o.Agent)
			g.LastStop.At = max(g.LastStop.At, o.At)
		}
	}
	if stop, ok := s.acts.newestStop(g.Channel, g.ChatID); ok && g.LastStop == nil {
		g.LastStop = &steer.LastStop{MessageID: stop.Of, Sender: stop.Sender, Bots: stop.Bots, Reason: stop.Reason,
			At: stop.TS}
	}
	return g
}

// after is a group once a change holds.
func (s *steering) after(g steer.Group, change steer.Record) steer.Group {
	is := maps.Clone(s.records.state(g.Channel, g.ChatID).record)
	if is == nil {
		is = steer.Record{}
	}
	is.Merge(change)
	state := s.records.compute(is, s.chats.group(g.ChatID))
	g.Settings, g.Sources, g.Version = state.Settings, state.sources, is.Version()
	return g
}

// depthNow is the depth of the newest message of a chat, 0 if that is a person's.
func (s *steering) depthNow(channel string, chat relay.ChatID) int {
	entries, err := s.chats.transcript.Tail(channel, string(chat), nearTail)
	if err != nil || len(entries) == 0 {
		return 0
	}
	inTime(entries)
	e := entries[len(entries)-1]
	if e.Role == relay.RoleUser {
		return 0
	}
	w := where{channel: channel, chat: chat}
	depth, _ := s.chats.depth(w, policyEntry(e), s.records.limits(channel, chat)) // 0: not known
	return depth
}

// Groups lists the groups that the bot is in.
func (s *steering) Groups() []steer.Group {
	ctx, cancel := context.WithTimeout(context.Background(), personWait)
	defer cancel()
	out := []steer.Group{}
	for _, c := range s.records.chatsOf() {
		if g, err := s.joinedGroup(c.Channel, c.ChatID); err == nil {
			out = append(out, s.withLastStop(ctx, g))
		}
	}
	return out
}

// Group is a group of the bot's.
func (s *steering) Group(channel string, chat relay.ChatID) (steer.Group, error) {
	g, err := s.joinedGroup(channel, chat)
	if err == nil {
		g = s.withLastStop(context.Background(), g)
	}
	return g, err
}

func (s *steering) joinedGroup(channel string, chat relay.ChatID) (steer.Group, error) {
	if _, in := s.records.state(channel, chat).record.Member(s.cfg.Agent); !in || !s.chats.in(channel, chat) {
		return steer.Group{}, relay.Errorf(relay.CodeUnknownGroup, "this bot is in no group %.100q that it has heard of; "+
			"GET /v1/groups lists its groups", chat)
	}
	return s.group(channel, chat), nil
}

// Patch changes the settings of a group as body says, all of it or nothing.
func (s *steering) Patch(channel string, chat relay.ChatID, body []byte) (steer.Group, error) {
	s.patching.Lock()
	defer s.patching.Unlock()
	g, err := s.changeable(channel, chat)
	if err != nil {
		return g, err
	}
	now := relay.MillisOf(time.Now())
	set, version, err := steer.Patch(body, g, now)
	if field, ok := errors.AsType[*steer.FieldError](err); ok {
		return g, &relay.Error{Code: relay.CodeInvalidRequest, Message: field.Error(), Field: field.Field}
	}
	if err != nil {
		return g, err
	}
	if version != "" && version != g.Version {
		return g, relay.Errorf(relay.CodeConflict,
			"version: the group has changed since; its version is %s now, read it again", g.Version)
	}
	if len(set) == 0 {
		return s.Group(channel, chat)
	}
	return s.changed(channel, chat, steer.Change, set, nil)
}

// Forget removes what was set in a group, or over the API.
func (s *steering) Forget(channel string, chat relay.ChatID) (steer.Group, error) {
	return s.asked(channel, chat, steer.Asked{Verb: steer.VerbForget}, steer.Change)
}

// Stop stops what the bots of a group say until a person speaks.
func (s *steering) Stop(channel string, chat relay.ChatID) (steer.Group, error) {
	return s.asked(channel, chat, steer.Asked{Verb: steer.VerbStop}, steer.Stop)
}

// Continue releases what was stopped at bots, none: at all of them.
func (s *steering) Continue(channel string, chat relay.ChatID, bots []relay.AgentName) (steer.Group, error) {
	g, err := s.joinedGroup(channel, chat)
	for _, bot := range bots {
		if err == nil && !slices.ContainsFunc(g.Bots, func(b steer.Bot) bool { return b.Agent == bot }) {
			err = relay.Errorf(relay.CodeInvalidRequest, "bots: no bot %.100q is in this group", bot)
		}
	}
	if err != nil {
		return g, err
	}
	return s.asked(channel, chat, steer.Asked{Verb: steer.VerbContinue, Bots: bots}, steer.Continue)
}

func (s *steering) asked(channel string, chat relay.ChatID, asked steer.Asked, act steer.Act) (steer.Group, error) {
	s.patching.Lock()
	defer s.patching.Unlock()
	g, err := s.changeable(channel, chat)
	if err != nil {
		return g, err
	}
	set, mistake := asked.Changes(g, relay.MillisOf(time.Now()))
	if mistake != nil {
		return g, &relay.Error{Code: relay.CodeInvalidRequest, Message: mistake.Text(false)}
	}
	return s.changed(channel, chat, act, set, asked.Bots)
}

func (s *steering) changeable(channel string, chat relay.ChatID) (steer.Group, error) {
	g, err := s.joinedGroup(channel, chat)
	if err == nil && g.Locked {
		err = relay.Errorf(relay.CodeLocked, "the groups file says that this group is locked: nothing can be changed here")
	}
	return g, err
}

// changed shares a change over the API, which is on disk when it returns.
func (s *steering) changed(channel string, chat relay.ChatID, act steer.Act, set steer.Set,
	bots []relay.AgentName) (steer.Group, error) {
	id := randomID()
	err := s.publish(steer.Mark{ID: "api/" + string(s.cfg.Agent) + "/" + id, Kind: steer.Command, Act: act,
		Channel: channel, ChatID: chat, MessageID: relay.MessageID("notice:" + id), By: "api", Set: set, Bots: bots})
	if err != nil {
		s.problems.set("steer", err)
		return steer.Group{}, &relay.Error{Code: relay.CodeOutboxUnavailable,
			Message: "the change cannot be written down (see /v1/status); send it again later"}
	}
	return s.Group(channel, chat)
}
