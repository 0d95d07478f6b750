package sidecar

import (
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
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
// The tags are all that the program and docs/configuration.md know of a setting: envconfig
// is its variable, default its value where that is missing or empty, unset what holds then
// in words (one of the two), desc its description. oneof are the words allowed, of which a
// bool is true for the second;
// range is "lowest..highest" of a number or a duration; is names what else a text
// has to be (the program's config.go has the list).
type Config struct {
	Agent        relay.AgentName `envconfig:"AGENT_NAME" is:"agent" unset:"required" desc:"this bot's unique name: at most 64 bytes, no spaces, slashes, quotes or @"`
	Role         string          `envconfig:"AGENT_ROLE" unset:"empty" desc:"what the bot is for, for the judge and the other agents"`
	Capabilities []string        `envconfig:"AGENT_CAPABILITIES" unset:"empty" desc:"what the bot can do, for the other agents"`
	BotName      string          `envconfig:"BOT_NAME" is:"word" unset:"learned from Feishu" desc:"the bot's display name in Feishu"`
	BotOpenID    relay.OpenID    `envconfig:"BOT_OPEN_ID" is:"id" unset:"learned from Feishu" desc:"the bot's open_id"`
	AppID        string          `envconfig:"FEISHU_APP_ID" is:"id" unset:"learned from the bot" desc:"the bot's app; required by the connector and beyond loopback"`
	AppSecret    Secret          `envconfig:"FEISHU_APP_SECRET" is:"word" unset:"none" desc:"the app's secret; required by the connector"`

	// BaseURL is nil for https://open.feishu.cn.
	BaseURL           *url.URL `envconfig:"FEISHU_BASE_URL" default:"https://open.feishu.cn" desc:"Feishu's API; for Lark https://open.larksuite.com"`
	EncryptKey        Secret   `envconfig:"FEISHU_ENCRYPT_KEY" unset:"none" desc:"webhook mode: the app's Encrypt Key; BOT_WEBHOOK_URL needs this or FEISHU_VERIFICATION_TOKEN"`
	VerificationToken Secret   `envconfig:"FEISHU_VERIFICATION_TOKEN" unset:"none" desc:"webhook mode: the app's Verification Token"`

	Gateway          GatewayConfig
	WebhookAddr      string `envconfig:"WEBHOOK_ADDR" is:"address" unset:"GATEWAY_ADDR" desc:"webhook mode: where Feishu posts to /webhook/event; required beyond loopback"`
	BotWebhookURL    string `envconfig:"BOT_WEBHOOK_URL" is:"url" unset:"no webhook" desc:"webhook mode: where the bot listens for Feishu's events"`
	Connector        bool   `envconfig:"CONNECTOR" default:"false" desc:"the sidecar connects to Feishu itself"`
	InjectSenderType string `envconfig:"INJECT_SENDER_TYPE" default:"bot" oneof:"bot|app|user" desc:"the sender_type of other bots' messages in the events for the bot"`
	MentionAlways    bool   `envconfig:"INJECT_MENTION" default:"addressed" oneof:"addressed|always" desc:"whether these events mention this bot: if the message does, or always"`

	ListenAddr string `envconfig:"LISTEN_ADDR" default:"127.0.0.1:8787" is:"port" desc:"address of the local API, viewer and metrics"`
	APIToken   Secret `envconfig:"API_TOKEN" unset:"none: anybody on this host" desc:"the bot's token, 16 characters or more; required beyond loopback"`
	AdminToken Secret `envconfig:"ADMIN_TOKEN" unset:"none: API_TOKEN" desc:"people's token; with it API_TOKEN cannot steer groups"`

	InjectURL       string        `envconfig:"INJECT_URL" is:"url" unset:"none: /v1/stream" desc:"where messages are posted to the bot"`
	InjectSecret    Secret        `envconfig:"INJECT_SECRET" is:"secret" unset:"none: not signed" desc:"signs the posts to INJECT_URL; docs/api.md shows how to verify them"`
	InjectContext   int           `envconfig:"INJECT_CONTEXT" default:"0" range:"0..200" desc:"messages that the bot missed, put in front of its next one; at most 16 KiB"`
	FileMax         int           `envconfig:"FILE_MAX" default:"31457280" range:"1..104857600" desc:"bytes of the largest file that the local API hands out"`
	DeliveryTimeout time.Duration `envconfig:"DELIVERY_TIMEOUT" default:"15m" range:"1s..168h" desc:"how long the bot may take to answer a message"`

	Backend      string `envconfig:"RELAY_BACKEND" oneof:"file|redis" unset:"redis with REDIS_URL, else file" desc:"where sidecars exchange messages"`
	RedisURL     Secret `envconfig:"REDIS_URL" is:"redis" unset:"none" desc:"redis://[user:password@]host:6379/0, rediss:// with TLS; also Sentinel and Cluster: docs/redis.md"`
	RelayChannel string `envconfig:"RELAY_CHANNEL" default:"nanobot:feishu:outbound" is:"channel" desc:"the Pub/Sub channel on Redis; the stream is <channel>:log"`

	DataDir       string `envconfig:"DATA_DIR" default:"~/.nanobot" is:"path" desc:"parent of the other folders, shared by the sidecars of one host"`
	RelayDir      string `envconfig:"RELAY_DIR" is:"path" unset:"$DATA_DIR/relay" desc:"the file queue, and what this sidecar stores"`
	TranscriptDir string `envconfig:"TRANSCRIPT_DIR" is:"path" unset:"$DATA_DIR/transcripts" desc:"the transcripts of the groups"`

	RelaySecret  Secret        `envconfig:"RELAY_SECRET" unset:"none: not signed" desc:"signs what sidecars send each other; the same for all, 16 characters or more"`
	MaxAge       time.Duration `envconfig:"RELAY_MAX_AGE" default:"10m" range:"1s..24h" desc:"how long a message waits for the bot to be connected"`
	UserMessages bool          `envconfig:"RELAY_USER_MESSAGES" default:"true" desc:"sends people's messages to the other transcripts"`
	Sync         bool          `envconfig:"RELAY_FSYNC" default:"false" desc:"what was accepted survives a power cut; a message takes milliseconds"`
	DedupSize    int           `envconfig:"DEDUP_SIZE" default:"5000" range:"1..1000000" desc:"message ids that are remembered"`

	GroupsFile      string `envconfig:"GROUPS_FILE" is:"path" unset:"$DATA_DIR/groups.json" desc:"names, members and limits of groups; read again when it changes"`
	GroupPolicy     string `envconfig:"GROUP_POLICY" default:"auto" oneof:"auto|mention|open" desc:"what this bot gets: all that the limits pass, or only what names it (mention); open is for POST /v1/decide"`
	MentionAll      bool   `envconfig:"MENTION_ALL" default:"false" desc:"a mention of everybody (@all) addresses this bot"`
	MembershipCheck string `envconfig:"MEMBERSHIP_CHECK" default:"auto" oneof:"auto|on|off" desc:"relays only groups that the bot is in; auto: where these are known"`

	Limits  policy.Limits
	Steer   SteerConfig
	Judge   JudgeConfig
	Mailbox MailboxConfig
}

// SteerConfig is what people in a group see and can change.
type SteerConfig struct {
	AnswerMode     string        `envconfig:"ANSWER_MODE" default:"all" oneof:"all|named|default|one" desc:"who gets a person's message: all bots, or those it names, else the group's default_bot (default) or one bot (one)"`
	Commands       []string      `envconfig:"STEER_COMMAND" default:"/relay,/中继" empty:"off" desc:"words that begin a command; empty or off: none"`
	By             string        `envconfig:"STEER_BY" default:"members" desc:"who may change settings from the group: members, admins, or a list of open_ids and union_ids"`
	MaxDepth       int           `envconfig:"STEER_MAX_DEPTH" default:"10" range:"1..1000" desc:"the highest hard limit that can be set from the group"`
	StopNotice     string        `envconfig:"STOP_NOTICE" default:"reaction" oneof:"off|reaction|text" desc:"how a group is shown that its bots were stopped"`
	ContinueWindow time.Duration `envconfig:"CONTINUE_WINDOW" default:"1h" range:"1s..24h" desc:"how long after its stop a message can be released"`
	Budget         int           `envconfig:"GROUP_BUDGET" default:"0" range:"0..1000000" desc:"messages that the bots of a group may send per hour; 0: no limit"`
}

// JudgeConfig is the LLM judge's; without a key the built-in rules answer.
type JudgeConfig struct {
	APIKey  Secret `envconfig:"OPENAI_API_KEY" unset:"none: built-in rules judge" desc:"the judge's key"`
	BaseURL string `envconfig:"OPENAI_BASE_URL" is:"url" unset:"https://api.openai.com/v1" desc:"an OpenAI-compatible endpoint with its version"`
	Model   string `envconfig:"OPENAI_MODEL" unset:"gpt-4o-mini" desc:"the judge's model"`
}

// GatewayConfig configures the gateway that a bot's own Feishu SDK is pointed at.
// Without an address there is no gateway.
type GatewayConfig struct {
	Addr       string        `envconfig:"GATEWAY_ADDR" is:"address" unset:"no gateway" desc:"where the gateway listens for the bot's Feishu SDK, such as 127.0.0.1:8788"`
	TLS        string        `envconfig:"GATEWAY_TLS" default:"off" oneof:"off|auto|file" desc:"auto: a certificate of an own CA, $DATA_DIR/ca.pem; file: your certificate"`
	CertFile   string        `envconfig:"GATEWAY_CERT_FILE" is:"path" unset:"none" desc:"the certificate (PEM); required by GATEWAY_TLS=file"`
	KeyFile    string        `envconfig:"GATEWAY_KEY_FILE" is:"path" unset:"none" desc:"the key of GATEWAY_CERT_FILE (PEM); required by GATEWAY_TLS=file"`
	PublicURL  *url.URL      `envconfig:"GATEWAY_PUBLIC_URL" unset:"the address in use" desc:"the gateway's URL for the bot, for a name with a dot or a translated address"`
	Allow      []string      `envconfig:"GATEWAY_CONNECT_ALLOW" is:"targets" unset:"none" desc:"local addresses that a bot may reach through the proxy"`
	Settle     time.Duration `envconfig:"GATEWAY_SETTLE" default:"1500ms" range:"0s..1m" desc:"how long a finished card or broken-off reply waits for a change"`
	StreamLife time.Duration `envconfig:"GATEWAY_STREAM_LIFE" default:"10m" range:"0s..24h" desc:"how long a streamed card without an end waits, before GATEWAY_EDIT_SETTLE"`
	EditSettle time.Duration `envconfig:"GATEWAY_EDIT_SETTLE" default:"8s" range:"0s..10m" desc:"how long an edited message waits for another change"`
	Mentions   bool          `envconfig:"REWRITE_MENTIONS" default:"false" desc:"turns a plain @Name in the bot's group messages into a real mention"`
}

// setBy is the variable that chose a folder: DATA_DIR where the folder has its default place below that, else its own.
func (c *Config) setBy(variable, folder string) string {
	if filepath.Dir(folder) == filepath.Clean(c.DataDir) {
		return "DATA_DIR"
	}
	return variable
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
