// Package outcome shares what became of each message at each bot: its depth,
// the policy's decision, and whether the bot got it. Every sidecar publishes
// the outcomes at its own bot to the others, so that a viewer at one sidecar
// shows the whole group.
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
// that all sidecars read. [Log.Note] only keeps an outcome in memory.
// [Log.Settle] writes the outcome of a message to the box, as one line, before
// the message counts as handled. So a process that is killed loses no outcome of
// a message that is not handed over again. [Log.Run] writes an outcome that is
// not settled within 50 ms, for viewers. While the disk cannot be written the
// newest 5,000 are kept in memory, and while the queue is unreachable the box
// keeps 8 MiB; older ones are dropped and counted. No decision depends on
// outcomes: a lost one is only missing in a viewer. With a secret the lines are
// signed like messages; a line that is not signed, or not an outcome, is skipped
// and counted.
//
// # Reading
//
// Outcomes are read only while a viewer needs them. Reading begins with the
// first [Log.Recent] or [Log.Watch], from the oldest line that is kept, and ends
// two minutes after the last. In between the newest 20,000 outcomes, about 10
// MB, are in memory. Lines may be repeated: lines of one message and agent are
// merged, the newer values first, and watchers get only changes.
package outcome
