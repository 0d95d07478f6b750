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
package longconn
