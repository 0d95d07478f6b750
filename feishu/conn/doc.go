// Package conn is what the three ways have in common on which Feishu's events reach a bot: the
// bot's own long connection (package longconn), posts (package webhook), and a long connection
// that the sidecar keeps for a bot without one (package connector).
//
//   - [Frame] is a message of the long connection, [Pieces] puts events together that come in
//     several frames, [Endpoint] is where Feishu wants to be connected to.
//   - [Tap] asks the sidecar about an event and runs what it wants done after it. It keeps a slow
//     or broken sidecar from holding up the bot's events.
//   - [Injections] are the events of our own that a bot has been sent, and its answers.
package conn
