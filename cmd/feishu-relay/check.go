package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"

	"feishu-relay/internal/runes"
	"feishu-relay/internal/selftest"
	"feishu-relay/internal/web"
	"feishu-relay/internal/words"
	"feishu-relay/sidecar"
)

// notice is a warning about the configuration: a text of the catalogue, and its fix.
type notice struct {
	name, key string
	args      []any
}

func (n notice) in(w words.Words) selftest.Finding {
	return selftest.Finding{Area: "Configuration", Name: n.name, Status: selftest.Warn,
		Detail: w.Say(n.key, n.args...), Mend: w.Say(n.key+".fix", n.args...)}
}

// checkCommand tests everything that is configured: by the running sidecar, or else here.
type checkCommand struct {
	language
	JSON  bool   `long:"json"`
	Quiet bool   `long:"quiet"`
	Only  string `long:"only" value-name:"AREAS"`
}

func (*checkCommand) showsNotices() {}

func (c *checkCommand) run(p *cli, _ []string) error {
	ctx, w := p.ctx, c.words()
	out := newFindings(p.stdout, c.JSON, w)
	out.quiet, out.only = c.Quiet, list(c.Only)
	for _, area := range out.only {
		if key := "area/" + area; w.Say(key) == key {
			return fmt.Errorf("--only: there is no area %q; name some of Configuration, Files, Relay, Mailbox, Feishu, "+
				"Bot, Judge and Sidecar, with commas between them", area)
		}
	}
	cfg, err := loadConfig()
	if err != nil {
		out.add(mistakes(w, err)...)
	} else {
		out.add(selftest.Finding{Area: "Configuration", Name: "configuration", Status: selftest.OK,
			Detail: w.Say("configuration", cfg.Agent, cfg.Backend)})
		for _, n := range cfg.Warnings() {
			out.add(selftest.Finding{Area: "Configuration", Name: n.Setting, Status: selftest.Warn, Detail: n.Detail,
				Mend: n.Fix})
		}
	}
	for _, n := range append(p.notices, checkEnvironment(os.Environ())...) {
		out.add(n.in(w))
	}
	if err == nil && !slices.Equal(out.only, []string{"Configuration"}) {
		check := checking{cfg: &cfg, words: w, api: &client{addr: sidecar.Reachable(cfg.ListenAddr),
			token: string(cfg.APIToken), words: w}}
		local := check.localAPI(ctx)
		var tests selfTest
		if check.running != nil {
			_ = check.api.get(ctx, "/v1/selftest?lang="+languages[w.Chinese], &tests) // else it is tested from here
		}
		if out.add(tests.Findings...); len(tests.Findings) == 0 {
			selftest.Run(ctx, selftest.Options{Config: cfg.Config, Version: versionText(), Running: check.running, Words: w,
				Only: out.only}, out.add)
		}
		out.add(local...)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return out.end()
}

// checkOf runs check with another environment, and returns what it finds in some areas.
func checkOf(ctx context.Context, environ []string, areas string, w words.Words) (found []selftest.Finding, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "check", "--json", "--only", areas, "--lang", languages[w.Chinese])
	cmd.Env = environ
	data, err := cmd.Output() // fails also where a test does
	if json.Unmarshal(data, &found) == nil {
		return found, nil
	}
	return nil, fmt.Errorf("check: %w", err)
}

// checking is a check of one sidecar's configuration.
type checking struct {
	cfg     *config
	words   words.Words
	api     *client         // at LISTEN_ADDR
	running *sidecar.Status // the sidecar of this agent that runs; nil: none
}

func (c *checking) found(s selftest.Status, name, key string, args ...any) []selftest.Finding {
	f := selftest.Finding{Area: "Sidecar", Name: name, Status: s, Detail: c.words.Say(key, args...)}
	if s != selftest.OK {
		f.Mend = c.words.Say(key+".fix", args...)
	}
	return []selftest.Finding{f}
}

// localAPI looks who listens at LISTEN_ADDR, and takes what a sidecar of this agent says of itself.
func (c *checking) localAPI(ctx context.Context) []selftest.Finding {
	addr := c.cfg.ListenAddr
	taken := selftest.Bound(ctx, addr)
	if taken == nil {
		return c.found(selftest.OK, "local API", "address free", addr)
	}
	soon, end := context.WithTimeout(ctx, healthWithin)
	defer end()
	var running sidecar.Status
	err := c.api.get(soon, "/v1/status", &running)
	switch agent := running.Identity.Agent; {
	case errors.Is(err, errToken):
		return c.found(selftest.Warn, "local API", "other token", addr)
	case err != nil || agent == "":
		return c.found(selftest.Fail, "local API", "address taken", taken, "LISTEN_ADDR")
	case agent != c.cfg.Agent:
		return c.found(selftest.Fail, "local API", "other agent", agent, addr)
	}
	c.running = &running
	out := c.found(selftest.OK, "local API", "own sidecar", c.cfg.Agent, addr)
	if running.Version != versionText() {
		out = append(out, c.found(selftest.Warn, "sidecar version", "other version", running.Version, versionText())...)
	}
	return append(out, c.compare()...)
}

// compare compares this environment with the settings of the running sidecar.
func (c *checking) compare() []selftest.Finding {
	here := c.cfg.shown()
	delete(here, "LISTEN_ADDR") // where it was reached
	var differ []string
	for name, value := range here {
		if there, known := c.running.Settings[name]; known && there != value {
			differ = append(differ, c.words.Say("setting differs", name, c.shown(there), c.shown(value)))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return c.found(selftest.Warn, "sidecar settings", "settings differ", c.words.List(differ))
}

func (c *checking) shown(value string) string {
	switch value {
	case "":
		return c.words.Say("not set")
	case sidecar.Secret(value).String():
		return c.words.Say("set")
	}
	return runes.Fit(neutral(value), cellWidth)
}

// selfTest is the answer of GET /v1/selftest.
type selfTest struct {
	Findings []selftest.Finding `json:"findings"`
}

// testSelf answers GET /v1/selftest of the running sidecar.
func (c *config) testSelf(out http.ResponseWriter, r *http.Request, status sidecar.Status) {
	var answer selfTest
	o := selftest.Options{Config: c.Config, Version: versionText(), Running: &status,
		Words: words.In(r.URL.Query().Get("lang"))}
	selftest.Run(r.Context(), o, func(found ...selftest.Finding) { answer.Findings = append(answer.Findings, found...) })
	web.WriteJSON(out, http.StatusOK, answer)
}

// mistakes are those of the configuration, each of which begins with the names of its variables.
func mistakes(w words.Words, err error) (out []selftest.Finding) {
	add := func(name string, s selftest.Status, detail, fix string) {
		out = append(out, selftest.Finding{Area: "Configuration", Name: name, Status: s, Detail: detail, Mend: fix})
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		name, detail, _ := strings.Cut(line, ": ")
		all := variables()
		if at := slices.IndexFunc(all, func(v setting) bool { return v.name == name }); at >= 0 {
			add(name, selftest.Fail, detail, w.Say("set a variable", name+": "+all[at].desc))
		} else {
			add(name, selftest.Fail, detail, w.Say("all variables"))
		}
	}
	add("everything else", selftest.Unknown, w.Say("not tried"), w.Say("not tried.fix"))
	return out
}

// findings are printed as they come: to people under headings, or all at once as JSON.
type findings struct {
	words  words.Words
	w      io.Writer
	paint  *paint
	asJSON bool
	quiet  bool     // only what is not fine
	only   []string // areas; nil: all
	area   string   // the last heading
	all    []selftest.Finding
}

func newFindings(out io.Writer, asJSON bool, w words.Words) *findings {
	return &findings{words: w, w: out, paint: newPaint(out), asJSON: asJSON, all: []selftest.Finding{}}
}

func (f *findings) add(found ...selftest.Finding) {
	for _, one := range found {
		if f.quiet && one.Status == selftest.OK ||
			f.only != nil && one.Area != "Configuration" && !slices.Contains(f.only, one.Area) {
			continue
		}
		f.all = append(f.all, one)
		if f.asJSON {
			continue
		}
		if one.Area != f.area {
			if f.area != "" {
				fmt.Fprintln(f.w)
			}
			fmt.Fprintln(f.w, f.paint.text(bold, f.words.Say("area/"+one.Area)))
			f.area = one.Area
		}
		f.show(one)
	}
}

// show prints a finding for people.
func (f *findings) show(one selftest.Finding) {
	mark := map[selftest.Status]string{selftest.OK: f.paint.text(green, "✓"), selftest.Warn: f.paint.text(yellow, "!"),
		selftest.Fail: f.paint.text(red, "✗"), selftest.Unknown: f.paint.text(dim, "?")}[one.Status]
	fmt.Fprintf(f.w, "%s %s: %s\n", mark, neutral(one.Name), neutral(one.Detail))
	if one.Mend != "" {
		fmt.Fprintf(f.w, "    %s\n", neutral(one.Mend))
	}
}

// end ends what was shown, and decides the exit status.
func (f *findings) end() error {
	names := map[selftest.Status][]string{}
	for _, one := range f.all {
		names[one.Status] = append(names[one.Status], one.Name)
	}
	fails, warns, unseen := len(names[selftest.Fail]), len(names[selftest.Warn]), names[selftest.Unknown]
	switch {
	case f.asJSON:
		data, err := json.MarshalIndent(f.all, "", "  ")
		if err != nil {
			return err
		}
		if _, err := f.w.Write(append(neutralJSON(data), '\n')); err != nil {
			return err
		}
	case f.quiet && fails == 0:
	case fails+warns+len(unseen) == 0:
		fmt.Fprintln(f.w, "\n"+f.words.Say("no problems"))
	default:
		text := f.words.Say("works", warns)
		if fails > 0 {
			text = f.words.Say("to fix", fails, warns)
		}
		if len(unseen) > 0 {
			text += f.words.Say("unseen", len(unseen), neutral(strings.Join(slices.Compact(unseen), ", ")))
		}
		fmt.Fprintln(f.w, "\n"+text)
	}
	if fails > 0 {
		return errFailed
	}
	return nil
}
