package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
	// firstPort and portStep are of the addresses that are proposed: a local API is at firstPort and its gateway one
	// above, the next bot's portStep above that.
	firstPort, portStep = 8787, 10
	// chosen is the value of GATEWAY_ADDR for the port above LISTEN_ADDR.
	chosen = "auto"
)

// botsFile is what `feishu-relay up` is to run.
type botsFile struct {
	path     string
	bots     []*upBot
	mistakes []string // of the whole file: nothing can be started
	warnings []notice // about files with secrets
}

// upBot is one bot of the file.
type upBot struct {
	name     string
	settings map[string]string // its own and the shared ones
	lines    map[string]string // where each setting is: file, or file:line
	mistakes []string
}

// readBotsFile reads and checks a bots file. The mistakes of a bot are that bot's own.
// Where the file has no setting, that of the environment applies.
func readBotsFile(ctx context.Context, path string) (*botsFile, error) {
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
	f := &botsFile{path: path}
	f.read(&doc)
	if len(f.mistakes) == 0 {
		f.check(ctx)
	}
	return f, nil
}

func (f *botsFile) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", f.path, n.Line) }

// mistake notes one at a node.
func (f *botsFile) mistake(list *[]string, n *yaml.Node, format string, args ...any) {
	*list = append(*list, f.at(n)+": "+fmt.Sprintf(format, args...))
}

const botsForm = "want `bots:` with a name for each bot and its settings below, and optionally `shared:`; " +
	"`feishu-relay up --help` shows an example"

func (f *botsFile) read(doc *yaml.Node) {
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		f.mistakes = append(f.mistakes, f.path+":1: "+botsForm)
		return
	}
	shared, bots := &upBot{settings: map[string]string{}, lines: map[string]string{}}, &yaml.Node{}
	for key, value := range f.pairs(doc.Content[0], &f.mistakes) {
		switch key.Value {
		case "shared":
			f.settings(value, shared)
		case "bots":
			bots = value
		default:
			f.mistake(&f.mistakes, key, "there is no %q here%s", key.Value, didYouMean(key.Value, []string{"bots", "shared"}))
		}
	}
	f.mistakes = append(f.mistakes, shared.mistakes...)
	for key, value := range f.pairs(bots, &f.mistakes) {
		b := &upBot{name: key.Value, settings: maps.Clone(shared.settings), lines: maps.Clone(shared.lines)}
		b.settings["AGENT_NAME"], b.lines["AGENT_NAME"] = b.name, f.at(key)
		f.settings(value, b)
		f.bots = append(f.bots, b)
	}
	switch {
	case bots.Kind != yaml.MappingNode || len(f.bots) == 0:
		f.mistakes = append(f.mistakes, f.path+": "+botsForm)
	case len(f.bots) > maxBots:
		f.mistakes = append(f.mistakes, fmt.Sprintf("%s: more than %d bots", f.path, maxBots))
	}
}

// pairs are the keys and values of a mapping. A key that is there twice is a mistake.
func (f *botsFile) pairs(n *yaml.Node, mistakes *[]string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			if line, twice := first[key.Value]; twice {
				f.mistake(mistakes, key, "%q is in line %d already", key.Value, line)
			} else if first[key.Value] = key.Line; !yield(key, value) {
				return
			}
		}
	}
}

// settings adds what a mapping sets: env_file first, so that the other keys win.
func (f *botsFile) settings(n *yaml.Node, to *upBot) {
	if n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.mistake(&to.mistakes, n, "want settings, one NAME: value a line")
		return
	}
	known, set := append(variableNames(), "env_file"), map[string]string{}
	for key, value := range f.pairs(n, &to.mistakes) {
		text, err := scalar(value)
		switch {
		case key.Value == "AGENT_NAME":
			err = errors.New("AGENT_NAME is the key of the bot under `bots:`; remove it here")
		case !slices.Contains(known, key.Value):
			err = fmt.Errorf("%q is no setting%s", key.Value, cmp.Or(didYouMean(strings.ToUpper(key.Value), known),
				"; `feishu-relay run --help` lists all settings"))
		case err != nil:
			err = fmt.Errorf("%s: %w", key.Value, err)
		case key.Value == "env_file":
			err = f.envFile(text, f.at(key), to)
		default:
			set[key.Value], to.lines[key.Value] = text, f.at(key)
		}
		if err != nil {
			f.mistake(&to.mistakes, key, "%v", err)
		}
	}
	maps.Copy(to.settings, set)
	if info, err := os.Stat(f.path); err == nil && info.Mode().IsRegular() {
		f.warnings = append(f.warnings, warnReadable(f.path, set)...)
	}
}

func (f *botsFile) envFile(name, line string, to *upBot) error {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(f.path), name)
	}
	set, err := readEnvFile(name)
	if err != nil {
		return fmt.Errorf("env_file: %w", err)
	}
	delete(set, "AGENT_NAME") // the bot's key has it
	f.warnings = append(f.warnings, warnReadable(name, set)...)
	for name, value := range set {
		to.settings[name], to.lines[name] = value, line+" (env_file)"
	}
	return nil
}

// scalar is the text of a value as it is written, or of a list with commas between.
func scalar(n *yaml.Node) (string, error) {
	all := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		all = n.Content
	}
	var texts []string
	for _, one := range all {
		switch {
		case one.Kind != yaml.ScalarNode:
			return "", errors.New("want one value, or a list of values")
		case one.Tag != "!!null":
			texts = append(texts, one.Value)
		}
	}
	return strings.Join(texts, ","), nil
}

// check has each bot's settings checked as its sidecar will, and finds what two bots cannot both have.
func (f *botsFile) check(ctx context.Context) {
	owners, free := map[string]string{}, firstPort // of values: SETTING of BOT
	for _, b := range f.bots {
		b.gatewayAddress()
		b.checkAlone(ctx)
		for _, setting := range []string{"FEISHU_APP_ID", "WEBHOOK_ADDR", "LISTEN_ADDR", "GATEWAY_ADDR"} {
			value := b.get(setting)
			owner := owners[value]
			if owner == "" {
				owners[value] = setting + " of " + b.name
			}
			if owner == "" || value == "" || strings.HasSuffix(value, ":0") ||
				strings.HasSuffix(owner, " of "+b.name) { // two of its own: it has found that itself
				continue
			}
			text := fmt.Sprintf("%s: %s is %s already; want another one", setting, value, owner)
			if setting == "LISTEN_ADDR" {
				for f.uses(localAddr(free)) || f.uses(localAddr(free+1)) {
					free += portStep
				}
				text += ", such as " + localAddr(free)
				free += portStep
			}
			if b.mistake(setting, text); setting == "LISTEN_ADDR" {
				break // its GATEWAY_ADDR may follow from it
			}
		}
	}
	first := f.bots[0]
	for _, b := range f.bots[1:] {
		if len(b.mistakes)+len(first.mistakes) == 0 &&
			(b.meets() != first.meets() || b.get("RELAY_SECRET") != first.get("RELAY_SECRET")) {
			f.warnings = append(f.warnings, notice{"bots", "bots apart", []any{first.name, b.name}})
		}
	}
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// uses reports whether a bot listens at the port of an address.
func (f *botsFile) uses(addr string) bool {
	return slices.ContainsFunc(f.bots, func(b *upBot) bool {
		return samePort(b.get("LISTEN_ADDR"), addr) || samePort(b.get("GATEWAY_ADDR"), addr) ||
			samePort(b.get("WEBHOOK_ADDR"), addr)
	})
}

// get is the value of a setting for the bot's sidecar.
func (b *upBot) get(name string) string {
	value, set := b.settings[name]
	if !set {
		value = os.Getenv(name)
	}
	for _, v := range variables() {
		if v.name == name {
			return cmp.Or(value, v.def)
		}
	}
	return value
}

func (b *upBot) is(name string) bool {
	return slices.Contains([]string{"true", "1", "yes", "on"}, strings.ToLower(b.get(name)))
}

// gatewayAddress turns auto into the port above LISTEN_ADDR. A GATEWAY_ADDR of the environment would be that of all
// bots.
func (b *upBot) gatewayAddress() {
	set := b.settings["GATEWAY_ADDR"]
	if set != chosen {
		b.settings["GATEWAY_ADDR"] = set
		return
	}
	b.settings["GATEWAY_ADDR"] = ""
	if host, port, err := net.SplitHostPort(b.get("LISTEN_ADDR")); err == nil && !b.is("CONNECTOR") {
		n, _ := strconv.Atoi(port) // a mistake that is found anyway
		if n > 0 {
			n++
		}
		b.settings["GATEWAY_ADDR"] = net.JoinHostPort(host, strconv.Itoa(n))
	}
}

// meets is where the bot meets others.
func (b *upBot) meets() string {
	if url := b.get("REDIS_URL"); url != "" && b.get("RELAY_BACKEND") != "file" {
		return url + " " + b.get("RELAY_CHANNEL")
	}
	return cmp.Or(b.get("RELAY_DIR"), b.get("DATA_DIR"))
}

// environment is that of the bot's sidecar.
func (b *upBot) environment() []string {
	out := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, set := b.settings[name]
		return set
	})
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		out = append(out, name+"="+b.settings[name])
	}
	return out
}

// checkAlone notes the mistakes that check finds in the bot's settings.
func (b *upBot) checkAlone(ctx context.Context) {
	found, err := checkOf(ctx, b.environment(), "Configuration", words.Words{})
	if err != nil {
		b.mistake("", err.Error())
	}
	for _, one := range found {
		if one.Status == selftest.Fail {
			name, _, _ := strings.Cut(one.Name, ",")
			b.mistake(name, one.Name+": "+one.Detail)
		}
	}
}

// mistake notes a mistake in a setting, at its line or else at that of the bot.
func (b *upBot) mistake(setting, text string) {
	line := cmp.Or(b.lines[setting], b.lines["AGENT_NAME"])
	b.mistakes = append(b.mistakes, line+": "+b.name+": "+text)
}

// report prints the mistakes, and returns how many bots can be started.
func (f *botsFile) report(w io.Writer) (good int) {
	for _, n := range f.warnings {
		one := n.in(words.Words{})
		fmt.Fprintf(w, "! %s: %s\n", neutral(one.Detail), neutral(one.Mend))
	}
	all := f.mistakes
	for _, b := range f.bots {
		all = append(all, b.mistakes...)
		if len(b.mistakes)+len(f.mistakes) == 0 {
			good++
		}
	}
	for _, mistake := range all {
		fmt.Fprintf(w, "✗ %s\n", neutral(mistake))
	}
	return good
}
