// Package webhook stands between Feishu, which posts events (FEISHU.md 2), and
// a bot that receives them so, and can post events of its own to the bot.
//
// A post is passed on byte for byte once it is proven to be Feishu's, by its
// signature, its token, or both, whichever secrets [Options] has. The bot's
// answer goes back to Feishu; where there is none Feishu gets 502 and posts
// again by its own schedule (FEISHU.md 2.4).
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
//	too_large      a post was larger than 20 MiB
//	too_many       a post was refused, since 64 are under way
//	untapped       an event went to the bot unseen, since the tap was stuck
//	tap_slow       the tap took more than feishu.AckHold: the event passed
//	panic          the tap or what it wanted done panicked
//	after_dropped  what was to be done after an event was not: too much waits
//	after_late     it was not done when Feishu got its answer
//	injected       an event of ours went to the bot
//	redelivered    … again
//	delivered      … and was answered with 200
//	ack_error      … or otherwise
package webhook
