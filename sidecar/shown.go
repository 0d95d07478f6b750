package sidecar

import (
	"cmp"

	"feishu-relay/httpapi"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// groupShown is what GET /v1/transcripts tells of a group: its name by the
// groups file, else by Feishu, and the limits that hold in it.
func (s *Sidecar) groupShown(channel string, chat relay.ChatID) httpapi.Group {
	group := s.groups.Current().Groups[string(chat)]
	limits := s.cfg.limitsFor(group)
	name := group.Name
	if channel == relay.DefaultChannel {
		name = cmp.Or(name, s.book.Chat(chat).Name)
	}
	return httpapi.Group{Name: name,
		Limits: httpapi.GroupLimits{MaxDepth: limits.MaxDepth, Threshold: limits.Threshold, Check: limits.Check}}
}

// depthsShown counts each of some entries of a chat, 0 for a person's, as a
// decision counts it that knows of the chat what they tell. No group counts
// otherwise than the others.
func (s *Sidecar) depthsShown(entries []transcript.Entry) []int {
	tail := make([]policy.Entry, len(entries))
	for i, e := range entries {
		tail[i] = policyEntry(e)
	}
	return policy.Depths(tail, s.cfg.Limits.Count)
}
