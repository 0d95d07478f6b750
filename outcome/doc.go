// Package outcome tells what became of each message at each bot: how deep it
// was, what the policy said, whether the bot got it. Every sidecar notes the
// outcomes at its own bot where the others can read them, so that whoever
// watches one sidecar sees the group and not one bot's share of it.
//
//	store, err := outcome.OpenFiles(dir, "agent_b", logger) // or OpenRedis
//	log := outcome.New(outcome.Options{Store: store, Agent: "agent_b"})
//	go log.Run(ctx)
//	log.Note(outcome.Outcome{ChatID: chat, RelayMsgID: id, Decision: &d})
//	list, complete, err := log.Recent(ctx, "feishu", chat, 1000)
//
// # Writing
//
// [Log.Note] only remembers: no message waits for this. [Log.Run] writes what
// was noted 50 ms after the first of it, one line of JSON for each message:
// what became of a message meanwhile is one line. While the store is away the
// newest 5,000 are kept, and older ones dropped and counted. Outcomes are for
// people who look on: nothing is decided by them, and losing some costs a
// viewer a row. With a secret the lines are signed like messages; a line that
// is not, or is no outcome, is skipped and counted.
//
// # Where
//
// [Files] is a folder with a file <agent>.jsonl for each agent, which it alone
// writes, and the generation before it, <agent>.jsonl.1. [Redis] is a capped
// stream with a line in the field "payload".
//
// # Reading
//
// Reading costs only while somebody looks on. It begins with the first
// [Log.Recent] or [Log.Watch], from the oldest line that is kept, and ends two
// minutes after the last, when the newest 20,000 outcomes, about 10 MB, are
// forgotten again. Lines may come twice and an agent's lines may come anew:
// what two lines of one message and agent say is merged, the newer one first,
// and only what changes an outcome reaches the watchers.
package outcome
