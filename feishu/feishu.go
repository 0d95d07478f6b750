// Package feishu is what Feishu (Lark) looks like: the contents of messages and
// cards, events, signatures, identities, and the few calls that a sidecar makes
// for itself. It knows no connection to a bot; package gateway does.
package feishu

import (
	"time"
)

// AckHold is how long the acknowledgement of an event may wait for what the
// sidecar does with it. Feishu delivers again after 3 s (docs/feishu.md 2.4).
const AckHold = 2 * time.Second

// Counted is something that a part of the transport counts: a value of the label event of the metric
// feishu_relay_gateway_events_total. Each part has its list in counted.go.
type Counted string
