// Package webhook is between Feishu, which posts events (docs/feishu.md 2), and
// a bot that receives them so, and can post events of its own to the bot. An event's path to the
// bot, and that of the bot's answer to Feishu, is event.go.
//
// A post is passed on byte for byte once it is proven to be Feishu's, by its
// signature, its token, or both, whichever secrets [Options] has; an event that the
// tap replaces is encrypted and signed again. The bot's
// answer goes back to Feishu; if there is none Feishu gets 502 and posts
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
package webhook
