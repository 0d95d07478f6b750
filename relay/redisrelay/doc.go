// Package redisrelay is the relay's queue on Redis: Pub/Sub for programs that
// know nothing else, with a capped stream behind it for order, memory and
// replay.
//
// # What is written
//
// [Queue.Publish] runs one small script for up to 200 lines: it verifies the
// receipt, adds each line to the stream "<channel>:log" (field "payload") and
// publishes it on the channel. A script, because a MULTI cannot verify first,
// and takes nothing back; and in a Cluster it needs only the stream's slot.
// A line without a seq goes to the stream alone: on the channel every sidecar
// would take it for another program's.
//
// # What is read
//
// [Queue.Subscribe] reads the stream with a cursor of its own, kept in a file,
// so what came while a sidecar was away is read after its return. On the
// channel it looks for payloads without a seq, another program's, and hands
// them over at once; the others come by the stream. Nothing but messages is
// ever published on the channel.
//
// # Loss
//
// Redis needs no persistence. A receipt names the last entry and how many
// there had been. An entry that the cap trimmed is counted among those that
// left the stream, and is fine. An entry that is missing for any other reason
// is lost: Publish answers [relay.ErrForgotten] and the sender publishes again.
// A reader applies the same rule to its cursor, and starts at the beginning of
// a stream that is not the one it read; repeats are dropped above. Before Redis 7
// streams do not count their entries (entries-added): there a missing entry is
// lost unless the stream is full, which at worst publishes some lines twice,
// and lines trimmed unread are not counted.
//
// # Dead links
//
// A blocking read has its own deadline, and the channel's connection must
// answer a ping; what is not answered in time ends the session, and the next
// one dials again. [Queue.Status] says what is wrong and how to fix it.
//
// # Two sidecars of one name
//
// The key "<channel>:agent:<name>" holds which instance is running. A second
// one sees that it is refreshed by another, says so ([Queue.Rival]) and works on.
//
// # Time-outs
//
// A publish that was not answered may have been accepted. It is an error, the
// caller publishes again, and the readers drop the repeats.
package redisrelay
