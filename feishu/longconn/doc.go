// Package longconn is between a bot's Feishu SDK and Feishu's long connection (docs/feishu.md 1), and
// can write events of its own into it.
//
// The bot's bootstrap call passes through [Server.Bootstrap], which replaces the
// URL in Feishu's answer by one of ours. The bot then opens its WebSocket with
// [Server.WebSocket], which opens one to the URL that Feishu gave. Frames
// go from one to the other as they came, with three exceptions:
//
//   - The tap sees every event before the bot does, in one piece also where
//     Feishu sent it in several, and may keep it from the bot or replace it.
//   - [Server.Inject] writes an event to the bot. The bot's acknowledgement is
//     the receipt, and Feishu does not see it.
//   - The settings that the bot gets make it come back within seconds when
//     the connection ends, which it does when the sidecar restarts.
//
// An event's path to the bot, and that of the bot's acknowledgement to Feishu, is event.go.
//
// # Goroutines
//
// Each connection has two that read, one for each side, and write to the other
// side themselves: whoever reads slowly slows down whoever sends. They end with the connection. One
// for all connections runs what the tap wants done after events, in their order, and ends when all is done.
//
// # Events for metrics
//
// Options.Counter is called with one of:
//
//	bootstrapped      a bootstrap answer with our URL went to the bot
//	bootstrap_failed  Feishu could not be reached, or its answer not be read
//	connected         a bot is connected, and Feishu behind it
//	unknown_ticket    a WebSocket came without a query that we handed out
//	too_many          … as one more than 64
//	upstream_refused  Feishu did not accept the WebSocket behind it
//	upstream_closed   a connection ended on Feishu's side
//	bot_closed        … on the bot's side
//	silent            … because Feishu did not answer the bot's ping
//	bot_silent        … because nothing came from the bot for long
//	stopped           … because the sidecar stops
//	passed            an event went to the bot
//	kept              an event did not, and was acknowledged to Feishu
//	refused           an event did not, and Feishu will deliver it again
//	untapped          an event went to the bot unseen: its pieces did not come
//	                  together, or the tap was stuck
//	tap_slow          the tap took more than feishu.AckHold: the event passed
//	panic             the tap or what it wanted done panicked
//	after_dropped     what was to be done after an event was not: too much waits
//	ack_late          an acknowledgement went to Feishu before that was done
//	injected          an event of ours went to the bot
//	redelivered       … again
//	delivered         … and was acknowledged with 200
//	ack_error         … or with another code
//	late_ack          … when nobody waited for it any more
package longconn
