package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jessevdk/go-flags"

	"feishu-relay/feishu"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
)

const (
	// firstPort and portStep are of the addresses that are chosen: a local API is at firstPort and its gateway one
	// above, the next bot's portStep above that.
	firstPort, portStep = 8787, 10
	// maxBots is how many bots of a host find addresses.
	maxBots = 64
)

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// sharedSettings are the same for all bots of a group.
var sharedSettings = []string{"RELAY_BACKEND", "REDIS_URL", "RELAY_CHANNEL", "DATA_DIR", "RELAY_DIR", "TRANSCRIPT_DIR",
	"MAILBOX_DIR", "RELAY_SECRET", "GROUPS_FILE"}

type initCommand struct {
	language
	Framework string         `long:"framework" value-name:"NAME"`
	Agent     string         `long:"agent" value-name:"NAME"`
	App       string         `long:"app-id" value-name:"ID"`
	Base      string         `long:"base-url" value-name:"URL"`
	Others    string         `long:"others" value-name:"FILES"`
	Redis     string         `long:"redis" value-name:"URL"`
	Data      flags.Filename `long:"data-dir" value-name:"FOLDER"`
	Out       flags.Filename `long:"out" value-name:"FILE"`
	Force     bool           `long:"force"`

	words.Words
	ctx       context.Context
	out, err  io.Writer
	ask       *asker // nil: there is no terminal
	set       map[string]string
	framework framework
	taken     []string // addresses of other bots
	missing   []string // flags without which nothing is written
}

func (i *initCommand) run(p *cli, _ []string) error {
	i.Words, i.ctx, i.out, i.err, i.set = i.words(), p.ctx, p.stdout, p.stderr, map[string]string{}
	i.ask = newAsker(os.Stdin, p.stdout)
	i.Base = cmp.Or(i.Base, os.Getenv("FEISHU_BASE_URL"))
	if i.Redis == "" && i.Data == "" && i.Others == "" {
		i.Redis = os.Getenv("REDIS_URL")
	}
	for _, step := range []func() error{i.askFramework, i.askAgent, i.mayWrite, i.askOthers, i.chooseAddresses,
		i.askApp, i.askPlace, i.write, i.next} {
		if err := step(); errors.Is(err, io.EOF) { // Ctrl-D
			return errors.New(i.Say("init/ended"))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// path is the file that is written.
func (i *initCommand) path() string { return cmp.Or(string(i.Out), i.set["AGENT_NAME"]+".env") }

// question is one that init asks until the answer is taken.
type question struct {
	key, def string // the prompt is the text with the key
	flag     string // that has the answer as well
	secret   bool
	optional bool
	take     func(answer string) error // puts it into i.set
}

// answer takes the answer that was given, or asks for it.
func (i *initCommand) answer(given string, q question) error {
	for value := given; ; value = "" {
		if value == "" && i.ask != nil {
			line, err := i.ask.line(i.ctx, i.Say(q.key), q.def, q.secret)
			if err != nil {
				return err
			}
			value = line
		}
		if value == "" && !q.optional && i.ask == nil {
			i.missing = append(i.missing, q.flag)
			return nil
		}
		err := errors.New(i.Say("init/needed"))
		if value != "" || q.optional {
			err = q.take(value)
		}
		if err == nil {
			return nil
		}
		fmt.Fprintln(i.err, "✗ "+neutral(err.Error()))
		if i.ask == nil {
			return i.unwritten()
		}
	}
}

func (i *initCommand) unwritten() error {
	fmt.Fprintln(i.err, i.Say("init/nothing written"))
	return errFailed
}

func (i *initCommand) yes(question string) (bool, error) {
	answer, err := i.ask.line(i.ctx, question+" (y/N)", "", false)
	return slices.Contains([]string{"y", "yes", "是"}, strings.ToLower(answer)), err
}

// works has check try the answers, and prints what that finds. A sidecar of this bot that runs is not asked: it has
// other settings.
func (i *initCommand) works() bool {
	known := variableNames()
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(known, name)
	})
	for name, value := range i.set {
		environ = append(environ, name+"="+value)
	}
	areas := "Configuration,Files,Relay"
	if i.set["FEISHU_APP_ID"] != "" {
		areas += ",Feishu"
	}
	found, err := checkOf(i.ctx, append(environ, "LISTEN_ADDR=127.0.0.1:0"), areas, i.Words)
	if err != nil && i.ctx.Err() == nil {
		fmt.Fprintln(i.err, "✗ "+neutral(err.Error()))
	}
	failed, out := err != nil, newFindings(i.out, false, i.Words)
	for _, f := range found {
		if f.Status == selftest.Fail || f.Area != "Configuration" && f.Name != "groups file" { // the file comes later
			out.show(f)
			failed = failed || f.Status == selftest.Fail
		}
	}
	return !failed
}

func (i *initCommand) askFramework() error {
	if i.Framework == "" {
		fmt.Fprintln(i.out, i.Say("init/frameworks"))
		for at, f := range frameworks() {
			fmt.Fprintf(i.out, "  %2d  %-14s %s\n", at+1, f.Key, f.name(i.Words))
		}
	}
	return i.answer(i.Framework, question{key: "init/framework", flag: "--framework", take: func(answer string) error {
		known, keys := frameworkNamed(answer)
		if n, err := strconv.Atoi(answer); err == nil && 0 < n && n <= len(keys) {
			known = frameworks()[n-1]
		}
		if meant := nearestOf(answer, keys); known.Key == "" && meant != "" {
			return errors.New(i.Say("init/framework meant", answer, meant))
		} else if known.Key == "" {
			return errors.New(i.Say("init/no framework", answer, strings.Join(keys, ", ")))
		}
		i.framework = known
		maps.Copy(i.set, known.variables())
		return nil
	}})
}

func (i *initCommand) askAgent() error {
	first := map[bool]string{true: "agent_a"}[i.Others == ""] // beside others it is likely taken
	return i.answer(i.Agent, question{key: "init/agent", flag: "--agent", def: first, take: i.keep("AGENT_NAME")})
}

// askOthers takes the settings that are to be the same from other bots' env files.
func (i *initCommand) askOthers() error {
	return i.answer(i.Others, question{key: "init/others", optional: true, take: func(answer string) error {
		shared, taken := map[string]string{}, []string{}
		for _, path := range list(answer) {
			other, err := readEnvFile(path)
			if err != nil {
				return fmt.Errorf("--others: %w", err)
			}
			if other["AGENT_NAME"] == i.set["AGENT_NAME"] {
				return errors.New(i.Say("init/same name", path, i.set["AGENT_NAME"]))
			}
			for _, name := range sharedSettings {
				if had, has := shared[name]; has && other[name] != had {
					return errors.New(i.Say("init/others differ", path, name))
				}
				shared[name] = other[name]
			}
			i.set["FEISHU_BASE_URL"] = cmp.Or(i.set["FEISHU_BASE_URL"], other["FEISHU_BASE_URL"]) // one tenant
			taken = append(taken, addressesOf(other)...)
		}
		maps.DeleteFunc(shared, func(_, value string) bool { return value == "" })
		maps.Copy(i.set, shared)
		i.taken = taken
		return nil
	}})
}

// chooseAddresses takes those of the bot's file if there is one already, since the bot knows
// them; else the first that no other bot has and that are free.
func (i *initCommand) chooseAddresses() error {
	path := i.path()
	before, err := readEnvFile(path)
	gateway := i.framework.Join == byGateway
	if err == nil && before["AGENT_NAME"] == i.set["AGENT_NAME"] && before["LISTEN_ADDR"] != "" &&
		gateway == (before["GATEWAY_ADDR"] != "") {
		_ = i.keep("LISTEN_ADDR")(before["LISTEN_ADDR"])   // never fails
		_ = i.keep("GATEWAY_ADDR")(before["GATEWAY_ADDR"]) // never fails
		return nil
	}
	i.taken = append(i.taken, addressesBeside(path)...)
	free := func(addr string) bool {
		return !slices.ContainsFunc(i.taken, func(other string) bool { return samePort(other, addr) }) &&
			selftest.Bound(i.ctx, addr) == nil
	}
	for port := firstPort; port < firstPort+maxBots*portStep; port += portStep {
		if !free(localAddr(port)) || !free(localAddr(port+1)) {
			continue
		}
		i.set["LISTEN_ADDR"] = localAddr(port)
		if gateway {
			i.set["GATEWAY_ADDR"] = localAddr(port + 1)
		}
		return nil
	}
	return errors.New(i.Say("init/no port", firstPort))
}

// maxBeside is how many env files of a folder are looked at for their addresses.
const maxBeside = 1000

// addressesBeside are those of the other bots' env files in the folder of path: their sidecars may not run yet.
func addressesBeside(path string) (taken []string) {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.env")) // fails only for a bad pattern
	for _, file := range files[:min(len(files), maxBeside)] {
		other, err := readEnvFile(file)
		if err != nil || other["AGENT_NAME"] == "" || filepath.Clean(file) == filepath.Clean(path) {
			continue // it is not of a bot
		}
		taken = append(taken, addressesOf(other)...)
	}
	return taken
}

// addressesOf are those that a sidecar of these settings listens at.
func addressesOf(set map[string]string) []string {
	return []string{cmp.Or(set["LISTEN_ADDR"], docsListen), set["GATEWAY_ADDR"], set["WEBHOOK_ADDR"]}
}

func samePort(a, b string) bool {
	_, first, err := net.SplitHostPort(a)
	_, second, err2 := net.SplitHostPort(b)
	return err == nil && err2 == nil && first == second
}

func (i *initCommand) askApp() error {
	id, secret, optional := i.App, os.Getenv("FEISHU_APP_SECRET"), i.framework.Join != byConnector
	if i.framework.Join == byAPI && id == "" {
		if secret != "" || i.Base != "" {
			fmt.Fprintln(i.out, "! "+i.Say("init/no app"))
		}
		delete(i.set, "FEISHU_BASE_URL")
		return nil
	}
	base := cmp.Or(i.Base, i.set["FEISHU_BASE_URL"])
	if i.ask != nil || base != "" {
		err := i.answer(base, question{key: "init/feishu", def: "https://open.feishu.cn", take: i.keep("FEISHU_BASE_URL")})
		if err != nil {
			return err
		}
	}
	key := map[bool]string{true: "init/app or none", false: "init/app"}[optional]
	err := i.answer(id, question{key: key, flag: "--app-id", optional: optional, take: i.keep("FEISHU_APP_ID")})
	if err != nil || optional && i.set["FEISHU_APP_ID"] == "" {
		return err
	}
	return i.answer(secret, question{key: "init/secret", flag: "FEISHU_APP_SECRET", secret: true, optional: optional,
		take: i.keep("FEISHU_APP_SECRET")})
}

// keep returns a function that sets the variable, or removes it where the answer is empty.
func (i *initCommand) keep(name string) func(answer string) error {
	return func(answer string) error {
		if i.set[name] = answer; answer == "" {
			delete(i.set, name)
		}
		return nil
	}
}

// askPlace asks where the bots meet, unless the other bots' files say so.
func (i *initCommand) askPlace() error {
	if i.set["REDIS_URL"] != "" || i.set["DATA_DIR"] != "" {
		return nil
	}
	if i.Data == "" {
		err := i.answer(i.Redis, question{key: "init/redis", optional: true, take: i.keep("REDIS_URL")})
		if err != nil || i.set["REDIS_URL"] != "" {
			return err
		}
		fmt.Fprintln(i.out, i.Say("init/default folder"))
	}
	keep := func(answer string) error {
		path, err := fullPath(answer) // whole, so that another user's sidecar finds the same
		i.set["DATA_DIR"] = path
		return err
	}
	return i.answer(string(i.Data), question{key: "init/folder", flag: "--data-dir / --redis / --others",
		def: defaultFolder, take: keep})
}

// defaultFolder is that of DATA_DIR.
const defaultFolder = "~/.nanobot"

// plainValue needs no quotes in an env file, for whoever reads it.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_./:@,+%=?&-]*$`)

// mayWrite returns an error if there is a file that is not to be overwritten.
func (i *initCommand) mayWrite() error {
	path := i.path()
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || i.Force || i.set["AGENT_NAME"] == "" {
		return nil
	}
	if i.ask == nil {
		return errors.New(i.Say("init/exists", path))
	}
	over, err := i.yes(i.Say("init/overwrite", path))
	if err == nil && !over {
		err = errors.New(i.Say("init/not overwritten"))
	}
	return err
}

// write writes the env file.
func (i *initCommand) write() error {
	if len(i.missing) > 0 {
		fmt.Fprintln(i.err, i.Say("init/missing", strings.Join(i.missing, ", ")))
		return errUsage
	}
	if !i.works() && !i.Force {
		anyway := false
		if i.ask != nil {
			var err error
			if anyway, err = i.yes(i.Say("init/keep")); err != nil {
				return err
			}
		}
		if !anyway {
			return i.unwritten()
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, i.Say("init/comment", i.set["AGENT_NAME"], i.framework.name(i.Words)))
	for _, name := range variableNames() {
		value, has := i.set[name]
		switch {
		case !has:
			continue
		case strings.ContainsAny(value, "'\n\r"):
			return fmt.Errorf("%s: a value with a quote or a line end cannot be in an env file", name)
		case !plainValue.MatchString(value):
			value = "'" + value + "'"
		}
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	root, err := os.OpenRoot(filepath.Dir(i.path()))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, filepath.Base(i.path()), []byte(b.String()))
}

// anyGroup is a group in the settings of [frameworks], which init replaces where it can.
const anyGroup = `"oc_…": {}`

// groups lists the groups that the bot is in as anyGroup does, or returns anyGroup where Feishu names none.
func (i *initCommand) groups() string {
	base, err := baseURL(cmp.Or(i.set["FEISHU_BASE_URL"], "https://open.feishu.cn"))
	if err != nil || !strings.Contains(i.framework.Settings, anyGroup) {
		return anyGroup
	}
	within, end := context.WithTimeout(i.ctx, apiWithin)
	defer end()
	in, _ := selftest.Groups(within, feishu.NewAPI(base.String(), i.set["FEISHU_APP_ID"], i.set["FEISHU_APP_SECRET"]))
	if len(in) == 0 || len(in) > 20 {
		return anyGroup
	}
	var list []string
	for _, g := range in {
		list = append(list, fmt.Sprintf("%q: {}", g.ID))
	}
	return strings.Join(list, ", ")
}

// next prints what to do now.
func (i *initCommand) next() error {
	var b strings.Builder
	n := 0
	step := func(code, key string, args ...any) {
		n++
		fmt.Fprintf(&b, "\n%d. %s\n\n", n, i.Say(key, args...))
		for line := range strings.Lines(code) {
			b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	program, file, f, listen := os.Args[0], shellWord(i.path()), i.framework, i.set["LISTEN_ADDR"]
	data, _ := fullPath(cmp.Or(i.set["DATA_DIR"], defaultFolder)) // as it is where there is no home folder
	fmt.Fprintf(&b, "\n%s\n", i.Say("init/wrote", i.path()))
	step(program+" --env-file "+file, "init/start")
	switch f.Trust {
	case "node":
		step("NODE_EXTRA_CA_CERTS="+data+"/ca.pem NO_PROXY=127.0.0.1,localhost", "init/trust node")
	case "python":
		step("cat /etc/ssl/certs/ca-certificates.crt "+data+"/ca.pem > "+data+"/bundle.pem", "init/trust python")
	}
	step(strings.Replace(f.lines(listen, i.set["GATEWAY_ADDR"], data), anyGroup, i.groups(), 1), "init/settings",
		f.name(i.Words), i.Say(f.File))
	if f.Note != "" {
		fmt.Fprintf(&b, "\n    %s\n", i.Say(f.Note))
	}
	step(program+" check --env-file "+file, "init/check")
	fmt.Fprintf(&b, "\n%s\n", i.Say("init/viewer", listen, f.anchor(i.Words)))
	if i.set["REDIS_URL"] == "" {
		fmt.Fprintln(&b, i.Say("init/same folder", program, file))
	}
	_, err := io.WriteString(i.out, b.String())
	return err
}

// shellWord is text as one word of a shell, without quotes where it needs none.
func shellWord(text string) string {
	if plainValue.MatchString(text) && !strings.ContainsAny(text, "?&") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
