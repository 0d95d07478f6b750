// Package relay is the vocabulary of feishu-relay: the message that sidecars
// pass to each other, and the contract of the queues that carry it.
//
// # Message
//
// [Message] is a line of the file queue and a payload on Redis. [Decode] and
// [Message.Encode] keep to the contract with programs that know only its first
// seven fields; [Sign] and [Verify] add a shared secret to it.
//
// # Requests
//
// [Outbound], [Heard] and [Question] are what a bot reports or asks; [Sent] is the
// answer. An [Error] is a refusal whose reason the bot gets.
//
// # Backends
//
// A [Backend] connects the sidecars: package filerelay does it through a folder,
// package redisrelay through Redis, and package relaytest is the suite that both
// pass. [Window] is the part they share: it tracks the lines that were handed
// over but not settled, and so where to begin after a restart.
package relay
