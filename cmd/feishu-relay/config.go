package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
	"feishu-relay/sidecar"
)

// env is the environment as it stands: strings only, since envconfig stops at
// the first value that does not fit its type, and an operator wants to read of
// all mistakes at once. The README's table is checked against the tags.
type env struct {
	AgentName         string `envconfig:"AGENT_NAME" desc:"this bot's name on the relay (required)"`
	AgentRole         string `envconfig:"AGENT_ROLE" desc:"one paragraph on what the bot is for; the judge and the other agents read it"`
	AgentCapabilities string `envconfig:"AGENT_CAPABILITIES" desc:"comma list of what the bot can do, for the other agents"`
	BotName           string `envconfig:"BOT_NAME" desc:"the bot's display name in Feishu"`
	BotOpenID         string `envconfig:"BOT_OPEN_ID" desc:"the bot's own open_id"`
	FeishuAppID       string `envconfig:"FEISHU_APP_ID" desc:"the bot's app; default: learned from the bot's first connection"`
	FeishuAppSecret   string `envconfig:"FEISHU_APP_SECRET" desc:"needed by the connector; else optional"`
	FeishuBaseURL     string `envconfig:"FEISHU_BASE_URL" default:"https://open.feishu.cn" desc:"Feishu's API; https://open.larksuite.com for Lark"`
	FeishuEncryptKey  string `envconfig:"FEISHU_ENCRYPT_KEY" desc:"webhook mode: the app's Encrypt Key"`
	FeishuToken       string `envconfig:"FEISHU_VERIFICATION_TOKEN" desc:"webhook mode: the app's Verification Token"`

	GatewayAddr       string `envconfig:"GATEWAY_ADDR" desc:"where the bot's Feishu SDK is pointed at, such as 127.0.0.1:8788; default: off"`
	GatewayTLS        string `envconfig:"GATEWAY_TLS" default:"off" desc:"off, auto (own CA, written to $DATA_DIR/ca.pem) or file"`
	GatewayCertFile   string `envconfig:"GATEWAY_CERT_FILE" desc:"certificate for GATEWAY_TLS=file"`
	GatewayKeyFile    string `envconfig:"GATEWAY_KEY_FILE" desc:"its key"`
	GatewayPublicURL  string `envconfig:"GATEWAY_PUBLIC_URL" desc:"how the bot reaches the gateway, for the WebSocket URL handed to it; default: as it asked"`
	GatewaySettle     string `envconfig:"GATEWAY_SETTLE" default:"1500ms" desc:"the quiet after a streamed card's end sign"`
	GatewayStreamLife string `envconfig:"GATEWAY_STREAM_LIFE" default:"10m" desc:"how long a streamed card without an end sign is waited for"`
	GatewayEditSettle string `envconfig:"GATEWAY_EDIT_SETTLE" default:"8s" desc:"the quiet after an edit that has no end sign"`
	WebhookAddr       string `envconfig:"WEBHOOK_ADDR" desc:"where /webhook/event is served; default: GATEWAY_ADDR if that is loopback"`
	BotWebhookURL     string `envconfig:"BOT_WEBHOOK_URL" desc:"webhook mode: where the bot listens for Feishu's events"`
	Connector         string `envconfig:"CONNECTOR" default:"false" desc:"the sidecar holds the Feishu connection itself, for a bot that knows no Feishu"`
	InjectSenderType  string `envconfig:"INJECT_SENDER_TYPE" default:"bot" desc:"sender_type of an injected Feishu event: bot, app or user"`
	InjectMention     string `envconfig:"INJECT_MENTION" default:"addressed" desc:"when the injected event names this bot: addressed or always"`

	ListenAddr string `envconfig:"LISTEN_ADDR" default:"127.0.0.1:8787" desc:"local API, health, metrics"`
	APIToken   string `envconfig:"API_TOKEN" desc:"bearer token; required when LISTEN_ADDR is not loopback"`

	InjectURL     string `envconfig:"INJECT_URL" desc:"where inbound messages are posted; without it the bot reads /v1/stream"`
	InjectContext string `envconfig:"INJECT_CONTEXT" default:"0" desc:"so many lines that the bot was not given stand before an injected text"`

	DeliveryTimeout string `envconfig:"DELIVERY_TIMEOUT" default:"15m" desc:"how long the bot may take to answer a message that it was given; then the message is undeliverable"`

	RelayBackend  string `envconfig:"RELAY_BACKEND" desc:"file or redis; default: redis if REDIS_URL is set, else file"`
	RedisURL      string `envconfig:"REDIS_URL" desc:"redis://[user:password@]host:6379/0; Sentinel and Cluster: docs/architecture.md"`
	RelayChannel  string `envconfig:"RELAY_CHANNEL" default:"nanobot:feishu:outbound" desc:"Pub/Sub channel; the stream is <channel>:log"`
	DataDir       string `envconfig:"DATA_DIR" default:"~/.nanobot" desc:"parent of the next folders"`
	RelayDir      string `envconfig:"RELAY_DIR" desc:"file queue and this agent's state; default: $DATA_DIR/relay"`
	TranscriptDir string `envconfig:"TRANSCRIPT_DIR" desc:"the groups' transcripts; default: $DATA_DIR/transcripts"`
	MailboxDir    string `envconfig:"MAILBOX_DIR" desc:"the agents' mailboxes, shared by all; default: $DATA_DIR/mailboxes"`

	RelaySecret       string `envconfig:"RELAY_SECRET" desc:"signs relay messages; the same for all sidecars"`
	RelayMaxAge       string `envconfig:"RELAY_MAX_AGE" default:"10m" desc:"older relayed messages reach the transcript, not the bot"`
	RelayUserMessages string `envconfig:"RELAY_USER_MESSAGES" default:"true" desc:"share users' messages for the transcript"`
	RelayFsync        string `envconfig:"RELAY_FSYNC" default:"false" desc:"a send is accepted only when the disk has it: survives a power cut, costs milliseconds"`
	DedupSize         string `envconfig:"DEDUP_SIZE" default:"5000" desc:"message ids remembered"`

	GroupsFile      string `envconfig:"GROUPS_FILE" desc:"names, members and limits; default: $DATA_DIR/groups.json; optional"`
	GroupPolicy     string `envconfig:"GROUP_POLICY" default:"auto" desc:"auto, mention or open"`
	MentionAll      string `envconfig:"MENTION_ALL" default:"false" desc:"@all addresses this bot"`
	MembershipCheck string `envconfig:"MEMBERSHIP_CHECK" default:"auto" desc:"auto, on or off: hear only groups the bot is in"`

	MaxBotReplyDepth     string `envconfig:"MAX_BOT_REPLY_DEPTH" default:"3" desc:"hard limit: at this depth a bot's message stops"`
	BotReplyLLMThreshold string `envconfig:"BOT_REPLY_LLM_THRESHOLD" default:"1" desc:"up to this depth it passes without the judge"`
	BotReplyLLMCheck     string `envconfig:"BOT_REPLY_LLM_CHECK" default:"true" desc:"ask the judge between the two"`
	BotReplyLLMTimeout   string `envconfig:"BOT_REPLY_LLM_TIMEOUT" default:"10s" desc:"the judge's time"`
	BotReplyLLMOnError   string `envconfig:"BOT_REPLY_LLM_ON_ERROR" default:"deny" desc:"deny or allow when the judge fails"`
	BotReplyDepthCount   string `envconfig:"BOT_REPLY_DEPTH_COUNT" default:"messages" desc:"messages or turns"`
	BotReplyIdleReset    string `envconfig:"BOT_REPLY_IDLE_RESET" default:"0" desc:"a pause this long ends the count; 0: never"`

	OpenAIAPIKey  string `envconfig:"OPENAI_API_KEY" desc:"the judge's; without it built-in rules answer"`
	OpenAIBaseURL string `envconfig:"OPENAI_BASE_URL" desc:"an OpenAI-compatible endpoint"`
	OpenAIModel   string `envconfig:"OPENAI_MODEL" desc:"the judge's model"`

	Mailbox            string `envconfig:"MAILBOX" default:"on" desc:"direct messages and tasks between agents: on or off"`
	MailboxBackend     string `envconfig:"MAILBOX_BACKEND" desc:"file or redis; default: as RELAY_BACKEND"`
	AllowFrom          string `envconfig:"ALLOW_FROM" default:"*" desc:"comma list of agents whose direct messages are accepted; res*: all whose name begins so, *: all, none: nobody's"`
	AllowedDelegates   string `envconfig:"ALLOWED_DELEGATES" default:"*" desc:"comma list of agents this one may send to; res*: all whose name begins so, *: all, none: nobody"`
	MaxConcurrentTasks string `envconfig:"MAX_CONCURRENT_TASKS" default:"3" desc:"tasks of others accepted at once; 0: none"`
	HeartbeatInterval  string `envconfig:"HEARTBEAT_INTERVAL" default:"30s" desc:"how often the agent tells that it is there"`
	HeartbeatTimeout   string `envconfig:"HEARTBEAT_TIMEOUT" default:"90s" desc:"an agent not heard of for so long counts as offline"`
	AckTimeout         string `envconfig:"ACK_TIMEOUT" default:"30s" desc:"a direct message not acknowledged for so long is sent again"`
	RetryBase          string `envconfig:"RETRY_BASE" default:"1s" desc:"the pause before it is; doubles each time, at most 60s"`
	MaxRetries         string `envconfig:"MAX_RETRIES" default:"3" desc:"how often it is, before it becomes a dead letter"`
	PeerMaxExchanges   string `envconfig:"PEER_MAX_EXCHANGES" default:"10" desc:"messages between two agents in 10 minutes, results exempt; 0: no limit"`

	LogLevel  string `envconfig:"LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`
	LogFormat string `envconfig:"LOG_FORMAT" default:"json" desc:"json or text"`
}

// fillIn gives a variable that is set to nothing its default, as one that is
// not set: compose files pass ${X:-} on.
func (e *env) fillIn() {
	v := reflect.ValueOf(e).Elem()
	for field := range v.Type().Fields() {
		if f := v.FieldByIndex(field.Index); f.String() == "" {
			f.SetString(field.Tag.Get("default"))
		}
	}
}

// config is a validated environment.
type config struct {
	sidecar.Config
	logLevel  slog.Level
	logFormat string
}

// loadConfig reads the environment. Its error names every mistake, one a line, each with
// its mend.
func loadConfig() (config, error) {
	var e env
	if err := envconfig.Process("", &e); err != nil {
		return config{}, err // cannot happen: every field is an optional string
	}
	e.fillIn()
	var p problems
	data := p.dir("DATA_DIR", e.DataDir)
	c := config{Config: sidecar.Config{
		Agent:           p.agent(e.AgentName),
		Role:            e.AgentRole,
		Capabilities:    list(e.AgentCapabilities),
		BotName:         strings.TrimSpace(e.BotName),
		BotOpenID:       relay.OpenID(p.id("BOT_OPEN_ID", e.BotOpenID)),
		AppID:           p.id("FEISHU_APP_ID", e.FeishuAppID),
		ListenAddr:      p.listen("LISTEN_ADDR", e.ListenAddr, e.APIToken),
		APIToken:        sidecar.Secret(e.APIToken),
		InjectURL:       p.httpURL("INJECT_URL", e.InjectURL),
		InjectContext:   p.number("INJECT_CONTEXT", e.InjectContext, 0, 200),
		RedisURL:        sidecar.Secret(e.RedisURL),
		RelayChannel:    e.RelayChannel,
		RelayDir:        p.dir("RELAY_DIR", or(e.RelayDir, filepath.Join(data, "relay"))),
		TranscriptDir:   p.dir("TRANSCRIPT_DIR", or(e.TranscriptDir, filepath.Join(data, "transcripts"))),
		RelaySecret:     sidecar.Secret(e.RelaySecret),
		DeliveryTimeout: p.duration("DELIVERY_TIMEOUT", e.DeliveryTimeout, time.Second, 7*24*time.Hour),
		MaxAge:          p.duration("RELAY_MAX_AGE", e.RelayMaxAge, time.Second, 24*time.Hour),
		UserMessages:    p.boolean("RELAY_USER_MESSAGES", e.RelayUserMessages),
		OutboxSync:      p.boolean("RELAY_FSYNC", e.RelayFsync),
		DedupSize:       p.number("DEDUP_SIZE", e.DedupSize, 1, 1_000_000),
		GroupsFile:      p.dir("GROUPS_FILE", or(e.GroupsFile, filepath.Join(data, "groups.json"))),
		GroupPolicy:     p.oneOf("GROUP_POLICY", e.GroupPolicy, "auto", "mention", "open"),
		MentionAll:      p.boolean("MENTION_ALL", e.MentionAll),
		MembershipCheck: p.oneOf("MEMBERSHIP_CHECK", e.MembershipCheck, "auto", "on", "off"),
		Limits: policy.Limits{
			MaxDepth:     p.number("MAX_BOT_REPLY_DEPTH", e.MaxBotReplyDepth, 0, 1000),
			Threshold:    p.number("BOT_REPLY_LLM_THRESHOLD", e.BotReplyLLMThreshold, 0, 1000),
			Check:        p.boolean("BOT_REPLY_LLM_CHECK", e.BotReplyLLMCheck),
			Timeout:      p.duration("BOT_REPLY_LLM_TIMEOUT", e.BotReplyLLMTimeout, 100*time.Millisecond, 5*time.Minute),
			OnErrorAllow: p.oneOf("BOT_REPLY_LLM_ON_ERROR", e.BotReplyLLMOnError, "deny", "allow") == "allow",
			Count: policy.Count{
				Turns:     p.oneOf("BOT_REPLY_DEPTH_COUNT", e.BotReplyDepthCount, "messages", "turns") == "turns",
				IdleReset: p.duration("BOT_REPLY_IDLE_RESET", e.BotReplyIdleReset, 0, 365*24*time.Hour),
			},
		},
		Judge: sidecar.JudgeConfig{
			APIKey:  sidecar.Secret(e.OpenAIAPIKey),
			BaseURL: p.httpURL("OPENAI_BASE_URL", e.OpenAIBaseURL),
			Model:   e.OpenAIModel,
		},
	}}
	c.Backend = p.backend(e)
	c.logFormat = p.oneOf("LOG_FORMAT", e.LogFormat, "json", "text")
	if err := c.logLevel.UnmarshalText([]byte(e.LogLevel)); err != nil {
		p.add("LOG_LEVEL", e.LogLevel, "one of debug, info, warn, error")
	}
	c.DataDir = data
	p.feishu(e, &c.Config)
	p.mailbox(e, &c.Config)
	return c, errors.Join(p...)
}

// problems collects mistakes. Its methods return a usable value all the same.
type problems []error

func (p *problems) add(name, got, want string) {
	*p = append(*p, fmt.Errorf("%s: want %s, got %.60q", name, want, got))
}

func (p *problems) agent(name string) relay.AgentName {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		*p = append(*p, errors.New("AGENT_NAME: required: a name of this bot's own, such as agent_a"))
	case !isAgentName(name):
		p.add("AGENT_NAME", name, "at most 64 bytes without spaces, slashes, quotes, @ or angle brackets")
	}
	return relay.AgentName(name)
}

// isAgentName reports whether name can stand on the relay. The mailbox wants
// more of it.
func isAgentName(name string) bool {
	return name != "" && len(name) <= 64 && relay.CheckID(name) == nil && !strings.ContainsAny(name, "/\\ @<>\"'") && name != "*"
}

func (p *problems) id(name, value string) string {
	value = strings.TrimSpace(value)
	if err := relay.CheckID(value); err != nil {
		*p = append(*p, fmt.Errorf("%s: %w", name, err))
	}
	return value
}

func (p *problems) number(name, value string, lowest, highest int) int {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < lowest || n > highest {
		p.add(name, value, fmt.Sprintf("a whole number from %d to %d", lowest, highest))
	}
	return n
}

func (p *problems) boolean(name, value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true", "1", "yes", "on":
		return true
	case "false", "0", "no", "off":
		return false
	}
	p.add(name, value, "true or false, or on or off")
	return false
}

func (p *problems) duration(name, value string, lowest, highest time.Duration) time.Duration {
	d, err := time.ParseDuration(strings.TrimSpace(value))
	if err != nil || d < lowest || d > highest {
		p.add(name, value, fmt.Sprintf("a duration from %s to %s, such as 90s or 10m", lowest, highest))
	}
	return d
}

func (p *problems) oneOf(name, value string, allowed ...string) string {
	value = strings.ToLower(strings.TrimSpace(value))
	if slices.Contains(allowed, value) {
		return value
	}
	p.add(name, value, "one of "+strings.Join(allowed, ", "))
	return allowed[0]
}

func (p *problems) dir(name, value string) string {
	if rest, ok := strings.CutPrefix(value, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			*p = append(*p, fmt.Errorf("%s: %q needs a home folder: %w; give a full path", name, value, err))
			return value
		}
		value = home + rest
	}
	path, err := filepath.Abs(value)
	if err != nil || strings.ContainsRune(value, 0) {
		p.add(name, value, "a path")
		return value
	}
	return path
}

func (p *problems) httpURL(name, value string) string {
	value = strings.TrimSpace(value)
	if value == "" {
		return ""
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		// The value is left out: it may hold a password.
		*p = append(*p, fmt.Errorf("%s: want an http:// or https:// URL", name))
	}
	return value
}

func (p *problems) listen(name, addr, token string) string {
	_, port, err := net.SplitHostPort(addr)
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		p.add(name, addr, "host:port, such as 127.0.0.1:8787")
		return addr
	}
	if !sidecar.IsLoopback(addr) && token == "" {
		*p = append(*p, fmt.Errorf("API_TOKEN: required since %s=%s is reached from other hosts; set a long random one, or listen on 127.0.0.1", name, addr))
	}
	return addr
}

func (p *problems) backend(e env) string {
	if e.RelayBackend == "" {
		e.RelayBackend = "file"
		if e.RedisURL != "" {
			e.RelayBackend = "redis"
		}
	}
	backend := p.oneOf("RELAY_BACKEND", e.RelayBackend, "file", "redis")
	if backend == "redis" && e.RedisURL == "" {
		*p = append(*p, errors.New("REDIS_URL: required by RELAY_BACKEND=redis, such as redis://127.0.0.1:6379/0"))
	}
	if e.RedisURL != "" {
		if _, err := redisrelay.ParseURL(e.RedisURL); err != nil {
			*p = append(*p, fmt.Errorf("REDIS_URL: %w", err))
		}
	}
	if relay.CheckID(e.RelayChannel) != nil {
		p.add("RELAY_CHANNEL", e.RelayChannel, "a channel name")
	}
	return backend
}

func list(value string) []string {
	var out []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func or(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}
