package main

import (
	"cmp"
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
	"unicode/utf8"

	"github.com/kelseyhightower/envconfig"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// config is the whole configuration. A field with an envconfig tag, at any depth, is
// a setting: that line and its name in a table of docs/configuration.md are all that a new
// one needs; `go test ./cmd/feishu-relay -run Variables -update` writes the rest of the row.
type config struct {
	sidecar.Config
	LogLevel  slog.Level `envconfig:"LOG_LEVEL" default:"info" desc:"the least important messages that are logged"`
	LogFormat string     `envconfig:"LOG_FORMAT" default:"auto" oneof:"auto|console|json|text" desc:"auto: console on a terminal, else json; text is logfmt"`
}

// setting is one variable of the environment and the field that it sets;
// [sidecar.Config] explains the tags.
type setting struct {
	name, def, unset, desc string
	tag                    reflect.StructTag
	field                  reflect.Value
}

// initial is the value that holds where the variable is missing, in words where it
// depends on something else.
func (s setting) initial() string { return cmp.Or(s.def, s.unset) }

// variables are the settings of a configuration that nobody reads.
func variables() []setting { return settings(reflect.ValueOf(&config{}).Elem()) }

func settings(v reflect.Value) (out []setting) {
	for f := range v.Type().Fields() {
		field, tag := v.FieldByIndex(f.Index), f.Tag
		if name, ok := tag.Lookup("envconfig"); ok {
			out = append(out, setting{name, tag.Get("default"), tag.Get("unset"), tag.Get("desc"), tag, field})
		} else if field.Kind() == reflect.Struct {
			out = append(out, settings(field)...)
		}
	}
	return out
}

// loadConfig reads the environment. Its error names all mistakes, one a line, each with
// its fix.
func loadConfig() (config, error) {
	var c config
	all := settings(reflect.ValueOf(&c).Elem())
	texts, err := readEnvironment(all)
	if err != nil {
		return c, err
	}
	var mistakes []error
	for i, s := range all {
		if err := s.parse(texts[i]); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	c.derive()
	return c, errors.Join(append(mistakes, c.conflicts()...)...)
}

// readEnvironment returns the text of each setting: that of the environment, or the
// default. A variable that is set to nothing counts as missing, since compose files
// pass ${X:-} on; one with the tag empty has the value of that tag then. envconfig fills in strings, and
// not the fields themselves, since it stops at the first value that does not fit, and operators want to read
// of all mistakes at once.
func readEnvironment(all []setting) ([]string, error) {
	var fields []reflect.StructField
	for _, s := range all {
		fields = append(fields, reflect.StructField{Name: s.name, Type: reflect.TypeFor[string](), Tag: s.tag})
	}
	env := reflect.New(reflect.StructOf(fields))
	if err := envconfig.Process("", env.Interface()); err != nil {
		return nil, err
	}
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = cmp.Or(env.Elem().Field(i).String(), s.def)
		if _, set := os.LookupEnv(s.name); set && env.Elem().Field(i).String() == "" && s.tag.Get("empty") != "" {
			texts[i] = s.tag.Get("empty")
		}
	}
	return texts, nil
}

// parse sets the field from its text. After a mistake the field has a usable value
// all the same.
func (s setting) parse(text string) error {
	trimmed := strings.TrimSpace(text)
	switch field := s.field.Addr().Interface().(type) {
	case *int:
		want := "a whole number from %s to %s"
		if unit := s.tag.Get("zero"); unit != "" {
			if *field = 0; trimmed == "0" {
				return nil
			}
			want = "0, or a number of " + unit + " from %s to %s"
		}
		return inRange(s, field, trimmed, strconv.Atoi, want)
	case *time.Duration:
		return inRange(s, field, trimmed, time.ParseDuration, "a duration from %s to %s, such as 90s or 10m")
	case *bool:
		no, yes := []string{"false", "0", "no", "off"}, []string{"true", "1", "yes", "on"}
		want := "true or false, or on or off"
		if words := s.words(); words != nil {
			no, yes, want = words[:1], words[1:], "one of "+strings.Join(words, ", ")
		}
		*field = slices.Contains(yes, strings.ToLower(trimmed))
		if !*field && !slices.Contains(no, strings.ToLower(trimmed)) {
			return wanted(want, text)
		}
	case *slog.Level:
		if field.UnmarshalText([]byte(text)) != nil {
			return wanted("one of debug, info, warn, error", text)
		}
	case *[]string:
		*field = list(text)
		if off := s.tag.Get("empty"); off != "" && slices.Equal(*field, []string{off}) {
			*field = nil
		}
		if i := slices.IndexFunc(*field, isNoTarget); s.tag.Get("is") == "targets" && i >= 0 {
			return wanted("a comma list of host:port, such as 127.0.0.1:11434", (*field)[i])
		}
	case *[]mailbox.AgentID:
		var err error
		*field, err = agentList(text)
		return err
	case **url.URL:
		var err error
		*field, err = baseURL(trimmed)
		return err
	default: // a string, of whatever type
		value, err := s.parseString(text)
		s.field.SetString(value)
		return err
	}
	return nil
}

func (s setting) words() []string {
	if oneOf := s.tag.Get("oneof"); oneOf != "" {
		return strings.Split(oneOf, "|")
	}
	return nil
}

// minSecret is the number of characters that a secret has at least.
const minSecret = 16

// parseString checks a text for what its setting wants, as the tags oneof and is
// say.
func (s setting) parseString(text string) (string, error) {
	trimmed := strings.TrimSpace(text)
	if words := s.words(); words != nil && text != "" {
		if word := strings.ToLower(trimmed); slices.Contains(words, word) {
			return word, nil
		}
		return s.def, wanted("one of "+strings.Join(words, ", "), text)
	}
	switch is := s.tag.Get("is"); {
	case is == "agent":
		return trimmed, checkAgentName(trimmed)
	case is == "word":
		return trimmed, nil
	case is == "id":
		return trimmed, relay.CheckID(trimmed)
	case is == "url" && trimmed != "":
		_, err := httpURL(trimmed)
		return trimmed, err
	case text == "" || is == "url": // optional
		return trimmed, nil
	case is == "secret" && utf8.RuneCountInString(text) < minSecret:
		return text, fmt.Errorf("want at least %d characters, got %d; `openssl rand -hex 32` makes a good one",
			minSecret, utf8.RuneCountInString(text))
	case is == "channel" && relay.CheckID(text) != nil:
		return text, wanted("a channel name", text)
	case is == "address", is == "port":
		_, port, err := net.SplitHostPort(text)
		if n, notNumber := strconv.Atoi(port); err != nil || is == "port" && (notNumber != nil || n < 0 || n > 65535) {
			return text, wanted("host:port, such as 127.0.0.1:8787", text)
		}
	case is == "redis":
		_, err := redislink.ParseURL(text)
		return text, err
	case is == "path":
		return fullPath(text)
	}
	return text, nil
}

func wanted(want, got string) error { return fmt.Errorf("want %s, got %.60q", want, got) }

// inRange parses text into field, and wants it to be in the range of the tag.
func inRange[T int | time.Duration](
	s setting, field *T, text string, parse func(string) (T, error), want string,
) error {
	from, to, _ := strings.Cut(s.tag.Get("range"), "..")
	lowest, err := parse(from)
	highest, err2 := parse(to)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("its range: %w", err) // a mistake in the tag
	}
	if *field, err = parse(text); err != nil || *field < lowest || *field > highest {
		return wanted(fmt.Sprintf(want, fmt.Sprint(lowest), fmt.Sprint(highest)), text)
	}
	return nil
}

func checkAgentName(name string) error {
	switch {
	case name == "":
		return errors.New("required: a name of this bot's own, such as agent_a")
	case !isAgentName(name):
		return wanted("at most 64 bytes without spaces, slashes, quotes, @ or angle brackets", name)
	}
	return nil
}

// isAgentName reports whether name is valid on the relay. The mailbox wants more of it.
func isAgentName(name string) bool {
	return name != "" && name != "*" && len(name) <= 64 && relay.CheckID(name) == nil &&
		!strings.ContainsAny(name, "/\\ @<>\"'")
}

// agentList reads a list of agents, of which one that ends with * is all whose name
// begins so (mailbox.InList): nil is everybody, an empty one nobody.
func agentList(text string) ([]mailbox.AgentID, error) {
	names := list(text)
	if slices.Equal(names, []string{"none"}) {
		return []mailbox.AgentID{}, nil
	}
	if len(names) == 0 {
		return nil, wanted("names of agents with commas between them, res* for all whose name begins so, "+
			"* for all, or none for nobody", text)
	}
	var agents []mailbox.AgentID
	for _, name := range names {
		if name == "*" {
			continue
		}
		if name == "none" {
			return nil, wanted("none alone, or names of agents without it", text)
		}
		if err := mailbox.CheckAgent(mailbox.AgentID(strings.TrimSuffix(name, "*"))); err != nil {
			return nil, fmt.Errorf("%s; got %.60q", sentence(err), name)
		}
		agents = append(agents, mailbox.AgentID(name))
	}
	if slices.Contains(names, "*") {
		return nil, nil
	}
	return agents, nil
}

// sentence is what an error of the mailbox says, without its code.
func sentence(err error) string {
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// httpURL does not show the text in its error: it may hold a password.
func httpURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("want an http:// or https:// URL")
	}
	return u, nil
}

// baseURL wants a URL without a path of its own; an empty text gives nil.
func baseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := httpURL(strings.TrimRight(text, "/"))
	if err == nil && (u.RawQuery != "" || u.User != nil || u.Path != "") {
		return nil, errors.New("want scheme and host only, such as https://open.feishu.cn")
	}
	return u, err
}

func fullPath(text string) (string, error) {
	path := text
	if rest, ok := strings.CutPrefix(text, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return text, fmt.Errorf("%q needs a home folder: %w; give a full path", text, err)
		}
		path = home + rest
	}
	path, err := filepath.Abs(path)
	if err != nil || strings.ContainsRune(path, 0) {
		return text, wanted("a path", text)
	}
	return path, nil
}

// derive fills in the defaults that depend on other settings.
func (c *config) derive() {
	for field, name := range map[*string]string{
		&c.RelayDir: "relay", &c.TranscriptDir: "transcripts",
		&c.Mailbox.Dir: "mailboxes", &c.GroupsFile: "groups.json",
	} {
		*field = cmp.Or(*field, filepath.Join(c.DataDir, name))
	}
	if c.Backend == "" {
		c.Backend = "file"
		if c.RedisURL != "" {
			c.Backend = "redis"
		}
	}
}

// conflicts are the mistakes that lie in no setting alone.
func (c *config) conflicts() (found []error) {
	conflict := func(is bool, format string, args ...any) {
		if is {
			found = append(found, fmt.Errorf(format, args...))
		}
	}
	gateway, webhook, m := c.Gateway, c.BotWebhookURL != "", c.Mailbox
	for _, t := range [...][2]string{{"API_TOKEN", string(c.APIToken)}, {"ADMIN_TOKEN", string(c.AdminToken)}} {
		conflict(strings.TrimSpace(t[1]) != t[1], "%s: has a space or a line end at its beginning or end; remove it", t[0])
		letters := utf8.RuneCountInString(t[1])
		conflict((beyondLoopback(c.ListenAddr) || beyondLoopback(gateway.Addr)) && 0 < letters && letters < minSecret,
			"%s: want at least %d characters beyond loopback, got %d; `openssl rand -hex 32` makes a good one",
			t[0], minSecret, letters)
	}
	conflict(beyondLoopback(c.ListenAddr) && c.APIToken == "", "API_TOKEN: required since LISTEN_ADDR=%s "+
		"is reached from other hosts; set a long random one, or listen on 127.0.0.1", c.ListenAddr)
	conflict(c.AdminToken != "" && (c.APIToken == "" || c.APIToken == c.AdminToken),
		"API_TOKEN: required by ADMIN_TOKEN, and another one: the bot has it; `openssl rand -hex 32` makes a good one")
	conflict(c.InjectSecret != "" && c.InjectURL == "",
		"INJECT_URL: required by INJECT_SECRET, which signs the posts to it and nothing else")
	conflict(c.Backend == "redis" && c.RedisURL == "",
		"REDIS_URL: required by RELAY_BACKEND=redis, such as redis://127.0.0.1:6379/0")

	conflict(gateway.TLS == "file" && (gateway.CertFile == "" || gateway.KeyFile == ""),
		"GATEWAY_CERT_FILE, GATEWAY_KEY_FILE: both required by GATEWAY_TLS=file")
	conflict(gateway.Addr != "" && gateway.Addr == c.ListenAddr && !strings.HasSuffix(c.ListenAddr, ":0"),
		"GATEWAY_ADDR: is the same as LISTEN_ADDR; the bot's SDK and the local API need addresses of their own")
	conflict(beyondLoopback(gateway.Addr) && c.AppID == "", "FEISHU_APP_ID: required since GATEWAY_ADDR=%s is "+
		"reached from other hosts, where the first app that calls would be taken as the bot's; set it to the bot's "+
		"app id, such as cli_0123456789abcdef, or listen on 127.0.0.1", gateway.Addr)
	conflict(!webhook && c.WebhookAddr != "",
		"BOT_WEBHOOK_URL: required by WEBHOOK_ADDR: where the bot listens for Feishu's events")
	switch {
	case !webhook:
	case gateway.Addr == "":
		conflict(true, "GATEWAY_ADDR: required by BOT_WEBHOOK_URL: the bot's own calls go through it")
	case c.EncryptKey == "" && c.VerificationToken == "":
		conflict(true, "FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN: at least one is required by BOT_WEBHOOK_URL, "+
			"else anybody could post events")
	case c.WebhookAddr == "":
		conflict(!sidecar.IsLoopback(gateway.Addr), "WEBHOOK_ADDR: required since GATEWAY_ADDR=%s is not loopback: "+
			"Feishu should reach the webhook and nothing else", gateway.Addr)
	}
	conflict(c.Connector && gateway.Addr != "", "CONNECTOR, GATEWAY_ADDR: either the sidecar holds the Feishu "+
		"connection or the bot does; two connections of one app steal each other's events: set one of them")
	conflict(c.Connector && gateway.Addr == "" && (c.AppID == "" || c.AppSecret == ""),
		"FEISHU_APP_ID, FEISHU_APP_SECRET: both required by CONNECTOR=true")

	conflict(m.Gateway && !m.On, "MAILBOX_GATEWAY: on needs the mailbox, and MAILBOX is off: "+
		"set MAILBOX=on, or MAILBOX_GATEWAY=off")
	if err := mailbox.CheckAgent(mailbox.AgentID(c.Agent)); m.On && err != nil {
		conflict(isAgentName(string(c.Agent)), "AGENT_NAME: %s; choose another, or set MAILBOX=off; got %.60q",
			sentence(err), c.Agent)
	}
	conflict(m.Heartbeat >= m.HeartbeatTimeout, "HEARTBEAT_TIMEOUT: want more than HEARTBEAT_INTERVAL=%s, "+
		"such as %s; else the agent counts as offline between two heartbeats; got %s",
		m.Heartbeat, 3*m.Heartbeat, m.HeartbeatTimeout)
	return found
}

// beyondLoopback reports whether other hosts reach addr; one that is missing or
// malformed is not reached.
func beyondLoopback(addr string) bool {
	_, _, err := net.SplitHostPort(addr)
	return err == nil && !sidecar.IsLoopback(addr)
}

// isNoTarget reports whether addr is not a host:port to connect to.
func isNoTarget(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, notNumber := strconv.ParseUint(port, 10, 16)
	return err != nil || host == "" || notNumber != nil || n == 0
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
