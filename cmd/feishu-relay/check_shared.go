package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// checkSecrets compares the fingerprint of RELAY_SECRET with those on the other agents' cards.
func checkSecrets(_ context.Context, s *subject) (out []finding) {
	own := s.Shared("")
	var same []string
	for _, c := range s.tellers() {
		agent := string(c.AgentID)
		if c.Sidecar.Secret == own.Secret {
			if agent != string(s.Agent) {
				same = append(same, agent)
			}
			continue
		}
		differs := &sidecar.SecretError{Agent: relay.AgentName(agent), Own: own.Secret, Other: c.Sidecar.Secret}
		switch {
		case agent == string(s.Agent):
			out = append(out, warning("restart it, or check with its environment",
				"the running sidecar of %s was started with another RELAY_SECRET than this environment has", agent)...)
		case c.At(time.Now(), s.Mailbox.HeartbeatTimeout) == mailbox.Offline:
			out = append(out, warning("nothing, if it is not used any more; else set the same RELAY_SECRET there",
				"%s, which is offline (%s), last ran with another RELAY_SECRET", agent, age(time.Since(c.LastHeartbeat)))...)
		case !own.Meets(c.Sidecar):
			out = append(out, warning("nothing, if they are to be apart; else the same RELAY_SECRET at both",
				"%s has another RELAY_SECRET, and another queue: they share only the mailbox, and refuse each other's mail",
				agent)...)
		default:
			out = append(out, failure(fmt.Sprintf("set RELAY_SECRET at this sidecar and at that of %s to the same "+
				"(`openssl rand -hex 32` makes a good one), and restart both", agent), "%s", differs.Difference())...)
		}
	}
	if len(out) == 0 && len(same) > 0 && own.Secret != "" {
		return well("the same at %s", some(same))
	}
	return out
}

// tellers are the cards that say what their agents' sidecars are set to.
func (s *subject) tellers() (cards []mailbox.Card) {
	all, _ := s.cards() // mistakes are reported with the mailbox
	for _, c := range all {
		if c.HasSettings() {
			cards = append(cards, c)
		}
	}
	return cards
}

// peerSetting is a setting that sidecars should have alike; of returns "" where it does not matter.
type peerSetting struct {
	name, why string
	of        func(*mailbox.Settings) string
}

// peerSettings are in the order of their findings. Folders are compared by what they are.
var peerSettings = []peerSetting{
	{"RELAY_BACKEND", "they do not meet: no bot of the one hears those of the other",
		func(s *mailbox.Settings) string { return s.Backend }},
	{"RELAY_CHANNEL", "they do not meet: no bot of the one hears those of the other",
		func(s *mailbox.Settings) string { return s.RelayChannel }},
	{"version", "update the older one", func(s *mailbox.Settings) string { return s.Version }},
	{"MAX_BOT_REPLY_DEPTH", "a talk ends earlier at one than at the other",
		func(s *mailbox.Settings) string { return fmt.Sprint(s.MaxDepth) }},
	{"BOT_REPLY_LLM_THRESHOLD", "the judge is asked earlier at one than at the other",
		func(s *mailbox.Settings) string { return fmt.Sprint(s.Threshold) }},
	{"BOT_REPLY_LLM_CHECK", "only one of them asks a judge", func(s *mailbox.Settings) string { return fmt.Sprint(s.Check) }},
	{"BOT_REPLY_DEPTH_COUNT", "they count depth differently", func(s *mailbox.Settings) string { return s.DepthCount }},
	{"RELAY_MAX_AGE", "messages expire earlier at one than at the other", func(s *mailbox.Settings) string {
		return (time.Duration(s.MaxAge) * time.Millisecond).String()
	}},
}

// checkPeerSettings compares this environment with what the cards of the agents that are online
// say, this agent's too.
func checkPeerSettings(_ context.Context, s *subject) (out []finding) {
	own := s.Shared(versionText())
	var peers, silent []string
	var cards []mailbox.Card
	all, _ := s.cards()
	for _, c := range all {
		switch agent := string(c.AgentID); {
		case c.At(time.Now(), s.Mailbox.HeartbeatTimeout) == mailbox.Offline:
		case agent == string(s.Agent):
			out = append(out, notRestarted(own, c)...)
		case c.HasSettings():
			peers, cards = append(peers, agent), append(cards, c)
		case c.Protocol != "":
			silent = append(silent, agent)
		}
	}
	for _, set := range peerSettings {
		out = append(out, differing(set.name, set.why, set.of(own), cards, set.of)...)
	}
	if onFiles(s) {
		out = append(out, otherFolders("RELAY_DIR", "they do not meet: no bot of the one hears those of the other",
			own.RelayDir, cards, func(s *mailbox.Settings) mailbox.Folder { return s.RelayDir })...)
		out = append(out, otherFolders("TRANSCRIPT_DIR", "each keeps its own record, without what was said before it ran",
			own.Transcripts, cards, func(s *mailbox.Settings) mailbox.Folder { return s.Transcripts })...)
	}
	if len(silent) > 0 {
		out = append(out, unseen("update them; until then compare their settings yourself",
			"these agents run a version that does not show its settings: %s", some(silent))...)
	}
	switch {
	case len(out) == 0 && len(peers) > 0:
		return well("folders or channel, version and limits are the same at %s", some(peers))
	case len(out) == 0 && slices.ContainsFunc(all, func(c mailbox.Card) bool { return string(c.AgentID) != string(s.Agent) }):
		return unseen("start the others, and check again", "no other agent is online to compare with")
	}
	return out
}

// differing is the finding about a setting that cards have otherwise than here.
func differing(name, why, here string, cards []mailbox.Card, of func(*mailbox.Settings) string) []finding {
	var at []string
	for _, c := range cards {
		if there := of(c.Sidecar); there != "" && here != "" && there != here {
			at = append(at, fmt.Sprintf("%s at %s", there, c.AgentID))
		}
	}
	if len(at) == 0 {
		return nil
	}
	return warning("set it alike, unless this is meant: "+why, "%s is %s here, and %s", name, here, some(at))
}

// otherFolders is the finding about sidecars on files that use another folder.
func otherFolders(name, why string, here mailbox.Folder, cards []mailbox.Card,
	of func(*mailbox.Settings) mailbox.Folder,
) []finding {
	var at []string
	for _, c := range cards {
		if there := of(c.Sidecar); there.Path != "" && !here.Same(there) {
			at = append(at, fmt.Sprintf("%s at %s", there.Path, c.AgentID))
		}
	}
	if len(at) == 0 {
		return nil
	}
	return warning("use one folder (in containers, one volume), unless this is meant: "+why,
		"%s is %s here, and another folder, %s", name, here.Path, some(at))
}

// notRestarted warns of a running sidecar that was started with other settings than this environment
// has. Its version and its secret are reported elsewhere.
func notRestarted(own *mailbox.Settings, c mailbox.Card) []finding {
	if !c.HasSettings() {
		return nil
	}
	var names []string
	for _, set := range peerSettings {
		if set.name != "version" && set.of(own) != set.of(c.Sidecar) {
			names = append(names, set.name)
		}
	}
	if own.Backend == c.Sidecar.Backend && !own.RelayDir.Same(c.Sidecar.RelayDir) {
		names = append(names, "RELAY_DIR")
	}
	if !own.Transcripts.Same(c.Sidecar.Transcripts) {
		names = append(names, "TRANSCRIPT_DIR")
	}
	if len(names) == 0 {
		return nil
	}
	return warning("restart it, or check with its environment",
		"the running sidecar of %s has another %s than this environment",
		c.AgentID, strings.Join(names, ", "))
}
