// Package mailbox is the vocabulary of direct messages between agents: the
// envelope, agents' cards, the contract of the stores that carry them, and what
// is refused with which code.
//
// The envelope is the superset of what three known agent mailboxes write
// (docs/protocol.md 6); [Decode] reads all of them and [Encode] writes ours.
//
// # Around it
//
// mailbox/filebox and mailbox/redisbox are the stores, mailbox/mailboxtest the
// suite that both pass. mailbox/agent is one agent's mailbox at work: what waits
// for its bot, what it sent and nobody acknowledged yet, and the tasks that it gave and took.
package mailbox
