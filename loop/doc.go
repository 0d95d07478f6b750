// Package loop is the heart of a sidecar: one goroutine that owns its state.
//
// Everything that happens is an [Event]. The loop takes all events that are ready, applies them to the states of the
// chats (package group) and of the bot (package deliver), writes what changed to the book with one commit, and hands
// the [Effect] values that follow to Options.Do. Whoever does them reports back with an event. The loop does no other
// I/O, and no part of the state has a lock.
//
//	gateway, API, lanes, transcripts, timers ─► Event ─► Core.Step ─► book.Commit ─► Effect ─► workers ─► Event …
//
// What is in the book happened. A killed process begins with a Start in each state, after which all effects without a
// result come again.
//
// # What is in the book
//
//	kind    key            value
//	event   chat#n, #n     an event of the chat's state, or of the bot's; those before the snapshot are deleted
//	state   chat, ""       a snapshot of a state
//	text    chat/message   what the bot gets, until its delivery has ended
//	note    any            what the caller stores; beyond maxNotes the oldest is forgotten
//	kept    any            what the caller stores for a while
//
// A snapshot is written when the events since the last one have four times its bytes, and at the end of the process.
//
// # When the disk refuses
//
// A batch that cannot be committed is tried again until it can; nothing else happens meanwhile but [Loop.View]. Whoever
// waits with [Loop.Save] gets [ErrRefused] at once, and with [Loop.Post] waits for room as long as its context lasts.
package loop
