package feishu

// Counted is something that a part of the transport counts: a value of the label event of the metric
// feishu_relay_gateway_events_total. Each part has its list in counted.go.
type Counted string
