// Package feishu reads and writes what Feishu (Lark) sends and takes: the contents of messages
// and cards, events, signatures, and answers; it keeps the ids of bots and chats ([Book]), and
// makes the few calls that a sidecar makes for itself ([API]). Connections to a bot are in
// package gateway.
package feishu

import (
	"time"
)

// AckHold is how long the decision on an event may take; then the bot gets the event without it. Feishu delivers an
// event again that is not acknowledged after 3 s (docs/feishu.md 2.4).
const AckHold = 2 * time.Second

// Counted is something that a part of the transport counts: a value of the label event of the metric
// feishu_relay_gateway_events_total. Each part has a list, Counted.
type Counted string
