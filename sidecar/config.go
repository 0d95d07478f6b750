package sidecar

import (
	"log/slog"
	"net/url"
	"time"

	"feishu-relay/internal/groups"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Secret is a value that no log, error or status shows.
type Secret string

// String and LogValue hide the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// Config is what a sidecar is to do. The program reads it from the environment
// (DESIGN 5.6) and validates it; here it is taken as valid.
type Config struct {
	Agent        relay.AgentName
	Role         string
	Capabilities []string
	BotName      string
	BotOpenID    relay.OpenID
	AppID        string

	AppSecret         Secret
	BaseURL           *url.URL // FEISHU_BASE_URL; nil: https://open.feishu.cn
	EncryptKey        Secret
	VerificationToken Secret

	Gateway          GatewayConfig
	WebhookAddr      string // "" with a BotWebhookURL: on the gateway's address
	BotWebhookURL    string
	Connector        bool
	InjectSenderType string // "bot", "app" or "user"
	MentionAlways    bool   // INJECT_MENTION

	ListenAddr string
	APIToken   Secret

	InjectURL       string
	InjectContext   int
	DeliveryTimeout time.Duration

	Backend      string // "file" or "redis"
	RedisURL     Secret
	RelayChannel string

	DataDir       string // of the gateway's CA
	RelayDir      string
	TranscriptDir string

	RelaySecret  Secret
	MaxAge       time.Duration
	UserMessages bool
	DedupSize    int
	OutboxSync   bool

	GroupsFile      string
	GroupPolicy     string // "auto", "mention" or "open"
	MentionAll      bool
	MembershipCheck string // "auto", "on" or "off"

	Limits policy.Limits
	Judge  JudgeConfig

	Mailbox MailboxConfig
}

// JudgeConfig is the LLM judge's; without a key the built-in rules answer.
type JudgeConfig struct {
	APIKey  Secret
	BaseURL string
	Model   string
}

// GatewayConfig is the front door for a bot's own Feishu SDK. Without an address
// there is none.
type GatewayConfig struct {
	Addr       string
	TLS        string // "off", "auto" or "file"
	CertFile   string
	KeyFile    string
	PublicURL  *url.URL // nil: as the bot asked
	Settle     time.Duration
	EditSettle time.Duration
	StreamLife time.Duration
}

// KnowsFeishu reports whether Feishu itself can be asked, or be listened to.
func (c *Config) KnowsFeishu() bool {
	return c.Gateway.Addr != "" || c.Connector || c.AppID != "" && c.AppSecret != ""
}

// limitsFor is the environment's limits with a group's own laid over them.
func (c *Config) limitsFor(g groups.Group) policy.Limits {
	l := c.Limits
	if g.MaxBotReplyDepth != nil {
		l.MaxDepth = *g.MaxBotReplyDepth
	}
	if g.BotReplyLLMThreshold != nil {
		l.Threshold = *g.BotReplyLLMThreshold
	}
	if g.BotReplyLLMCheck != nil {
		l.Check = *g.BotReplyLLMCheck
	}
	return l
}

func (c *Config) groupPolicyFor(g groups.Group) string {
	if g.GroupPolicy != "" {
		return g.GroupPolicy
	}
	return c.GroupPolicy
}
