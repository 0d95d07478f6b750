package main

import (
	"bytes"
	"cmp"
	"context"
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

// botsFile is what `feishu-relay up` is to run.
type botsFile struct {
	path     string
	bots     []*upBot
	mistakes []string
	warnings []notice // about files with secrets
}

// upBot is one bot of the file.
type upBot struct {
	name     string
	settings map[string]string // its own and the shared ones
	places   map[string]place  // of its settings in the file
	mistaken bool
}

// place is a line of the file, 0 where that is not known, and whose part of the file that is.
type place struct {
	part string
	line int
}

// botsYAML is the form of a bots file.
type botsYAML struct {
	Shared settingsYAML            `yaml:"shared"`
	Bots   map[string]settingsYAML `yaml:"bots"`
}

// settingsYAML are settings by their names, and an env_file with more of them.
type settingsYAML map[string]settingYAML

// settingYAML is a value as it is written, or a list with commas between, and its line.
type settingYAML struct {
	text string
	line int
}

// UnmarshalYAML is called by package yaml.
func (s *settingYAML) UnmarshalYAML(n *yaml.Node) error {
	s.line = n.Line
	if n.Kind == yaml.SequenceNode {
		var texts []string
		err := n.Decode(&texts)
		s.text = strings.Join(texts, ",")
		return err
	}
	return n.Decode(&s.text)
}

// readBotsFile reads and checks a bots file. The mistakes of a bot are that bot's own.
// Where the file has no setting, that of the environment applies.
func readBotsFile(ctx context.Context, path string) (*botsFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var read botsYAML
	in := yaml.NewDecoder(bytes.NewReader(data))
	in.KnownFields(true)
	if err := in.Decode(&read); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(read.Bots) == 0 {
		return nil, fmt.Errorf("%s: want `bots:` with a name for each bot and its settings below, and optionally "+
			"`shared:`; `feishu-relay up --help` shows an example", path)
	}
	f := &botsFile{path: path}
	for _, name := range slices.Sorted(maps.Keys(read.Bots)) {
		b := &upBot{name: name, settings: map[string]string{}, places: map[string]place{}}
		f.bots = append(f.bots, b)
		f.take(b, "shared", read.Shared)
		f.take(b, name, read.Bots[name])
		b.settings["AGENT_NAME"] = name
		b.gatewayAddress()
		f.check(ctx, b)
	}
	f.compare()
	return f, nil
}

// take gives a bot the settings of a part of the file: those of env_file first, so that the others win.
func (f *botsFile) take(b *upBot, part string, from settingsYAML) {
	if file, has := from["env_file"]; has {
		name := file.text
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(f.path), name)
		}
		set, err := readEnvFile(name)
		if err != nil {
			f.mistake(b, place{part, file.line}, "env_file: "+err.Error())
		}
		f.warnings = append(f.warnings, warnReadable(name, set)...)
		maps.Copy(b.settings, set)
		for name := range set {
			b.places[name] = place{part, file.line}
		}
	}
	known, own := variableNames(), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		switch at := (place{part, from[name].line}); {
		case name == "env_file":
		case name == "AGENT_NAME":
			f.mistake(b, at, "AGENT_NAME is the key of the bot under `bots:`; remove it here")
		case !slices.Contains(known, name):
			f.mistake(b, at, fmt.Sprintf("%q is no setting%s", name, cmp.Or(didYouMean(strings.ToUpper(name), known),
				"; `feishu-relay run --help` lists all settings")))
		default:
			own[name], b.places[name] = from[name].text, at
		}
	}
	maps.Copy(b.settings, own)
	f.warnings = append(f.warnings, warnReadable(f.path, own)...)
}

// mistake notes one of a bot. That of the shared part is no bot's.
func (f *botsFile) mistake(b *upBot, at place, text string) {
	b.mistaken = true
	where := f.path
	if at.line > 0 {
		where += ":" + strconv.Itoa(at.line)
	}
	f.mistakes = append(f.mistakes, where+": "+cmp.Or(at.part, b.name)+": "+text)
}

// check has a bot's settings checked as its sidecar will.
func (f *botsFile) check(ctx context.Context, b *upBot) {
	found, err := checkOf(ctx, b.environment(), "Configuration", words.Words{})
	if err != nil {
		f.mistake(b, place{}, err.Error())
	}
	for _, one := range found {
		if one.Status == selftest.Fail {
			name, _, _ := strings.Cut(one.Name, ",")
			f.mistake(b, b.places[name], one.Name+": "+one.Detail)
		}
	}
}

// compare finds what two bots cannot both have.
func (f *botsFile) compare() {
	owners := map[string]*upBot{}
	for _, b := range f.bots {
		for _, setting := range []string{"FEISHU_APP_ID", "WEBHOOK_ADDR", "LISTEN_ADDR", "GATEWAY_ADDR"} {
			value := b.get(setting)
			owner := owners[value]
			switch {
			case value == "" || strings.HasSuffix(value, ":0") || owner == b: // the bot's own mistake is found already
			case owner == nil:
				owners[value] = b
			default:
				f.mistake(b, place{b.name, b.places[setting].line},
					fmt.Sprintf("%s: %s has %s already; want another one", setting, owner.name, value))
			}
		}
	}
}

// get is the value of a setting for the bot's sidecar.
func (b *upBot) get(name string) string {
	value, set := b.settings[name]
	if !set {
		value = os.Getenv(name)
	}
	i := slices.IndexFunc(variables(), func(v setting) bool { return v.name == name })
	return cmp.Or(value, variables()[i].def)
}

func (b *upBot) isConnector() bool {
	return slices.Contains([]string{"true", "1", "yes", "on"}, strings.ToLower(b.get("CONNECTOR")))
}

// gatewayAddress turns auto into the port above LISTEN_ADDR. A GATEWAY_ADDR of the environment would be that of all
// bots.
func (b *upBot) gatewayAddress() {
	set := b.settings["GATEWAY_ADDR"]
	b.settings["GATEWAY_ADDR"] = set
	if set != "auto" {
		return
	}
	b.settings["GATEWAY_ADDR"] = ""
	if host, port, err := net.SplitHostPort(b.get("LISTEN_ADDR")); err == nil && !b.isConnector() {
		n, _ := strconv.Atoi(port) // a mistake that is found anyway
		if n > 0 {
			n++
		}
		b.settings["GATEWAY_ADDR"] = net.JoinHostPort(host, strconv.Itoa(n))
	}
}

// environment is that of the bot's sidecar.
func (b *upBot) environment() []string {
	out := os.Environ()
	for name, value := range b.settings { // the last value of a name counts
		out = append(out, name+"="+value)
	}
	return out
}

// report prints the mistakes, and returns how many bots can be started.
func (f *botsFile) report(w io.Writer) (good int) {
	seen := map[string]bool{}
	line := func(mark, text string) {
		if !seen[text] {
			fmt.Fprintf(w, "%s %s\n", mark, neutral(text))
		}
		seen[text] = true
	}
	for _, n := range f.warnings {
		one := n.in(words.Words{})
		line("!", one.Detail+": "+one.Mend)
	}
	for _, mistake := range f.mistakes {
		line("✗", mistake)
	}
	for _, b := range f.bots {
		if !b.mistaken {
			good++
		}
	}
	return good
}
