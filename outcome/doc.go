// Package outcome shares what became of each message at each bot: how deep it
// was, what the policy said, whether the bot got it. Every sidecar notes the
// outcomes at its own bot where the others can read them, so that a viewer at
// one sidecar sees the group and not one bot's share of it.
//
//	box, err := outbox.Open(root, outcome.BoxOptions(secret, keepFor, logger))
//	log := outcome.New(outcome.Options{Box: box, Queue: queue, Agent: "agent_b"})
//	go log.Run(ctx)
//	log.Note(outcome.Outcome{ChatID: chat, RelayMsgID: id, Decision: &d})
//	log.Settle("feishu", chat, id)
//	list, complete, err := log.Recent(ctx, "feishu", chat, 1000)
//
// # Writing
//
// Outcomes take the path of messages: through an [outbox.Box] on disk to a queue
// that all sidecars read. [Log.Note] only remembers; what is known of a message
// when it is settled is one line, which [Log.Settle] writes to the box before
// the message counts as handled. So a process that is killed loses no outcome of
// a message that is not handed over again. What is not settled 50 ms after it was
// noted is written by [Log.Run], for those who watch. While the disk takes
// nothing the newest 5,000 are remembered, and while the queue is away the box
// keeps 8 MiB; older ones are dropped and counted. Nothing is decided by
// outcomes, and losing some costs a viewer a row. With a secret the lines are
// signed like messages; a line that is not signed, or not an outcome, is skipped
// and counted.
//
// # Reading
//
// Reading costs only while somebody watches. It begins with the first
// [Log.Recent] or [Log.Watch], from the oldest line that is kept, and ends two
// minutes after the last, when the newest 20,000 outcomes, about 10 MB, are
// forgotten again. Lines may come twice: what two lines of one message and agent
// say is merged, the newer one first, and only what changes an outcome reaches
// the watchers.
package outcome
