package sidecar

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"feishu-relay/feishu"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/send"
	"feishu-relay/feishu/webhook"
	"feishu-relay/mailbox/agent"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
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
	depth       prometheus.Observer
	judgeCalls  *prometheus.CounterVec
	judgeTime   prometheus.Observer
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

func newMetrics(name relay.AgentName) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.register = prometheus.WrapRegistererWith(prometheus.Labels{"agent": strings.ToValidUTF8(string(name), "\uFFFD")},
		m.registry)
	with := promauto.With(m.register)
	counter := func(name, help string, values []string, labels ...string) *prometheus.CounterVec {
		v := with.NewCounterVec(prometheus.CounterOpts{Name: "feishu_relay_" + name, Help: help}, labels)
		for _, value := range values {
			v.WithLabelValues(strings.Fields(value)...)
		}
		return v
	}
	histogram := func(name, help string, buckets []float64, values []string, labels ...string) *prometheus.HistogramVec {
		v := with.NewHistogramVec(
			prometheus.HistogramOpts{Name: "feishu_relay_" + name, Help: help, Buckets: buckets}, labels)
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	queues, doors := laneNames[:2], []string{doorGateway, doorWebhook, doorStream}
	m.received = counter("received_total", "Lines read from a queue, own messages and repeats included.", queues, "queue")
	m.receivedAt = with.NewGaugeVec(prometheus.GaugeOpts{Name: "feishu_relay_last_received_timestamp_seconds",
		Help: "When a line was last read from a queue; 0: not since the start."}, []string{"queue"})
	for _, queue := range queues {
		m.receivedAt.WithLabelValues(queue)
	}
	m.delay = histogram("queue_delay_seconds", "From the time of another's message until it was read here.",
		latencyBuckets, queues, "queue")
	m.retried = counter("stage_retries_total", "Times a stage could not do its work and was tried again.",
		[]string{"transcript", partInject}, "stage")
	m.stopped = counter("stopped_total", "Messages that were not delivered to the bot, by reason.",
		words(relay.Reasons()), "reason")
	m.sent = counter("sent_total", "Messages that the bot reported as sent; relayed is false for private chats.",
		[]string{"true", "false"}, "relayed")
	m.transcript = counter("transcript_lines_total",
		"Messages recorded; added is false where another sidecar had written the line.",
		[]string{"user true", "user false", "assistant true", "assistant false"}, "role", "added")
	m.decisions = counter("decisions_total", "Decisions of the stop policy.",
		[]string{"hard_limit false", "threshold true", "judge true", "judge false", "judge_off true"}, "tier", "allow")
	m.depth = histogram("decision_depth", "Depth of the messages decided on.",
		[]float64{1, 2, 3, 4, 5, 6, 8, 10, 20}, nil).WithLabelValues()
	m.judgeCalls = counter("judge_calls_total", "Questions put to the judge, by its answer.", judgeResults, "result")
	m.judgeTime = histogram("judge_duration_seconds", "How long the judge took to answer or to fail.",
		judgeBuckets, nil).WithLabelValues()
	m.deliveries = counter("delivered_total", "Messages that the bot was given, by door.", doors, "door")
	m.latency = histogram("delivery_duration_seconds", "From the time of a message to its delivery, by channel (door).",
		latencyBuckets, doors, "door")
	m.missing = counter("seq_gaps_total",
		"Messages of peers that never arrived, by the gaps in their seq.", nil).WithLabelValues()
	m.skewed = counter("skewed_messages_total",
		"Messages from a clock more than a minute ahead, taken as sent on arrival.", nil).WithLabelValues()
	m.quarantined = counter("quarantined_lines_total", "Lines of the relay that are no messages.", nil).WithLabelValues()
	m.gateway = counter("gateway_events_total", "What the gateway, its entry and the connector came upon.",
		words(entryEvents, gateway.Counted, link.Counted, webhook.Counted, link.CountedByConnector, send.Counted), "event")
	m.mail = counter("mailbox_messages_total", "What happened to direct messages between agents.",
		words([]agent.What{agent.EventSent, agent.EventReceived, agent.EventDelivered, agent.EventRefused,
			agent.EventUndeliverable, agent.EventDuplicate, agent.EventExpired, agent.EventMalformed, agent.EventBadSignature,
			agent.EventDropped, agent.EventDead, agent.EventControl}), "event")
	m.register.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// entryEvents are the words of the gateway's entry, whose package comment explains them. Those of the other parts are
// in their packages; a test keeps the lists complete.
var entryEvents = []feishu.Counted{"opened", "proxy_denied", "proxy_failed", "proxy_refused", "tls_failed",
	"tls_refused", "tunnel"}

func words[T ~string](lists ...[]T) (all []string) {
	for _, word := range slices.Concat(lists...) {
		all = append(all, string(word))
	}
	return all
}

// gatewayEvent counts something that a part of the transport names.
func (m *metrics) gatewayEvent(event feishu.Counted) { m.gateway.WithLabelValues(string(event)).Inc() }

// read counts a line of a queue.
func (m *metrics) read(queue string, at time.Time) {
	m.received.WithLabelValues(queue).Inc()
	m.receivedAt.WithLabelValues(queue).Set(float64(at.UnixMilli()) / 1000)
}

// arrived counts how late a message of another's was.
func (m *metrics) arrived(queue string, history bool, msg *relay.Message, now time.Time) {
	if !history && msg.Final() > 0 {
		m.delay.WithLabelValues(queue).Observe(max(0, now.Sub(msg.Final().Time()).Seconds()))
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

var judgeResults = []string{"yes", "no", "timeout", "unclear", "breaker_open", "error"}

// countedJudge counts the questions put to a judge. An answer remembered by the judge counts like a new one.
type countedJudge struct {
	judge   policy.Judge
	metrics *metrics
}

// Judge implements [policy.Judge].
func (c countedJudge) Judge(ctx context.Context, q policy.Question) (bool, error) {
	began := time.Now()
	allow, err := c.judge.Judge(ctx, q)
	result := "no"
	switch {
	case errors.Is(err, context.Canceled):
		return allow, err // we are stopping, or the caller of /v1/decide has gone
	case errors.Is(err, context.DeadlineExceeded):
		result = "timeout" // no answer in BOT_REPLY_LLM_TIMEOUT
	case errors.Is(err, judge.ErrAnswer):
		result = "unclear" // neither YES nor NO
	case errors.Is(err, judge.ErrOpen):
		result = "breaker_open" // not asked, since it failed several times in a row
	case err != nil:
		result = "error"
	case allow:
		result = "yes"
	}
	c.metrics.judgeTime.Observe(time.Since(began).Seconds())
	c.metrics.judgeCalls.WithLabelValues(result).Inc()
	return allow, err
}
