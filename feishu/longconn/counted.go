package longconn

import (
	"slices"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

// What a long connection counts, beside what package conn counts.
const (
	countedBootstrapped feishu.Counted = "bootstrapped" // a bootstrap answer with our URL went to the bot
	// Feishu could not be reached, or its answer not be read
	countedBootstrapFailed feishu.Counted = "bootstrap_failed"
	countedConnected       feishu.Counted = "connected"        // a bot is connected, and Feishu behind it
	countedUnknownTicket   feishu.Counted = "unknown_ticket"   // a WebSocket came without a query that we handed out
	countedTooMany         feishu.Counted = "too_many"         // a WebSocket came as one more than 64
	countedUpstreamRefused feishu.Counted = "upstream_refused" // Feishu did not accept the WebSocket behind it
	countedUpstreamClosed  feishu.Counted = "upstream_closed"  // a connection ended on Feishu's side
	countedBotClosed       feishu.Counted = "bot_closed"       // a connection ended on the bot's side
	// a connection ended because Feishu did not answer the bot's ping
	countedSilent feishu.Counted = "silent"
	// a connection ended because nothing came from the bot for long
	countedBotSilent feishu.Counted = "bot_silent"
	countedStopped   feishu.Counted = "stopped" // a connection ended because the sidecar stops
	countedPassed    feishu.Counted = "passed"  // an event went to the bot
	// an event did not go to the bot, and was acknowledged to Feishu
	countedKept feishu.Counted = "kept"
	// an event did not go to the bot, and Feishu will deliver it again
	countedRefused feishu.Counted = "refused"
	// an acknowledgement went to Feishu before what was to be done after its event was done
	countedAckLate feishu.Counted = "ack_late"
)

// Counted is all that Options.Counter gets.
var Counted = slices.Concat(conn.Counted, []feishu.Counted{
	countedBootstrapped, countedBootstrapFailed, countedConnected, countedUnknownTicket, countedTooMany,
	countedUpstreamRefused, countedUpstreamClosed, countedBotClosed, countedSilent, countedBotSilent,
	countedStopped, countedPassed, countedKept, countedRefused, countedAckLate, conn.LateAck,
})
