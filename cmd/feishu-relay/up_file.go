package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
)

const (
	// maxBotsFile is the largest bots file that is read, in bytes.
	maxBotsFile = 1 << 20
	// maxBots is the most bots of a file.
	maxBots = 64
	// firstPort and portStep are where bots without addresses of their own listen: the
	// first bot's local API at firstPort and its gateway one above, the next bot's
	// portStep above that.
	firstPort, portStep = 8787, 10
	// chosen is the value of GATEWAY_ADDR for an address that up chooses.
	chosen = "auto"
)

// botsFile is what `feishu-relay up` is to run.
type botsFile struct {
	bots     []*upBot
	mistakes []error  // of the whole file: nothing can be started
	warnings []notice // about files with secrets
}

// upBot is one bot of the file.
type upBot struct {
	name     string
	settings map[string]string // its own, the shared ones and the chosen addresses
	lines    map[string]string // where each setting is: file, or file:line
	mistakes []error
	config   config // valid without mistakes
}

// readBotsFile reads and checks a bots file. The mistakes of a bot are that bot's own.
// environ is the environment, whose settings apply where the file has none.
func readBotsFile(path string, environ []string) (*botsFile, error) {
	data, err := selftest.ReadAtMost(path, maxBotsFile)
	if err != nil {
		return nil, err
	}
	if len(data) > maxBotsFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxBotsFile)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := botsReader{path: path, file: &botsFile{}}
	r.read(&doc)
	if len(r.file.mistakes) == 0 {
		r.file.check(environ)
	}
	return r.file, nil
}

// botsReader turns the document into a botsFile.
type botsReader struct {
	path string
	file *botsFile
}

func (r *botsReader) mistake(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.path, n.Line, fmt.Sprintf(format, args...))
}

const botsForm = "want `bots:` with a name for each bot and its settings below, and optionally `shared:`; " +
	"`feishu-relay up --help` shows an example"

func (r *botsReader) read(doc *yaml.Node) {
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		r.file.mistakes = append(r.file.mistakes, fmt.Errorf("%s:1: %s", r.path, botsForm))
		return
	}
	shared, bots := &upBot{settings: map[string]string{}, lines: map[string]string{}}, (*yaml.Node)(nil)
	for key, value := range r.pairs(doc.Content[0], &r.file.mistakes) {
		switch key.Value {
		case "shared":
			r.settings(value, shared)
		case "bots":
			bots = value
		default:
			r.file.mistakes = append(r.file.mistakes, r.mistake(key, "there is no %q here%s", key.Value,
				didYouMean(key.Value, []string{"bots", "shared"})))
		}
	}
	r.file.mistakes = append(r.file.mistakes, shared.mistakes...)
	if bots == nil || bots.Kind != yaml.MappingNode || len(bots.Content) == 0 {
		r.file.mistakes = append(r.file.mistakes, fmt.Errorf("%s: %s", r.path, botsForm))
		return
	}
	for key, value := range r.pairs(bots, &r.file.mistakes) {
		b := &upBot{name: key.Value, settings: maps.Clone(shared.settings), lines: maps.Clone(shared.lines)}
		b.settings["AGENT_NAME"], b.lines["AGENT_NAME"] = b.name, fmt.Sprintf("%s:%d", r.path, key.Line)
		if value.Tag != "!!null" {
			r.settings(value, b)
		}
		r.file.bots = append(r.file.bots, b)
	}
	if len(r.file.bots) > maxBots {
		r.file.mistakes = append(r.file.mistakes, fmt.Errorf("%s: more than %d bots", r.path, maxBots))
	}
}

// pairs are the keys and values of a mapping. A key that is there twice is a mistake.
func (r *botsReader) pairs(n *yaml.Node, mistakes *[]error) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			if line, twice := first[key.Value]; twice {
				*mistakes = append(*mistakes, r.mistake(key, "%q is in line %d already", key.Value, line))
				continue
			}
			first[key.Value] = key.Line
			if !yield(key, value) {
				return
			}
		}
	}
}

// settings adds what a mapping sets: env_file first, so that the other keys win.
func (r *botsReader) settings(n *yaml.Node, to *upBot) {
	mistake := func(err error) { to.mistakes = append(to.mistakes, err) }
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			mistake(r.mistake(n, "want settings, one NAME: value a line"))
		}
		return
	}
	known := []string{"env_file"}
	for _, v := range variables() {
		if v.name != "AGENT_NAME" {
			known = append(known, v.name)
		}
	}
	set := map[string]string{}
	for key, value := range r.pairs(n, &to.mistakes) {
		text, ok := scalar(value)
		switch {
		case key.Value == "AGENT_NAME":
			mistake(r.mistake(key, "AGENT_NAME is the key of the bot under `bots:`; remove it here"))
		case !slices.Contains(known, key.Value):
			mistake(r.mistake(key, "%q is no setting%s", key.Value, didYouMeanSetting(key.Value, known)))
		case !ok:
			mistake(r.mistake(value, "%s: want one value, or a list of values", key.Value))
		case key.Value == "env_file":
			r.envFile(key, text, to)
		default:
			set[key.Value] = text
			to.lines[key.Value] = fmt.Sprintf("%s:%d", r.path, key.Line)
		}
	}
	maps.Copy(to.settings, set)
	if info, err := os.Stat(r.path); err == nil && info.Mode().IsRegular() {
		r.file.warnings = append(r.file.warnings, warnReadable(r.path, set)...)
	}
}

func didYouMeanSetting(word string, known []string) string {
	if meant, found := shortened(word, known); found {
		return "; did you mean " + meant + "?"
	}
	if meant := didYouMean(strings.ToUpper(word), known); meant != "" {
		return meant
	}
	return "; `feishu-relay run --help` lists all settings"
}

func (r *botsReader) envFile(key *yaml.Node, name string, to *upBot) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(r.path), name)
	}
	set, err := readEnvFile(name)
	if err != nil {
		to.mistakes = append(to.mistakes, r.mistake(key, "env_file: %v", err))
		return
	}
	delete(set, "AGENT_NAME") // the bot's key has it
	r.file.warnings = append(r.file.warnings, warnReadable(name, set)...)
	for name, value := range set {
		to.settings[name], to.lines[name] = value, fmt.Sprintf("%s:%d (env_file)", r.path, key.Line)
	}
}

// scalar is the text of a value as it is written, or of a list with commas between.
func scalar(n *yaml.Node) (text string, ok bool) {
	switch {
	case n.Tag == "!!null":
		return "", true
	case n.Kind == yaml.ScalarNode:
		return n.Value, true
	case n.Kind == yaml.SequenceNode:
		var all []string
		for _, one := range n.Content {
			if one.Kind != yaml.ScalarNode {
				return "", false
			}
			all = append(all, one.Value)
		}
		return strings.Join(all, ","), true
	}
	return "", false
}

// check chooses addresses, and checks each bot's settings as its sidecar will.
func (f *botsFile) check(environ []string) {
	taken := map[string]bool{}
	for _, b := range f.bots {
		for _, name := range []string{"LISTEN_ADDR", "GATEWAY_ADDR", "WEBHOOK_ADDR"} {
			_, port, _ := net.SplitHostPort(b.settings[name])
			taken[port] = true
		}
	}
	for i, b := range f.bots {
		b.chooseAddresses(firstPort+i*portStep, taken)
		b.load(environ)
	}
	type use struct {
		bot     *upBot
		setting string
	}
	uses := map[string]use{} // by what two bots cannot both have
	only := func(b *upBot, setting, what, value string) {
		if value == "" || strings.HasSuffix(value, ":0") {
			return
		}
		if other, twice := uses[value]; twice {
			if other.bot == b {
				return // its own mistake, which is noted
			}
			b.mistake(setting, fmt.Errorf("%s: %s is %s of %s already; want %s of its own", setting, value,
				other.setting, other.bot.name, what))
			return
		}
		uses[value] = use{b, setting}
	}
	for _, b := range f.bots {
		only(b, "LISTEN_ADDR", "an address", b.config.ListenAddr)
		only(b, "GATEWAY_ADDR", "an address", b.config.Gateway.Addr)
		only(b, "WEBHOOK_ADDR", "an address", b.config.WebhookAddr)
		only(b, "FEISHU_APP_ID", "an app", b.config.AppID)
	}
	f.warnApart()
}

// chooseAddresses gives a bot the addresses that it does not set, at or above port.
func (b *upBot) chooseAddresses(port int, taken map[string]bool) {
	for taken[strconv.Itoa(port)] || taken[strconv.Itoa(port+1)] {
		port += portStep
	}
	at := func(port int) string {
		taken[strconv.Itoa(port)] = true
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	if b.settings["LISTEN_ADDR"] == "" {
		b.settings["LISTEN_ADDR"] = at(port)
	}
	connector := slices.Contains([]string{"true", "1", "yes", "on"}, strings.ToLower(b.settings["CONNECTOR"]))
	switch gateway := b.settings["GATEWAY_ADDR"]; {
	case gateway == chosen && !connector:
		b.settings["GATEWAY_ADDR"] = at(port + 1)
	case gateway == chosen, gateway == "": // not the environment's, which would be that of all bots
		b.settings["GATEWAY_ADDR"] = ""
	}
}

// environment is that of the bot's sidecar.
func (b *upBot) environment(environ []string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, set := b.settings[name]
		return set
	})
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		out = append(out, name+"="+b.settings[name])
	}
	return out
}

// load reads the bot's configuration as its sidecar will, and notes the mistakes. It
// changes the environment of this process meanwhile.
func (b *upBot) load(environ []string) {
	setEnvironment(b.environment(environ))
	defer setEnvironment(environ)
	var err error
	b.config, err = loadConfig()
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, one := range joined.Unwrap() {
			name, _, _ := strings.Cut(one.Error(), ": ")
			name, _, _ = strings.Cut(name, ",")
			b.mistake(name, one)
		}
	}
}

// mistake notes a mistake in a setting, at its line or else at that of the bot.
func (b *upBot) mistake(setting string, err error) {
	line := b.lines[setting]
	if line == "" {
		line = b.lines["AGENT_NAME"]
	}
	b.mistakes = append(b.mistakes, fmt.Errorf("%s: %s: %w", line, b.name, err))
}

func setEnvironment(environ []string) {
	os.Clearenv()
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			_ = os.Setenv(name, value) // came from an environment, or was checked
		}
	}
}

// warnApart warns of bots that do not meet the first one.
func (f *botsFile) warnApart() {
	meets := func(b *upBot) string {
		if b.config.Backend == "redis" {
			return "the Redis of REDIS_URL with RELAY_CHANNEL " + b.config.RelayChannel + string(b.config.RedisURL)
		}
		return b.config.RelayDir
	}
	first := f.bots[0]
	for _, b := range f.bots[1:] {
		if len(b.mistakes)+len(first.mistakes) > 0 {
			continue
		}
		if meets(b) != meets(first) || b.config.RelaySecret != first.config.RelaySecret {
			f.warnings = append(f.warnings, notice{"bots", "bots apart", []any{first.name, b.name}})
		}
	}
}

// report prints the mistakes, and returns how many bots have none.
func (f *botsFile) report(w io.Writer) (good int) {
	for _, n := range f.warnings {
		one := n.in(words.Words{})
		fmt.Fprintf(w, "! %s: %s\n", neutral(one.Detail), neutral(one.Mend))
	}
	for _, err := range f.mistakes {
		fmt.Fprintf(w, "✗ %s\n", neutral(err.Error()))
	}
	for _, b := range f.bots {
		for _, err := range b.mistakes {
			fmt.Fprintf(w, "✗ %s\n", neutral(err.Error()))
		}
		if len(b.mistakes) == 0 {
			good++
		}
	}
	if len(f.mistakes) > 0 {
		return 0
	}
	return good
}
