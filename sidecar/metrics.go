package sidecar

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"feishu-relay/mailbox/agent"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// metrics are what /metrics shows; docs/metrics.md explains each. Labels have
// few values that are known beforehand: no chat, no message, no peer. A counter
// stands at 0 from the start, since a series that begins at 1 shows no increase.
type metrics struct {
	registry *prometheus.Registry
	register prometheus.Registerer // into registry, with the label agent

	received    *prometheus.CounterVec
	receivedAt  *prometheus.GaugeVec
	delay       *prometheus.HistogramVec
	retried     *prometheus.CounterVec
	stopped     *prometheus.CounterVec
	sent        *prometheus.CounterVec
	transcript  *prometheus.CounterVec
	decisions   *prometheus.CounterVec
	depth       prometheus.Histogram
	judgeCalls  *prometheus.CounterVec
	judgeTime   prometheus.Histogram
	deliveries  *prometheus.CounterVec
	latency     *prometheus.HistogramVec
	missing     prometheus.Counter
	skewed      prometheus.Counter
	quarantined prometheus.Counter
	gateway     *prometheus.CounterVec
	mail        *prometheus.CounterVec
}

// maxScrapes is how many may ask for the metrics at once; one more is answered
// 503. Where the disk hangs, so does the gauge ready.
const maxScrapes = 4

// Buckets of times in seconds: from a local hop to RELAY_MAX_AGE's default.
var (
	latencyBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 600}
	judgeBuckets   = []float64{.001, .01, .1, .25, .5, 1, 2, 4, 8, 16}
)

func newMetrics(name relay.AgentName, version string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.register = prometheus.WrapRegistererWith(prometheus.Labels{"agent": strings.ToValidUTF8(string(name), "\uFFFD")},
		m.registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(m.register).NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_" + name, Help: help},
			labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return promauto.With(m.register).NewHistogramVec(
			prometheus.HistogramOpts{Name: "feishu_relay_" + name, Help: help, Buckets: buckets}, labels)
	}
	m.received = counter("received_total", "Lines read from a queue, own messages and repeats included.", "queue")
	m.receivedAt = promauto.With(m.register).NewGaugeVec(prometheus.GaugeOpts{Name: "feishu_relay_last_received_timestamp_seconds",
		Help: "When a line was last read from a queue; 0: not since the start."}, []string{"queue"})
	m.delay = histogram("queue_delay_seconds", "From the time of another's message until it was read here.",
		latencyBuckets, "queue")
	m.retried = counter("stage_retries_total", "Times a stage could not do its work and was tried again.", "stage")
	m.stopped = counter("stopped_total", "Messages that were not delivered to the bot, by reason.", "reason")
	m.sent = counter("sent_total", "Messages that the bot reported as sent; relayed is false for private chats.",
		"relayed")
	m.transcript = counter("transcript_lines_total",
		"Messages recorded; added is false where another sidecar had written the line.", "role", "added")
	m.decisions = counter("decisions_total", "Decisions of the stop policy.", "tier", "allow")
	m.depth = histogram("decision_depth", "Depth of the messages decided on.",
		[]float64{1, 2, 3, 4, 5, 6, 8, 10, 20}).WithLabelValues().(prometheus.Histogram)
	m.judgeCalls = counter("judge_calls_total", "Questions put to the judge, by its answer.", "result")
	m.judgeTime = histogram("judge_duration_seconds", "How long the judge took to answer or to fail.",
		judgeBuckets).WithLabelValues().(prometheus.Histogram)
	m.deliveries = counter("delivered_total", "Messages that the bot was given, by door.", "door")
	m.latency = histogram("delivery_duration_seconds", "From the time of a message to its delivery, by channel (door).",
		latencyBuckets, "door")
	m.missing = counter("seq_gaps_total",
		"Messages of peers that never arrived, by the gaps in their seq.").WithLabelValues()
	m.skewed = counter("skewed_messages_total",
		"Messages from a clock more than a minute ahead, taken as sent on arrival.").WithLabelValues()
	m.quarantined = counter("quarantined_lines_total", "Malformed lines set aside.").WithLabelValues()
	m.gateway = counter("gateway_events_total", "What the gateway, its entry and the connector came upon.", "event")
	m.mail = counter("mailbox_messages_total", "What happened to direct messages between agents.", "event")
	m.register.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("build_info", "Always 1; version and goversion tell what runs.",
		prometheus.Labels{"version": version, "goversion": runtime.Version()}, func() float64 { return 1 })

	for _, queue := range laneNames[:2] {
		m.expectQueue(queue)
	}
	for _, part := range []string{"transcript", partInject} {
		m.retried.WithLabelValues(part)
	}
	for _, why := range relay.Reasons() {
		m.stopped.WithLabelValues(string(why))
	}
	for _, flag := range []string{"true", "false"} {
		m.sent.WithLabelValues(flag)
		m.transcript.WithLabelValues(relay.RoleUser, flag)
		m.transcript.WithLabelValues(relay.RoleAssistant, flag)
		m.decisions.WithLabelValues(string(policy.TierJudge), flag)
	}
	m.decisions.WithLabelValues(string(policy.TierHardLimit), "false")
	m.decisions.WithLabelValues(string(policy.TierThreshold), "true")
	m.decisions.WithLabelValues(string(policy.TierJudgeOff), "true")
	for _, result := range judgeResults {
		m.judgeCalls.WithLabelValues(result)
	}
	return m
}

// expectQueue shows a queue that nothing was read from yet.
func (m *metrics) expectQueue(queue string) {
	m.received.WithLabelValues(queue)
	m.receivedAt.WithLabelValues(queue)
	m.delay.WithLabelValues(queue)
}

// expectDoor shows a door that nothing was delivered by yet.
func (m *metrics) expectDoor(door string) {
	m.deliveries.WithLabelValues(door)
	m.latency.WithLabelValues(door)
}

// expectMail shows what has not happened to direct messages yet.
func (m *metrics) expectMail() {
	for _, what := range []agent.What{agent.EventSent, agent.EventReceived, agent.EventDelivered, agent.EventRefused,
		agent.EventUndeliverable, agent.EventDuplicate, agent.EventExpired, agent.EventMalformed, agent.EventBadSignature,
		agent.EventDropped, agent.EventDead, agent.EventControl} {
		m.mail.WithLabelValues(string(what))
	}
}

// gauge shows a value that is read when it is asked for. The name stands without
// its prefix.
func (m *metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	m.register.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "feishu_relay_" + name, Help: help,
		ConstLabels: labels}, value))
}

// counter is gauge for a value that only grows.
func (m *metrics) counter(name, help string, labels prometheus.Labels, value func() float64) {
	m.register.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "feishu_relay_" + name, Help: help,
		ConstLabels: labels}, value))
}

// read counts a line of a queue.
func (m *metrics) read(queue string, at time.Time) {
	m.received.WithLabelValues(queue).Inc()
	m.receivedAt.WithLabelValues(queue).Set(float64(at.UnixMilli()) / 1000)
}

// arrived counts how late a message of another's was, or how far its clock is
// ahead.
func (m *metrics) arrived(queue string, history bool, msg *relay.Message, now time.Time) {
	if !history && msg.Final() > 0 {
		m.delay.WithLabelValues(queue).Observe(max(0, now.Sub(msg.Final().Time()).Seconds()))
	}
	if msg.TS.Time().Sub(now) > relay.MaxAhead {
		m.skewed.Inc()
	}
}

func (m *metrics) recorded(role string, added bool) {
	m.transcript.WithLabelValues(role, strconv.FormatBool(added)).Inc()
}

func (m *metrics) decided(d policy.Decision) {
	m.decisions.WithLabelValues(string(d.Tier), strconv.FormatBool(d.Allow)).Inc()
	m.depth.Observe(float64(d.Depth))
}

// delivered counts a message whose text was final at a time.
func (m *metrics) delivered(door string, final time.Time) {
	m.deliveries.WithLabelValues(door).Inc()
	m.latency.WithLabelValues(door).Observe(max(0, time.Since(final).Seconds()))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.register, MaxRequestsInFlight: maxScrapes})
}
