// Package conn is shared by the three packages that bring Feishu's events to a bot: longconn
// (the bot's own long connection), webhook (posts), and connector (a long connection that the
// sidecar opens for a bot without one).
//
//   - [Frame] is a message of the long connection, [Pieces] joins events that arrive in several
//     frames, [Endpoint] is the address that Feishu returns for the connection.
//   - [Tap] asks the sidecar about an event and runs what the sidecar wants done afterwards. A
//     slow or failing sidecar does not delay the bot's events.
//   - [Injections] are the injected events that were written to a bot, and its acknowledgements.
package conn
