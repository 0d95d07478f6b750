// Package deliver is what becomes of messages that are to reach the bot, chat messages and mail alike, over whatever
// channel is open: the gateway, INJECT_URL or the stream.
//
// # How it is used
//
// A [State] is one bot. As with package group, [State.Apply] changes it by an [Event] and returns [Effect] values; the
// book holds the events, and now and then a snapshot, the JSON of the State. The texts are the caller's, in the book
// under the item's key: a State has none, so that what waits for a bot that is away costs little memory. The workers
// that write report back with a [Result]; a killed process begins with a [Start], after which what was being written is
// written again.
//
// The package does no I/O, reads no clock, starts no goroutine and has no lock.
//
// # The rule
//
// An item that was written whole and not answered is in progress. It is not written again, on any channel, while its
// connection lives. It ends with
//
//   - an answer: the bot has it ([Delivered]);
//   - a refusal: the bot will never take it ([Refused]);
//   - an error or the end of the connection: it is written again after a pause, until Config.MaxAge has passed since
//     its turn ([Expired]);
//   - Config.Timeout without an answer: it is not written again ([TimedOut]);
//   - a withdrawal while it waits, or once it would be written again ([Withdrawn]).
//
// A reader that does not acknowledge has what was written to it, as far as anybody knows ([Unconfirmed]). That counts
// as delivered, and is written again on the next connection until the bot confirms it, it is withdrawn or Config.MaxAge
// has passed.
//
// A channel may say that the bot has accepted an item and settles it later. The bot settles it, or any other item that
// it was given, with a [Settle]; an answer after the time-out turns TimedOut into Delivered.
//
// # Order
//
// The items of a chat are written in the order in which they were taken, also if several of them are written again on a
// new connection. On a serial channel the next one waits until the one before it has ended or was accepted. An item on
// which the bot failed does not delay later ones of other channels.
package deliver
