// Package book is the private, durable state of one sidecar in one folder.
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
// # What a user stores, and how
//
//	what                            kind      key                value                bound
//	ids handled, ids sent           handled   chat/message       verdict, given       5,000, RELAY_MAX_AGE
//	positions of lanes              position  lane               file, offset, id     one a lane
//	own lines until published       out       lane/seq           the line             64 MiB; deleted once settled
//	messages for and with the bot   delivery  chat/message       state, text          64 MiB; Load reads a text when due
//	outlines of a chat              outline   chat/(n mod 4096)  sender, time, …      a ring: a key is used again
//	settings of groups              setting   chat               settings, time       10,000
//	verdicts, notices               verdict   chat/message/agent reason               20,000
//	drafts                          draft     message            text, due            1,000, 64 MiB
//	bots, chats and names           name      kind/id            name                 10,000
//	mail sent, not acknowledged     mail      message            envelope, due        10,000, 64 MiB
//	tasks                           task      task               state                10,000
//	seen mail                       mailseen  agent/message      –                    35,000, age
//	dead letters                    dead      message            envelope, reason     10,000, 30 days
//
// A kind drops its oldest record at its bound ([Bound]). Where that would lose something
// that was promised, the owner of the state refuses first: it knows whom to answer.
//
// # Files
//
// The folder is private (0700, files 0600). Each line is a JSON object:
//
//	{"k":"handled","id":"oc_1/om_2","t":1795777200,"v":{"verdict":"pass"}}
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
