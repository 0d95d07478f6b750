// Package group is the core of the product: what one sidecar knows of one chat, and what follows from an event.
//
// # How it is used
//
// A [State] is one chat; the caller keys States by channel and chat. [State.Apply] takes an [Event] and the time of
// this sidecar's clock, and returns what must survive and what must be done:
//
//	records, effects := state.Apply(now, event)
//	book.Commit(records)   // first
//	run(effects)           // then
//
// A [Record] is a change of the State. [Restore] makes an equal State from the records, and [State.Pending] lists the
// effects that have no result yet, so that a killed process goes on where it was. A result is an event too: [Done],
// [Claimed] and [Judged]. [State.Next] is the time at which the State wants a [Tick].
//
// The package does no I/O, reads no clock, starts no goroutine and has no lock.
//
// # What is in it
//
// A bot's message goes through the stages in stages.go, in this order. Each lets it go on, has it wait, or stops it
// with a [relay.Reason]. The depth of a message is in depth.go, for whom it is in audience.go. People's messages, and
// which one of several bots gets one, are in people.go. Commands are parsed in command.go and carried out in act.go;
// notices and answers are shown by turn.go. Texts in both languages are in words.go.
//
// # How sidecars agree
//
// The sidecars of a chat share records over the side lane: settings, commands, notices, verdicts, recalls, edits. Each
// folds the same records in any order, and comes to the same settings: of two values the newer one wins. What one of
// them has to do, such as to publish a command that all have heard or to show a notice, is done by the first in the
// order of names among those that are online; each of the others waits a second longer than the one before, and does
// it if it was not done. A claim decides between two that act at once.
//
// # Bounds
//
// Each collection has a bound beside its constant, which says what happens there. Only effects without a result, and
// the messages that they need, are the caller's to bound: it takes no further messages while too many are open. After
// the last message of a person, N bots say at most N + N(N-1)L messages, where L is the limit; depth.go has the
// argument.
package group
