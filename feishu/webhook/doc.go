// Package webhook is between Feishu, which posts events (docs/feishu.md 2), and
// a bot that receives them so, and can post events of its own to the bot. An event's path to the
// bot, and that of the bot's answer to Feishu, is event.go.
//
// A post is passed on byte for byte once it is proven to be Feishu's, by its
// signature, its token, or both, whichever secrets [Options] has; an event that the
// tap replaces is encrypted and signed again. The bot's
// answer goes back to Feishu; where there is none Feishu gets 502 and posts
// again by its own schedule (docs/feishu.md 2.4). Feishu waits for 3 s. A bot may take
// longer, up to Options.Timeout: it gets the event once, since repeats are refused
// until it has answered, and answered and dropped once it has with 200.
//
// # Hostile senders
//
// The port is open to the internet. What the head of a post shows to be wrong is
// refused before its body is read; a body has a time and a size, and all bodies
// share a budget of memory, in which the largest that is not verified makes room.
// A post takes one of the places at the bot only when it is verified. A signed timestamp is at
// most an hour from the clock.
//
// # Events for metrics
//
// Options.Counter is called with one of:
//
//	passed         an event went to the bot, which answered
//	kept           an event did not, and was acknowledged to Feishu
//	refused        an event did not, and Feishu will post it again
//	bot_away       an event did not, since the bot did not answer: likewise
//	challenge      Feishu asked whether we are the right ones
//	forged         a post was not proven to be Feishu's
//	too_large      a post was larger than 1 MiB, or than 4 KiB without its signature
//	too_slow       the body of a post did not come within 5 s, or had to make room for others
//	too_many       a post was refused, since the bot works on 256, or bodies fill their memory
//	in_progress    an event came again while the bot works on it: refused, Feishu will post it again
//	repeated       an event came again that the bot has answered with 200: answered, and dropped
//	untapped       an event went to the bot unseen, since 64 calls of the tap are slow
//	tap_slow       the tap took more than feishu.AckHold: the event passed
//	panic          the tap or what it wanted done panicked
//	after_dropped  what was to be done after an event was not: too much waits
//	after_late     it was not done when Feishu got its answer
//	injected       an event of ours went to the bot
//	redelivered    … again
//	delivered      … and was answered with 200
//	ack_error      … or otherwise
package webhook
