// Package book is private, durable state of one sidecar in one folder.
//
// A book is a set of records. A [Record] has a kind, a key and a value, and a later
// record with the same kind and key replaces the earlier one. [Book.Commit] writes a batch
// of records before their effects begin; after a restart, [Book.Each] passes what is in
// the book to the caller, in the order of the commits. The book does not know what a kind
// means.
//
//	b, err := book.Open(dir, book.Options{Kinds: kinds})
//	err = b.Each(func(kind, key string, value json.RawMessage) error { … }) // restore the state
//	for batch := range events {
//		records, effects := apply(batch)
//		if err := b.Commit(records...); err != nil { … } // nothing of the batch happened
//		start(effects)
//	}
//
// # Who stores what
//
// Three packages have a book each.
//
//	what                            kind        key                 value             bound
//
//	package loop
//	events of a chat or the bot     event       chat#n              event             deleted by a snapshot
//	snapshots of their states       state       chat                state             8 MiB each
//	texts for the bot               text        chat/message        text              deleted once settled
//	what other parts note           note        theirs              theirs            20,000, 64 MiB
//	own lines, for a lossy backend  kept        lane/n              batch of lines    20,000, 32 MiB, RELAY_MAX_AGE
//
//	package mailbox/agent
//	letters, also dead ones         mail        time of sending     envelope          20,000, 128 MiB; dead 1,000, 64 MiB
//	what is known of them           letter      the same            head, phase, due  as above
//	tasks                           task        direction/agent/id  state, texts      10,000; ended 1,000, 7 days
//	exchanges of 10 minutes         pair        agent               times             10,000
//	what was handled                seen        agent/message, …    –                 35,000
//	signed mail that came           copy        time/retry/message  –                 50,000
//
//	package feishu
//	the own bot, all bots           self, bots  –                   ids, names        one each
//	chats                           chat        chat                kind, name        20,000
//	names                           name        id                  name              20,000
//	drafts of the gateway           draft       message or card     text, due         1,000, 16 MiB
//	chats with other agents         peer        message             message           200 a chat, 16 MiB
//
// A kind drops its oldest record at its bound ([Bound]). Where that would lose something
// that was promised, the owner of the state refuses first: it knows whom to answer.
//
// # Files
//
// The folder is private (0700, files 0600). Each line is a JSON object:
//
//	{"k":"name","id":"ou_1","t":1795777200,"v":{"name":"Ann"}}
//
// k is the kind, id the key, t the time of the commit in Unix seconds, v the value, which
// is missing if the record was deleted. All lines of a batch but the last have
// "more":true. book.<n>.jsonl is a log. snapshot.<n>.jsonl has what was in the book when
// log n began, so that logs and snapshots with smaller numbers are obsolete.
//
//   - After a kill at any point each batch is in the book whole or not at all: an unfinished
//     one, and a last line without its newline, are removed at the next start.
//   - A malformed line is skipped and logged with its file and number; the next snapshot
//     removes it. People may edit the files while no sidecar runs.
//   - Without [Options.Sync] a power cut can take the last batches.
//
// # Bounds
//
// Memory holds keys and offsets, about 190 bytes a record, and no values. A snapshot begins
// when more than half of the bytes in the files are garbage, and more than 4 MiB, or after
// [Options.Forget]. While it is written, the files have at most about three times the bytes
// of the records, and what is committed meanwhile; commits do not wait for it. While snapshots
// fail, which is logged, the log grows.
//
// # Why not a database
//
// A commit of three small records takes 5.4 µs of CPU here (BenchmarkCommit, from its profile),
// and about 3 µs more in the background for snapshots; the design of the product has 48 µs, as
// time and not CPU, for modernc.org/sqlite and for bbolt. Opening a book of 100,000 records takes
// about 0.1 s of CPU. These were measured on a busy machine, where the time was several times as
// long. And people can read the files.
package book
