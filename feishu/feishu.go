// Package feishu reads and writes what Feishu (Lark) sends and takes: the contents of messages
// and cards, events, signatures, and answers; it keeps the ids of bots and chats ([Book]), and
// makes the few calls that a sidecar makes for itself ([API]). Connections to a bot are in
// package gateway.
package feishu

import (
	"time"
)

// AckHold is how long the acknowledgement of an event may wait for what the
// sidecar does with it. Feishu delivers again after 3 s (docs/feishu.md 2.4).
const AckHold = 2 * time.Second

// Counted is something that a part of the transport counts: a value of the label event of the metric
// feishu_relay_gateway_events_total. Each part has a list, Counted.
type Counted string
