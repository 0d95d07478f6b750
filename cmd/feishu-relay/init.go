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

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
)

const initHelp = `Sets up the sidecar of one bot: asks for what no flag gives, tries each answer at once as
check does, writes an env file that only you can read, and prints what to do next in the
bot's framework. Without a terminal nothing is asked.

The app's secret comes from the variable FEISHU_APP_SECRET, or is asked for; REDIS_URL and
FEISHU_BASE_URL may come from the environment as well. Example:

  feishu-relay init --framework openclaw --agent agent_a --app-id cli_0123456789abcdef
  feishu-relay init --framework own --agent agent_b --others agent_a.env`

// sharedSettings are the same for all bots of a group.
var sharedSettings = []string{"RELAY_BACKEND", "REDIS_URL", "RELAY_CHANNEL", "DATA_DIR", "RELAY_DIR", "TRANSCRIPT_DIR",
	"MAILBOX_DIR", "RELAY_SECRET", "GROUPS_FILE"}

// initCall is one use of the command.
type initCall struct {
	out, err  io.Writer
	ask       *asker // nil: there is no terminal
	zh        bool
	environ   []string // without settings of ours
	set       map[string]string
	framework framework
	taken     []string // addresses of other bots
	force     bool
}

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
}

func (c *initCommand) run(p *cli, _ []string) error {
	ctx, stdout, stderr := p.ctx, p.stdout, p.stderr
	i := &initCall{out: stdout, err: stderr, set: map[string]string{}, ask: newAsker(os.Stdin, stdout),
		zh: inChinese(c.Lang), force: c.Force}
	key, agent, app, others := &c.Framework, &c.Agent, &c.App, &c.Others
	data, out := new(string(c.Data)), new(string(c.Out))
	secret, base, redis := os.Getenv("FEISHU_APP_SECRET"), &c.Base, &c.Redis
	*base = cmp.Or(*base, os.Getenv("FEISHU_BASE_URL"))
	if *redis == "" && *data == "" && *others == "" {
		*redis = os.Getenv("REDIS_URL")
	}
	if i.ask == nil {
		if missing := missingFlags(*key, *agent, *app, secret, *redis+*data+*others); missing != "" {
			fmt.Fprintln(stderr, i.t("there is no terminal to ask at; missing: ", "没有终端可以提问；缺少：")+missing)
			return errUsage
		}
		if err := i.mayWrite(ctx, cmp.Or(*out, *agent+".env")); err != nil {
			return err
		}
	}
	i.environ = withoutOurs(os.Environ())
	for _, step := range []func() error{
		func() error { return i.askFramework(ctx, *key) },
		func() error { return i.askAgent(ctx, *agent) },
		func() error { return i.askOthers(ctx, *others) },
		func() error { return i.chooseAddresses(ctx, cmp.Or(*out, i.set["AGENT_NAME"]+".env")) },
		func() error { return i.askApp(ctx, *app, secret, *base) },
		func() error { return i.askPlace(ctx, *redis, *data) },
	} {
		if err := step(); err != nil {
			if errors.Is(err, errEnded) {
				return errors.New(i.t(errEnded.Error(), "输入已结束；没有写入任何文件"))
			}
			return err
		}
	}
	path, err := i.write(ctx, cmp.Or(*out, i.set["AGENT_NAME"]+".env"))
	if err != nil {
		return err
	}
	return i.next(ctx, path)
}

// t is the text in the person's language.
func (i *initCall) t(en, zh string) string {
	if i.zh {
		return zh
	}
	return en
}

func missingFlags(key, agent, app, secret, place string) string {
	var missing []string
	need := func(is bool, what string) {
		if is {
			missing = append(missing, what)
		}
	}
	known, _ := frameworkNamed(key)
	need(key == "", "--framework")
	need(agent == "", "--agent")
	need(app == "" && known.join == byConnector, "--app-id")
	need(secret == "" && known.join == byConnector, "FEISHU_APP_SECRET")
	need(place == "", "--data-dir / --redis / --others")
	return strings.Join(missing, ", ")
}

// withoutOurs is the environment without the settings of a sidecar.
func withoutOurs(environ []string) []string {
	known := variableNames()
	return slices.DeleteFunc(environ, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(known, name)
	})
}

// question is one that init asks until the answer works.
type question struct {
	prompt, def string
	secret      bool
	optional    bool
	take        func(answer string) error // puts it into i.set
	settings    []string                  // that it sets
	areas       []string                  // of the tests that try it; nil: none
}

// answer takes the answer that was given, or asks for it, until it works.
func (i *initCall) answer(ctx context.Context, given string, q question) error {
	for {
		value := given
		if value == "" && i.ask != nil {
			var err error
			if value, err = i.ask.line(ctx, q.prompt, q.def, q.secret); err != nil {
				return err
			}
		}
		value, given = cmp.Or(value, q.def), ""
		if value == "" && !q.optional {
			fmt.Fprintln(i.err, "✗ "+i.t("an answer is needed", "必须填写"))
			continue
		}
		err := q.take(value)
		if err == nil && value == "" {
			return nil
		}
		if err == nil {
			if settled, err := i.settled(ctx, q.settings, q.areas); settled || err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(i.err, "✗ "+neutral(err.Error()))
		if i.ask == nil {
			return i.unwritten()
		}
	}
}

func (i *initCall) unwritten() error {
	fmt.Fprintln(i.err, i.t("nothing was written", "没有写入任何文件"))
	return errFailed
}

// settled reports whether settings work, or are to be kept although they do not. false is
// returned at a terminal only.
func (i *initCall) settled(ctx context.Context, names []string, areas []string) (bool, error) {
	switch works := i.works(ctx, names, areas); {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case works, i.force:
		return true, nil
	case i.ask == nil:
		return false, i.unwritten()
	}
	return i.yes(ctx, i.t("Keep this answer anyway?", "仍然使用这个答案？"))
}

func (i *initCall) yes(ctx context.Context, question string) (bool, error) {
	answer, err := i.ask.line(ctx, question+" (y/N)", "", false)
	return slices.Contains([]string{"y", "yes", "是"}, strings.ToLower(answer)), err
}

// works checks settings, and tries them with the tests of check. It prints what it finds.
func (i *initCall) works(ctx context.Context, names, areas []string) bool {
	set, w := maps.Clone(i.set), words.Words{Chinese: i.zh}
	set["AGENT_NAME"] = cmp.Or(set["AGENT_NAME"], "agent")
	cfg, err := i.load(set)
	if err != nil {
		concerned := slices.DeleteFunc(mistakes(w, err), func(f selftest.Finding) bool {
			return !slices.Contains(names, f.Name)
		})
		if len(concerned) > 0 {
			newFindings(i.out, false, w).list(concerned)
			return false
		}
	}
	if areas == nil {
		return true
	}
	failed := false
	selftest.Run(ctx, selftest.Options{Config: cfg.Config, Version: versionText(), Words: w, Only: areas},
		func(found ...selftest.Finding) {
			found = slices.DeleteFunc(found, func(f selftest.Finding) bool {
				return f.Name == "groups file" || f.Name == "group managers" // are about what comes later
			})
			if ctx.Err() == nil {
				failed = newFindings(i.out, false, w).list(found) || failed
			}
		})
	return ctx.Err() == nil && !failed
}

// list shows findings without a heading. It returns whether something fails.
func (f *findings) list(found []selftest.Finding) (failed bool) {
	for _, one := range found {
		f.show(one)
		failed = failed || one.Status == selftest.Fail
	}
	return failed
}

// load reads the configuration that the settings make.
func (i *initCall) load(set map[string]string) (config, error) {
	before := os.Environ()
	defer setEnvironment(before)
	environ := slices.Clone(i.environ)
	for name, value := range set {
		environ = append(environ, name+"="+value)
	}
	setEnvironment(environ)
	return loadConfig()
}

func (i *initCall) askFramework(ctx context.Context, given string) error {
	if given == "" {
		fmt.Fprintln(i.out, i.t("What is the bot made with?", "机器人用什么框架？"))
		for at, f := range frameworks {
			fmt.Fprintf(i.out, "  %2d  %-14s %s\n", at+1, f.key, i.t(f.name.en, f.name.zh))
		}
	}
	return i.answer(ctx, given, question{prompt: i.t("Framework", "框架"), take: func(answer string) error {
		known, ok := frameworkNamed(answer)
		if n, err := strconv.Atoi(answer); err == nil && 0 < n && n <= len(frameworks) {
			known, ok = frameworks[n-1], true
		}
		if !ok {
			hint := didYouMean(answer, frameworkKeys())
			if i.zh {
				hint = strings.NewReplacer("; did you mean ", "；是不是 ", "?", "？").Replace(hint)
			}
			return fmt.Errorf("--framework: %q%s", answer, cmp.Or(hint,
				i.t("; want one of ", "；可选：")+strings.Join(frameworkKeys(), ", ")))
		}
		i.framework = known
		maps.Copy(i.set, known.variables())
		return nil
	}})
}

func (i *initCall) askAgent(ctx context.Context, given string) error {
	return i.answer(ctx, given, question{prompt: i.t("Name of this bot on the relay (AGENT_NAME)",
		"机器人在中继上的名字（AGENT_NAME）"),
		def: "agent_a", settings: []string{"AGENT_NAME"}, take: i.keep("AGENT_NAME")})
}

// askOthers takes the settings that are to be the same from other bots' env files.
func (i *initCall) askOthers(ctx context.Context, given string) error {
	return i.answer(ctx, given, question{optional: true, prompt: i.t(
		"Env files of other bots on this host, with commas between (empty: none)",
		"本机其他机器人的 env 文件，逗号分隔（留空：没有）"), take: func(answer string) error {
		shared, taken := map[string]string{}, []string{}
		for _, path := range list(answer) {
			other, err := readEnvFile(path)
			if err != nil {
				return fmt.Errorf("--others: %w", err)
			}
			if other["AGENT_NAME"] == i.set["AGENT_NAME"] {
				return fmt.Errorf(i.t("--others: %s is of %s, too; each bot needs a name of its own",
					"--others：%s 也属于 %s；每个机器人要有自己的名字"), path, i.set["AGENT_NAME"])
			}
			for _, name := range sharedSettings {
				if had, has := shared[name]; has && other[name] != had {
					return fmt.Errorf(i.t("--others: %s has another %s than the file before it; make them the same",
						"--others：%s 的 %s 与前一个文件不同；请改成相同的值"), path, name)
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
func (i *initCall) chooseAddresses(ctx context.Context, path string) error {
	before, err := readEnvFile(path)
	gateway := i.framework.join == byGateway
	if err == nil && before["AGENT_NAME"] == i.set["AGENT_NAME"] && before["LISTEN_ADDR"] != "" &&
		gateway == (before["GATEWAY_ADDR"] != "") {
		_ = i.keep("LISTEN_ADDR")(before["LISTEN_ADDR"])   // never fails
		_ = i.keep("GATEWAY_ADDR")(before["GATEWAY_ADDR"]) // never fails
		return nil
	}
	i.taken = append(i.taken, addressesBeside(path)...)
	for n := range maxBots {
		at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
		listen, above := at(firstPort+n*portStep), at(firstPort+n*portStep+1)
		free := func(addr string) bool {
			return !slices.ContainsFunc(i.taken, func(other string) bool { return samePort(other, addr) }) &&
				selftest.Bound(ctx, addr) == nil
		}
		if !free(listen) || !free(above) {
			continue
		}
		i.set["LISTEN_ADDR"] = listen
		if gateway {
			i.set["GATEWAY_ADDR"] = above
		}
		return nil
	}
	return fmt.Errorf(i.t("no free port from %d on; end the programs that use them",
		"从 %d 起没有空闲端口；请结束占用它们的程序"), firstPort)
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

func (i *initCall) askApp(ctx context.Context, id, secret, base string) error {
	if i.framework.join == byAPI && id == "" {
		if secret != "" || base != "" {
			fmt.Fprintln(i.out, "! "+i.t("Feishu's address and the app's secret are left out: they need --app-id",
				"没有写入飞书地址和应用密钥：它们需要 --app-id"))
		}
		delete(i.set, "FEISHU_BASE_URL")
		return nil
	}
	needed := i.framework.join == byConnector
	base = cmp.Or(base, i.set["FEISHU_BASE_URL"])
	if i.ask != nil || base != "" {
		err := i.answer(ctx, base, question{prompt: i.t("Feishu's address (Lark: https://open.larksuite.com)",
			"飞书地址（Lark：https://open.larksuite.com）"), def: "https://open.feishu.cn",
			settings: []string{"FEISHU_BASE_URL"}, take: i.keep("FEISHU_BASE_URL")})
		if err != nil {
			return err
		}
	}
	prompt := i.t("App ID, cli_… (empty: learned from the bot's first connection)", "App ID，cli_…（留空：从机器人的第一次连接得知）")
	if needed {
		prompt = "App ID, cli_…"
	}
	for {
		err := i.answer(ctx, id, question{prompt: prompt, optional: !needed, settings: []string{"FEISHU_APP_ID"},
			take: i.keep("FEISHU_APP_ID")})
		if err != nil || i.set["FEISHU_APP_ID"] == "" {
			return err
		}
		err = i.answer(ctx, secret, question{prompt: i.t("App Secret (not shown)", "App Secret（不显示）"), secret: true,
			optional: !needed, take: i.keep("FEISHU_APP_SECRET")})
		if err != nil {
			return err
		}
		if settled, err := i.settled(ctx, []string{"FEISHU_APP_SECRET"}, []string{"Feishu"}); settled || err != nil {
			return err
		}
		id, secret = "", "" // either may be wrong
		delete(i.set, "FEISHU_APP_ID")
		delete(i.set, "FEISHU_APP_SECRET")
	}
}

// keep returns a function that sets the variable, or removes it where the answer is empty.
func (i *initCall) keep(name string) func(answer string) error {
	return func(answer string) error {
		if i.set[name] = answer; answer == "" {
			delete(i.set, name)
		}
		return nil
	}
}

// askPlace asks where the bots meet, unless the other bots' files say so.
func (i *initCall) askPlace(ctx context.Context, redis, data string) error {
	areas := []string{"Files", "Relay"}
	if i.set["REDIS_URL"] != "" || i.set["DATA_DIR"] != "" {
		return i.answer(ctx, "-", question{areas: areas, settings: sharedSettings, take: func(string) error { return nil }})
	}
	if data == "" {
		err := i.answer(ctx, redis, question{optional: true,
			areas: []string{"Relay"},
			prompt: i.t("Redis in which the bots meet, redis://… (empty: files of this host)",
				"机器人共用的 Redis，redis://…（留空：用本机文件）"),
			settings: []string{"REDIS_URL"}, take: i.keep("REDIS_URL")})
		if err != nil || i.set["REDIS_URL"] != "" {
			return err
		}
		fmt.Fprintln(i.out, i.t(defaultFolder.en, defaultFolder.zh))
	}
	return i.answer(ctx, data, question{prompt: i.t("Folder in which the bots meet (DATA_DIR)",
		"机器人共用的文件夹（DATA_DIR）"), def: "~/.nanobot",
		areas: areas, settings: []string{"DATA_DIR"}, take: func(answer string) error {
			path, err := fullPath(answer) // whole, so that another user's sidecar finds the same
			i.set["DATA_DIR"] = path
			return err
		}})
}

// defaultFolder says why the folder is what it is.
var defaultFolder = text{
	"The default folder is ~/.nanobot, since nanobot shares it: its bots and the sidecars of one user " +
		"meet there without a setting.",
	"默认文件夹是 ~/.nanobot，因为 nanobot 也用它：同一用户的 nanobot 和各边车不用设置就在那里相遇。"}

// plainValue needs no quotes in an env file, for whoever reads it.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_./:@,+%=?&-]*$`)

// mayWrite returns an error if there is a file that is not to be overwritten.
func (i *initCall) mayWrite(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || i.force {
		return nil
	}
	if i.ask == nil {
		return errors.New(path + i.t(" is there already; give --out another file, or --force",
			" 已存在；用 --out 指定别的文件，或加 --force"))
	}
	over, err := i.yes(ctx, fmt.Sprintf(i.t("%s is there already. Overwrite it?", "%s 已存在。覆盖吗？"), path))
	if err == nil && !over {
		err = errors.New(i.t("nothing was written; --out names another file", "没有写入任何文件；可用 --out 指定别的文件"))
	}
	return err
}

// write writes the env file, after a question if it is there already.
func (i *initCall) write(ctx context.Context, path string) (string, error) {
	if _, err := i.load(i.set); err != nil && !i.force {
		newFindings(i.out, false, words.Words{Chinese: i.zh}).list(mistakes(words.Words{Chinese: i.zh}, err))
		return "", errFailed
	}
	if err := i.mayWrite(ctx, path); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, i.t("# %s: %s. Written by feishu-relay init.\n", "# %s：%s。由 feishu-relay init 写入。\n"),
		i.set["AGENT_NAME"], i.t(i.framework.name.en, i.framework.name.zh))
	for _, v := range variables() {
		value, has := i.set[v.name]
		switch {
		case !has:
			continue
		case strings.ContainsAny(value, "'\n\r"):
			return "", fmt.Errorf("%s: a value with a quote or a line end cannot be in an env file", v.name)
		case !plainValue.MatchString(value):
			value = "'" + value + "'"
		}
		fmt.Fprintf(&b, "%s=%s\n", v.name, value)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	defer root.Close()
	return path, safefile.Replace(root, filepath.Base(path), []byte(b.String()))
}

// anyGroup is a group in the settings of [frameworks], which init replaces where it can.
const anyGroup = `"oc_…": {}`

// groups lists the groups that the bot is in as anyGroup does, or returns anyGroup where Feishu names none.
func (i *initCall) groups(ctx context.Context, cfg *config) string {
	if !strings.Contains(i.framework.settings, anyGroup) {
		return ""
	}
	within, end := context.WithTimeout(ctx, apiWithin)
	defer end()
	in := selftest.Groups(within, &cfg.Config)
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
func (i *initCall) next(ctx context.Context, path string) error {
	cfg, _ := i.load(i.set)
	var b strings.Builder
	step := func(en, zh string) { fmt.Fprintf(&b, "\n%s\n\n", i.t(en, zh)) }
	code := func(text string) {
		for line := range strings.Lines(text) {
			b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	fmt.Fprintf(&b, i.t("\nWrote %s; only you can read it.\n", "\n已写入 %s，只有你能读。\n"), path)
	step("1. Start the sidecar:", "1. 启动边车：")
	program, file := os.Args[0], shellWord(path)
	code(program + " --env-file " + file)
	f := i.framework
	switch f.trust {
	case trustNode:
		step("2. Set in the bot's environment, so that it trusts the gateway:", "2. 在机器人的环境里设置，让它信任网关：")
		code("NODE_EXTRA_CA_CERTS=" + cfg.DataDir + "/ca.pem NO_PROXY=127.0.0.1,localhost")
	case trustPython:
		step("2. Make the certificates that the bot trusts:", "2. 生成机器人信任的证书：")
		code("cat /etc/ssl/certs/ca-certificates.crt " + cfg.DataDir + "/ca.pem > " + cfg.DataDir + "/bundle.pem")
	}
	n := 2
	if f.trust != noTLS {
		n = 3
	}
	step(fmt.Sprintf("%d. %s — %s:", n, f.name.en, f.file.en), fmt.Sprintf("%d. %s——%s：", n, f.name.zh, f.file.zh))
	code(strings.Replace(f.lines(cfg.ListenAddr, cfg.Gateway.Addr, cfg.DataDir), anyGroup, i.groups(ctx, &cfg), 1))
	if f.note.en != "" {
		fmt.Fprintf(&b, "\n    %s\n", i.t(f.note.en, f.note.zh))
	}
	step(fmt.Sprintf("%d. See whether all works:", n+1), fmt.Sprintf("%d. 检查是否一切正常：", n+1))
	code(program + " check --env-file " + file)
	fmt.Fprintf(&b, i.t("\nThe viewer is at http://%s/. More: docs/frameworks.md#%s\n",
		"\n查看页：http://%s/。更多：docs/frameworks.zh.md#%s\n"),
		cfg.ListenAddr, i.t(f.heading.en, f.heading.zh))
	if cfg.Backend == "file" {
		fmt.Fprintf(&b, i.t("The other bots of the group need the same DATA_DIR: %s init --others %s\n",
			"群里的其他机器人要用同一个 DATA_DIR：%s init --others %s\n"), program, file)
	}
	if wins := i.winning(); len(wins) > 0 {
		fmt.Fprintf(&b, i.t("! The environment has %s, which wins over the file: unset it.\n",
			"! 环境变量 %s 会覆盖文件里的值：请先 unset。\n"), strings.Join(wins, ", "))
	}
	_, err := io.WriteString(i.out, b.String())
	return err
}

// winning are the settings that the environment has, with other values than the file.
func (i *initCall) winning() (names []string) {
	for _, v := range variables() {
		if value, has := os.LookupEnv(v.name); has && value != i.set[v.name] {
			names = append(names, v.name)
		}
	}
	return names
}

// shellWord is text as one word of a shell, without quotes where it needs none.
func shellWord(text string) string {
	if plainValue.MatchString(text) && !strings.ContainsAny(text, "?&") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
