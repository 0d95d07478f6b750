// Package redisrelay is the relay's queue on Redis: Pub/Sub for programs that
// know nothing else, with a capped stream behind it for order, memory and
// replay.
//
// # What is written
//
// [Queue.Publish] runs one small script for up to 200 lines: it looks whether the
// last line of the receipt is still there, adds each line to the stream
// "<channel>:log" (field "payload") and publishes it on the channel. A script,
// because a MULTI cannot look first, and takes nothing back; and in a Cluster it
// needs only the stream's slot. A line without a seq goes to the stream alone: on
// the channel every sidecar would take it for another program's.
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
// A Redis that restarts without its data, or a replica that takes over, may lack
// the newest entries. A sender looks whether its own last line is still at its id,
// and a reader whether the line at its position is the one that it read. If not,
// Publish returns [relay.ErrForgotten] and the sender publishes again; and the
// reader begins at the first entry. Repeats are dropped above. If all that is
// there came later, and the stream is full, the line was trimmed: the sender lost
// nothing, and the reader was away for too long, which it counts.
//
// # Dead links
//
// A blocking read has its own deadline, and the channel's connection must
// answer a ping; what is not answered in time ends the session, and the next
// one dials again. [Queue.Status] says what is wrong and how to fix it.
//
// # Two sidecars of one name
//
// Each writes its own text to the key "<channel>:agent:<name>". One that reads
// another text there reports it in [Queue.Status] and works on: nothing is lost,
// but both bots get the same messages, and each takes the other's for its own.
//
// # Time-outs
//
// A publish that was not answered may have been accepted. It is an error, the
// caller publishes again, and the readers drop the repeats.
package redisrelay
