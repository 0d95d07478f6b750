package sidecar

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// metrics are what /metrics shows. Labels have few values: no chat, no message.
type metrics struct {
	registry *prometheus.Registry

	received    prometheus.Counter
	stopped     *prometheus.CounterVec
	sent        *prometheus.CounterVec
	transcript  *prometheus.CounterVec
	decisions   *prometheus.CounterVec
	judge       prometheus.Histogram
	deliveries  prometheus.Counter
	latency     prometheus.Histogram
	depth       prometheus.Histogram
	missing     prometheus.Counter
	skewed      prometheus.Counter
	quarantined prometheus.Counter
	retried     *prometheus.CounterVec
	gateway     *prometheus.CounterVec
	mail        *prometheus.CounterVec
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "feishu_relay_received_total",
			Help: "Lines read from the relay backend, own ones and repeats included."}),
		stopped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_stopped_total",
			Help: "Messages that were not delivered to the bot, by reason."}, []string{"reason"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_sent_total",
			Help: "Messages that the bot reported as sent; relayed is false for private chats."}, []string{"relayed"}),
		transcript: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_transcript_lines_total",
			Help: "Messages recorded; added is false where another sidecar had written the line."}, []string{"role", "added"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_decisions_total",
			Help: "Decisions of the stop policy."}, []string{"tier", "allow"}),
		judge: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "feishu_relay_judge_duration_seconds",
			Help: "How long the judge took.", Buckets: []float64{.001, .01, .1, .25, .5, 1, 2, 4, 8, 16}}),
		deliveries: prometheus.NewCounter(prometheus.CounterOpts{Name: "feishu_relay_delivered_total",
			Help: "Messages that the bot was given."}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "feishu_relay_delivery_seconds",
			Help:    "From a message's time to its delivery.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 600}}),
		depth: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "feishu_relay_depth",
			Help: "Depth of the messages decided on.", Buckets: []float64{1, 2, 3, 4, 5, 6, 8, 10, 20}}),
		missing: prometheus.NewCounter(prometheus.CounterOpts{Name: "feishu_relay_seq_gaps_total",
			Help: "Messages of peers that never arrived, by the gaps in their seq."}),
		skewed: prometheus.NewCounter(prometheus.CounterOpts{Name: "feishu_relay_skewed_peers_total",
			Help: "Peers whose clock is more than a minute ahead."}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{Name: "feishu_relay_quarantined_lines_total",
			Help: "Malformed lines set aside."}),
		retried: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_stage_retries_total",
			Help: "Times a stage could not do its work and was tried again."}, []string{"stage"}),
		gateway: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_gateway_events_total",
			Help: "What the gateway, its entry and the connector came upon."}, []string{"event"}),
		mail: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_mailbox_messages_total",
			Help: "What happened to direct messages between agents."}, []string{"event", "type"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "feishu_relay_build_info",
		Help: "Always 1; the version is in the label.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.registry.MustRegister(m.received, m.stopped, m.sent, m.transcript, m.decisions, m.judge, m.deliveries, m.latency,
		m.depth, m.missing, m.skewed, m.quarantined, m.retried, m.gateway, m.mail, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, why := range relay.Reasons() {
		m.stopped.WithLabelValues(string(why))
	}
	return m
}

// gauge shows a value that is read when it is asked for.
func (m *metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

// counter is gauge for a value that only grows.
func (m *metrics) counter(name, help string, labels prometheus.Labels, value func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func (m *metrics) recorded(role string, added bool) {
	m.transcript.WithLabelValues(role, boolText(added)).Inc()
}

func (m *metrics) decided(d policy.Decision) {
	m.decisions.WithLabelValues(string(d.Tier), boolText(d.Allow)).Inc()
	m.depth.Observe(float64(d.Depth))
	if d.Tier == policy.TierJudge {
		m.judge.Observe(float64(d.JudgeMS) / 1000)
	}
}

func (m *metrics) delivered(sent time.Time) {
	m.deliveries.Inc()
	m.latency.Observe(max(0, time.Since(sent).Seconds()))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// gatewayEvent counts one of the few events that the gateway's parts name.
func (m *metrics) gatewayEvent(event string) { m.gateway.WithLabelValues(event).Inc() }
