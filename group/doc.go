// Package group is the core of the product: what one sidecar knows of one chat, and what follows from an event.
//
// # How it is used
//
// A [State] is one chat; the caller keys States by channel and chat. [State.Apply] changes it by an [Event] and returns
// [Effect] values, which are to be done. The book holds the events, since equal events make equal States, and now and
// then a snapshot, the JSON of the State, in the place of those before it:
//
//	state := group.New() // or json.Unmarshal(snapshot, state); then the events since, each by Apply, without effects
//	apply := func(e group.Event) {
//		e.At = time.Now()
//		effects, changed := state.Apply(e)
//		if changed {
//			book.Commit(e) // before the effects begin
//		}
//		run(effects) // each with a key ends in Event{Kind: Done, Key: key}
//	}
//	apply(group.Event{Kind: group.Start, Config: &config})
//	for {
//		select {
//		case e := <-events:
//			apply(e)
//		case <-at(state.Next()): // zero: never
//			apply(group.Event{Kind: group.Tick})
//		}
//	}
//
// At a Start all effects without a result come again, so that a killed process goes on where it was: an effect is done
// at least once, and its key or ID lets whoever does it know a repeat. A snapshot is due when the events since the last
// one have more bytes than it. A clean stop writes one, so that another version of this package reads no events.
//
// The caller drops repeats of edits by their ids, and says with [Configure] and CanWrite false if Feishu refuses this
// sidecar's calls.
//
// The package does no I/O, reads no clock, starts no goroutine and has no lock.
//
// # What is in it
//
// A bot's message goes through the stages in stages.go, in this order. Each lets it go on, has it wait, or stops it
// with a [relay.Reason]. The depth of a message is in depth.go, for whom it is in audience.go. People's messages, and
// which one of several bots gets one, are in people.go. Commands are parsed in command.go and carried out in act.go;
// what one sidecar does for all is in turn.go. A bot's message that Feishu itself delivers waits for the relay's copy
// of it, and one of both goes through the stages. Texts in both languages are in words.go.
//
// # How sidecars agree
//
// The sidecars of a chat share a [Record] for each setting, command, notice, verdict and recall over the side lane.
// Each folds the same records in any order, and comes to the same settings: of two values the newer one wins. What one
// of them has to do, such as to publish a message that all have heard or to show a notice, is done by the first in the
// order of names among those that are online; each of the others waits a second longer than the one before, and does
// it if it was not done. A claim decides between two that act at once, and who holds it has 4 s.
//
// # Bounds
//
// Each collection has a bound beside its constant, which says what happens there. Only effects without a result, and
// their messages, are the caller's to bound: it takes no further messages while too many are open. After the last
// message of a person, N bots say at most N + N(N-1)L messages, where L is the limit; depth.go has the argument.
package group
