package sidecar

import (
	"fmt"
	"log/slog"
	"net/url"
	"time"
	"unicode/utf8"

	"feishu-relay/feishu"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/weborigin"
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

// Config is what a sidecar is to do. Here it is taken as valid: the program reads it
// from the environment and checks it.
//
// The tags are all that the program and the READMEs know of a setting: envconfig is
// its variable, default its value where that is missing or empty, desc its
// description. oneof are the words allowed, of which a bool is true for the second;
// range is "lowest..highest" of a number or a duration; is names what else a text
// has to be (the program's config.go has the list).
type Config struct {
	Agent        relay.AgentName `envconfig:"AGENT_NAME" is:"agent" desc:"this bot's name on the relay (required)"`
	Role         string          `envconfig:"AGENT_ROLE" desc:"one paragraph on what the bot is for; the judge and the other agents read it"`
	Capabilities []string        `envconfig:"AGENT_CAPABILITIES" desc:"comma list of what the bot can do, for the other agents"`
	BotName      string          `envconfig:"BOT_NAME" is:"word" desc:"the bot's display name in Feishu"`
	BotOpenID    relay.OpenID    `envconfig:"BOT_OPEN_ID" is:"id" desc:"the bot's own open_id"`
	AppID        string          `envconfig:"FEISHU_APP_ID" is:"id" desc:"the bot's app; required if GATEWAY_ADDR is not loopback, else learned from the bot's first connection"`
	AppSecret    Secret          `envconfig:"FEISHU_APP_SECRET" is:"word" desc:"needed by the connector; else optional"`

	// BaseURL is nil for https://open.feishu.cn.
	BaseURL           *url.URL `envconfig:"FEISHU_BASE_URL" default:"https://open.feishu.cn" desc:"Feishu's API; https://open.larksuite.com for Lark"`
	EncryptKey        Secret   `envconfig:"FEISHU_ENCRYPT_KEY" desc:"webhook mode: the app's Encrypt Key"`
	VerificationToken Secret   `envconfig:"FEISHU_VERIFICATION_TOKEN" desc:"webhook mode: the app's Verification Token"`

	Gateway          GatewayConfig
	WebhookAddr      string `envconfig:"WEBHOOK_ADDR" is:"address" desc:"where /webhook/event is served; default: GATEWAY_ADDR if that is loopback"`
	BotWebhookURL    string `envconfig:"BOT_WEBHOOK_URL" is:"url" desc:"webhook mode: where the bot listens for Feishu's events"`
	Connector        bool   `envconfig:"CONNECTOR" default:"false" desc:"the sidecar holds the Feishu connection itself, for a bot that knows no Feishu"`
	InjectSenderType string `envconfig:"INJECT_SENDER_TYPE" default:"bot" oneof:"bot|app|user" desc:"sender_type of an injected Feishu event: bot, app or user"`
	MentionAlways    bool   `envconfig:"INJECT_MENTION" default:"addressed" oneof:"addressed|always" desc:"when the injected event names this bot: addressed or always"`

	ListenAddr string `envconfig:"LISTEN_ADDR" default:"127.0.0.1:8787" is:"port" desc:"local API, viewer, MCP, health, metrics"`
	APIToken   Secret `envconfig:"API_TOKEN" desc:"bearer token; required when LISTEN_ADDR is not loopback, at least 16 characters beyond it"`

	InjectURL       string        `envconfig:"INJECT_URL" is:"url" desc:"where inbound messages are posted; without it the bot reads /v1/stream"`
	InjectSecret    Secret        `envconfig:"INJECT_SECRET" is:"secret" desc:"signs the posts to INJECT_URL, at least 16 characters: docs/api.md"`
	InjectContext   int           `envconfig:"INJECT_CONTEXT" default:"0" range:"0..200" desc:"so many lines that the bot was not given stand before an injected text"`
	FileMax         int           `envconfig:"FILE_MAX" default:"31457280" range:"1..104857600" desc:"the largest picture or file of a message, in bytes, that the local API hands out"`
	DeliveryTimeout time.Duration `envconfig:"DELIVERY_TIMEOUT" default:"15m" range:"1s..168h" desc:"how long the bot may take to answer a message that it was given; then the message is undeliverable"`

	Backend      string `envconfig:"RELAY_BACKEND" oneof:"file|redis" desc:"file or redis; default: redis if REDIS_URL is set, else file"`
	RedisURL     Secret `envconfig:"REDIS_URL" is:"redis" desc:"redis://[user:password@]host:6379/0; TLS, Sentinel, Cluster: docs/redis.md"`
	RelayChannel string `envconfig:"RELAY_CHANNEL" default:"nanobot:feishu:outbound" is:"channel" desc:"Pub/Sub channel; the stream is <channel>:log"`

	DataDir       string `envconfig:"DATA_DIR" default:"~/.nanobot" is:"path" desc:"parent of the other folders; the default is shared with nanobot, for sidecars of one user"`
	RelayDir      string `envconfig:"RELAY_DIR" is:"path" desc:"file queue and this agent's state; default: $DATA_DIR/relay"`
	TranscriptDir string `envconfig:"TRANSCRIPT_DIR" is:"path" desc:"the groups' transcripts; default: $DATA_DIR/transcripts"`

	RelaySecret  Secret        `envconfig:"RELAY_SECRET" desc:"signs relay messages and mail; the same for all sidecars"`
	MaxAge       time.Duration `envconfig:"RELAY_MAX_AGE" default:"10m" range:"1s..24h" desc:"older relayed messages reach the transcript, not the bot"`
	UserMessages bool          `envconfig:"RELAY_USER_MESSAGES" default:"true" desc:"share users' messages for the transcript"`
	OutboxSync   bool          `envconfig:"RELAY_FSYNC" default:"false" desc:"a send is accepted only when the disk has it: survives a power cut, costs milliseconds"`
	DedupSize    int           `envconfig:"DEDUP_SIZE" default:"5000" range:"1..1000000" desc:"message ids remembered"`

	GroupsFile      string `envconfig:"GROUPS_FILE" is:"path" desc:"names, members and limits; default: $DATA_DIR/groups.json; optional"`
	GroupPolicy     string `envconfig:"GROUP_POLICY" default:"auto" oneof:"auto|mention|open" desc:"auto, mention or open"`
	MentionAll      bool   `envconfig:"MENTION_ALL" default:"false" desc:"@all addresses this bot"`
	MembershipCheck string `envconfig:"MEMBERSHIP_CHECK" default:"auto" oneof:"auto|on|off" desc:"auto, on or off: hear only groups the bot is in"`

	Limits  policy.Limits
	Steer   SteerConfig
	Judge   JudgeConfig
	Mailbox MailboxConfig
}

// SteerConfig is what people in a group see and can change.
type SteerConfig struct {
	AnswerMode      string        `envconfig:"ANSWER_MODE" default:"all" oneof:"all|named|default|one" desc:"who gets a person's message: all bots, only those it names, else the default bot, else exactly one"`
	Commands        []string      `envconfig:"STEER_COMMAND" default:"/relay,/中继" empty:"off" desc:"comma list of the words that begin a command in the group; empty or off: none"`
	By              string        `envconfig:"STEER_BY" default:"members" desc:"who may change a group's settings there: members, admins, or a comma list of open_ids and union_ids"`
	MaxDepth        int           `envconfig:"STEER_MAX_DEPTH" default:"10" range:"1..1000" desc:"the highest hard limit that can be set in the group"`
	StopNotice      string        `envconfig:"STOP_NOTICE" default:"reaction" oneof:"off|reaction|text" desc:"how the group is shown that its bots were stopped: off, reaction or text"`
	StopEmoji       string        `envconfig:"STOP_EMOJI" default:"CrossMark" is:"word" desc:"the reaction's emoji_type"`
	StopNoticeJudge bool          `envconfig:"STOP_NOTICE_JUDGE" default:"false" desc:"also show, and release, what the judge stopped"`
	ContinueWindow  time.Duration `envconfig:"CONTINUE_WINDOW" default:"1h" range:"1s..24h" desc:"how long after its stop a message can be released"`
	Budget          int           `envconfig:"GROUP_BUDGET" default:"0" range:"0..1000000" desc:"bots' messages in a group within an hour, beyond which they stop; 0: no bound"`
}

// JudgeConfig is the LLM judge's; without a key the built-in rules answer.
type JudgeConfig struct {
	APIKey  Secret `envconfig:"OPENAI_API_KEY" desc:"the judge's; without it built-in rules answer"`
	BaseURL string `envconfig:"OPENAI_BASE_URL" is:"url" desc:"an OpenAI-compatible endpoint"`
	Model   string `envconfig:"OPENAI_MODEL" desc:"the judge's model"`
}

// GatewayConfig configures the gateway that a bot's own Feishu SDK is pointed at.
// Without an address there is no gateway.
type GatewayConfig struct {
	Addr       string        `envconfig:"GATEWAY_ADDR" is:"address" desc:"where the bot's Feishu SDK is pointed at, such as 127.0.0.1:8788; default: off"`
	TLS        string        `envconfig:"GATEWAY_TLS" default:"off" oneof:"off|auto|file" desc:"off, auto (own CA, written to $DATA_DIR/ca.pem) or file"`
	CertFile   string        `envconfig:"GATEWAY_CERT_FILE" desc:"certificate for GATEWAY_TLS=file"`
	KeyFile    string        `envconfig:"GATEWAY_KEY_FILE" desc:"its key"`
	PublicURL  *url.URL      `envconfig:"GATEWAY_PUBLIC_URL" desc:"how the bot reaches the gateway: needed for a name with a dot; also for the WebSocket URL handed to it; default: as it asked"`
	Allow      []string      `envconfig:"GATEWAY_CONNECT_ALLOW" is:"targets" desc:"comma list of host:port on this machine or its link that a bot may reach through the gateway as its proxy"`
	Settle     time.Duration `envconfig:"GATEWAY_SETTLE" default:"1500ms" range:"0s..1m" desc:"the quiet after a streamed card's end sign"`
	StreamLife time.Duration `envconfig:"GATEWAY_STREAM_LIFE" default:"10m" range:"0s..24h" desc:"how long a streamed card without an end sign is waited for"`
	EditSettle time.Duration `envconfig:"GATEWAY_EDIT_SETTLE" default:"8s" range:"0s..10m" desc:"the quiet after an edit that has no end sign"`
	Mentions   bool          `envconfig:"REWRITE_MENTIONS" default:"false" desc:"a plain @Name in what the bot sends to a group becomes a real mention"`
}

// KnowsFeishu reports whether Feishu itself can be asked, or be listened to.
func (c *Config) KnowsFeishu() bool {
	return c.Gateway.Addr != "" || c.Connector || c.AppID != "" && c.AppSecret != ""
}

func (c *Config) groupPolicyFor(g groups.Group) string {
	if g.GroupPolicy != "" {
		return g.GroupPolicy
	}
	return c.GroupPolicy
}

// ConfigWarning is about a setting that works and will surprise somebody.
type ConfigWarning struct{ Setting, Detail, Fix string }

// minRelaySecret is the number of characters that RELAY_SECRET should have at least.
// Running groups have shorter ones, so it is no condition.
const minRelaySecret = 16

// Warnings are logged at the start, and reported by the check.
func (c *Config) Warnings() (out []ConfigWarning) {
	if n := utf8.RuneCountInString(string(c.RelaySecret)); 0 < n && n < minRelaySecret {
		out = append(out, ConfigWarning{"RELAY_SECRET",
			fmt.Sprintf("it has %d characters: whoever reads signed messages can guess it", n),
			fmt.Sprintf("set one of at least %d characters at all sidecars at once; `openssl rand -hex 32` makes a good one",
				minRelaySecret)})
	}
	u, err := url.Parse(c.InjectURL)
	if err == nil && u.Scheme == "http" && c.InjectSecret == "" && !weborigin.Loopback(u.Host) {
		out = append(out, ConfigWarning{"INJECT_SECRET",
			"INJECT_URL is http:// to another host, and posts are not signed: whoever reaches the bot can post as this sidecar",
			"set INJECT_SECRET, and let the bot verify it: docs/api.md has the lines"})
	}
	switch m := c.Mailbox; {
	case m.On && m.Gateway && c.Gateway.Addr == "":
		out = append(out, ConfigWarning{"MAILBOX_GATEWAY", "there is no gateway: mail does not come as private chats",
			"set GATEWAY_ADDR and point the bot's Feishu SDK at it, or set MAILBOX_GATEWAY=off"})
	case m.On && m.Gateway && c.InjectSenderType != feishu.SenderUser:
		out = append(out, ConfigWarning{"INJECT_SENDER_TYPE",
			"many frameworks drop what bots write in private chats, and mail comes as such (MAILBOX_GATEWAY=on)",
			"set INJECT_SENDER_TYPE=user, unless the bot answers bots in private chats"})
	}
	if l := c.Limits; l.Check && l.MaxDepth > 1 && l.Threshold > l.MaxDepth {
		out = append(out, ConfigWarning{"BOT_REPLY_LLM_THRESHOLD",
			fmt.Sprintf("%d is more than MAX_BOT_REPLY_DEPTH=%d: messages stop before the judge is asked",
				l.Threshold, l.MaxDepth),
			"set it below MAX_BOT_REPLY_DEPTH, or raise that"})
	}
	return out
}
