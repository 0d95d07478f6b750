// Package redisbox is the mailbox's store on Redis: a stream for each inbox, a
// hash of all agents' cards, and a channel for each goal, on which programs that know
// only peer inboxes publish and listen (docs/protocol.md 6.7).
//
// # Keys
//
//	nanobot:mailbox:{<agent>}:inbox      stream, an envelope in the field "envelope"
//	nanobot:mailbox:{<agent>}:malformed  list, what was no envelope, the newest first, at most 1000
//	nanobot:mailbox:{<agent>}:aside      sorted set, the inbox entries that these were, by the time in ms
//	nanobot:mailbox:{<agent>}:alive      string, gone when the agent's heartbeat stopped
//	nanobot:mailbox:agents               hash, agent id → card
//
// The braces keep the keys of an agent in one slot of a Cluster; in an agent's
// name } is written %7D and % is written %25. An inbox and a list of malformed
// mail live for 30 days after something was last put there.
//
// # Mail
//
// [Store.Put] is one script: it counts the inbox, adds the envelope and, for a
// message to a goal, publishes it on "agent.inbox.<goal>" with the field "id",
// by which readers of the stream know that they need not listen. A script,
// because a MULTI cannot count first, and because in a Cluster a script may
// publish on a channel of any slot. Mail that was taken is deleted: nothing here tells
// it from mail that was lost.
//
// [Store.Receive] reads the stream with a cursor of its own and looks, once a
// second, whether it is still the stream it was: of one that vanished or was
// replaced it begins at the start. Beside it it listens on all peer channels. A
// payload for its agent without an "id" is a foreign program's, and is put into
// the agent's inbox. A channel remembers nothing: what is published while
// nobody listens is lost, as it is for every reader of peer inboxes.
//
// # Cards
//
// A card of ours carries "presence":"key": whether its agent is there is told by
// the alive key, on the clock of Redis. A card without it is a foreign
// program's, and is judged by its heartbeat.
//
// # Faults
//
// Every call is answered within 2.5 s or fails, and says how to mend it. A call
// that was not answered may have been carried out: what is put again has the same id, and
// the receiver drops the repeat. Receive returns at a fault, a dead link
// included, and is called again.
package redisbox
