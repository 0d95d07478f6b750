package sidecar

import (
	"cmp"
	"fmt"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// Shared is what the other sidecars of the groups should have as well, as this agent's card shows
// it.
func (c *Config) Shared(version string) *mailbox.Settings {
	s := &mailbox.Settings{Version: version, Secret: relay.Fingerprint(string(c.RelaySecret)), Backend: c.Backend,
		Transcripts: folderOf(c.TranscriptDir), MaxDepth: c.Limits.MaxDepth, Threshold: c.Limits.Threshold,
		Check: c.Limits.Check, DepthCount: c.depthCount(), MaxAge: c.MaxAge.Milliseconds()}
	if c.Backend == "redis" {
		s.RelayChannel = c.RelayChannel
	} else {
		s.RelayDir = folderOf(c.RelayDir)
	}
	return s
}

func folderOf(path string) mailbox.Folder {
	return mailbox.Folder{Path: path, ID: safefile.FolderID(path)}
}

// depthCount is the word of BOT_REPLY_DEPTH_COUNT.
func (c *Config) depthCount() string {
	if c.Limits.Count.Turns {
		return "turns"
	}
	return "messages"
}

// SecretError says what comes of two sidecars that have not the same RELAY_SECRET, and what to do.
type SecretError struct {
	Agent      relay.AgentName // the other one
	Own, Other string          // fingerprints; "" without a secret
}

func (e *SecretError) Error() string {
	return fmt.Sprintf("%s has another RELAY_SECRET (fingerprint %.8s, here %.8s), so a bot is not given what the other "+
		"says: set the same at both and restart them", e.Agent, cmp.Or(e.Other, "none"), cmp.Or(e.Own, "none"))
}
