// Command feishu-relay is a sidecar that joins one bot to the others of its Feishu groups. `feishu-relay --help` lists
// the commands; the environment configures it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/jessevdk/go-flags"

	"feishu-relay/internal/spelling"
	"feishu-relay/internal/words"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Errors that decide the exit status.
var (
	errUsage  = errors.New("usage")            // already explained
	errFailed = errors.New("see output above") // already explained
)

// cli is one use of the program. Its tagged fields are the flags of all commands.
type cli struct {
	EnvFile flags.Filename `long:"env-file" value-name:"FILE"`
	Version bool           `short:"v" long:"version"`

	ctx            context.Context
	stdout, stderr io.Writer
	parser         *flags.Parser
	commands       map[*flags.Command]command
	notices        []notice // about the env file
}

// command is what a command is given once its flags are set. args are the arguments that no field of it takes.
type command interface {
	run(p *cli, args []string) error
}

// takesArgs is implemented by commands that take args.
type takesArgs interface{ takesArgs() }

// language is the flag of commands that speak English or Chinese.
type language struct {
	Lang string `long:"lang" choice:"en" choice:"zh"`
}

var languages = map[bool]string{false: "en", true: "zh"} // by whether it is Chinese

// words are those of --lang, else of the locale.
func (l language) words() words.Words {
	return words.In(cmp.Or(l.Lang, os.Getenv("LC_ALL"), os.Getenv("LC_MESSAGES"), os.Getenv("LANG")))
}

// reach is the flag of commands that ask a running sidecar.
type reach struct {
	Addr string `long:"addr" value-name:"HOST:PORT"`
}

func newCLI(ctx context.Context, stdout, stderr io.Writer) *cli {
	p := &cli{ctx: ctx, stdout: stdout, stderr: stderr, commands: map[*flags.Command]command{},
		parser: flags.NewNamedParser("feishu-relay", flags.HelpFlag|flags.PassDoubleDash)}
	p.parser.SubcommandsOptional = true
	p.parser.LongDescription = topHelp
	describe(must(p.parser.AddGroup("Flags of all commands", "", p)), "")
	p.addCommands()
	return p
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name, err := newCLI(ctx, stdout, stderr).do(args)
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return 0 // the reader, such as head, may have seen enough
	case errors.Is(err, errUsage):
		return 2
	case errors.Is(err, errFailed):
		return 1
	}
	fmt.Fprintf(stderr, "feishu-relay %s: %v\n", name, err)
	return 1
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err) // a mistake in the tags
	}
	return made
}

// do parses the command line and runs the command.
func (p *cli) do(args []string) (name string, err error) {
	rest, err := p.parser.ParseArgs(args)
	c := p.parser.Command
	for c.Active != nil {
		c = c.Active
	}
	does, name := p.commands[c], "run"
	if p.parser.Active != nil {
		name = p.parser.Active.Name
	}
	mistake, _ := errors.AsType[*flags.Error](err)
	switch {
	case mistake != nil && mistake.Type == flags.ErrHelp:
		return name, p.help(c, does)
	case err != nil:
		fmt.Fprintf(p.stderr, "%v\n`%s --help` tells more\n", err, pathOf(p.parser))
		return name, errUsage
	case p.Version:
		does = &versionCommand{}
	case does == nil:
		if len(rest) > 0 {
			hint := didYouMean(rest[0], commandNames(p.parser.Command))
			fmt.Fprintf(p.stderr, "there is no command %s%s\n`feishu-relay --help` lists them\n", neutral(rest[0]), hint)
			return name, errUsage
		}
		does = &runCommand{}
	}
	if _, takes := does.(takesArgs); !takes && len(rest) > 0 {
		return name, p.misused("unexpected argument %q", rest[0])
	}
	if p.EnvFile != "" {
		if p.notices, err = loadEnvFile(string(p.EnvFile)); err != nil {
			return name, fmt.Errorf("--env-file: %w", err)
		}
	}
	if _, shown := does.(interface{ showsNotices() }); !shown {
		for _, n := range p.notices {
			f := n.in(words.Words{})
			fmt.Fprintf(p.stderr, "feishu-relay: warning: %s: %s\n", neutral(f.Detail), neutral(f.Mend))
		}
	}
	return name, does.run(p, rest)
}

// pathOf is the command that was named, with those that it is a part of.
func pathOf(parser *flags.Parser) string {
	var path strings.Builder
	path.WriteString(parser.Name)
	for c := parser.Active; c != nil; c = c.Active {
		path.WriteString(" " + c.Name)
	}
	return path.String()
}

// misused says what is wrong with the command line.
func (p *cli) misused(format string, args ...any) error {
	fmt.Fprintf(p.stderr, "feishu-relay: "+format+"\n", args...)
	return errUsage
}

// help prints the help of a command: how it is used, its text, its flags.
func (p *cli) help(c *flags.Command, does command) error {
	text := c.LongDescription
	c.LongDescription = ""
	var b bytes.Buffer
	p.parser.WriteHelp(&b)
	usage, rest, _ := strings.Cut(b.String(), "\n\n")
	fmt.Fprintln(p.stdout, usage)
	if text != "" {
		fmt.Fprintf(p.stdout, "\n%s\n", text)
	}
	if rest != "" {
		fmt.Fprintf(p.stdout, "\n%s", rest)
	}
	if more, ok := does.(interface{ moreHelp(w io.Writer) }); ok {
		more.moreHelp(p.stdout)
	}
	return nil
}

const topHelp = `feishu-relay joins self-hosted bots in one Feishu group: one sidecar beside each bot.

"feishu-relay COMMAND --help" tells more. The sidecar is configured by the environment: AGENT_NAME is
required, everything else has a default; "feishu-relay run --help" lists it all. --env-file FILE reads
settings from a file, as in: feishu-relay check --env-file bot.env`

// add adds a command; text is its help.
func (p *cli) add(to *flags.Command, name, summary, text string, does command) *flags.Command {
	c := must(to.AddCommand(name, summary, text, does))
	p.commands[c] = does
	describe(c.Group, cmp.Or(strings.TrimPrefix(to.Name, "feishu-relay"), name))
	return c
}

// describe takes the descriptions of flags from the catalogue: those of a command, or of all.
func describe(of *flags.Group, command string) {
	for _, o := range of.Options() {
		name := cmp.Or(o.LongName, string(o.ShortName))
		o.Description = words.Words{}.Say("flag/" + name)
		if own := "flag/" + command + "/" + name; words.Has(own) {
			o.Description = words.Words{}.Say(own)
		}
	}
}

func (p *cli) addCommands() {
	top := p.parser.Command
	p.add(top, "run", "run the sidecar (the default)", runHelp, &runCommand{})
	p.add(top, "init", "set up the sidecar of a bot: asks, tries the answers, writes an env file", initHelp,
		&initCommand{})
	p.add(top, "up", "run the sidecars of several bots of this host", upHelp, &upCommand{})
	p.add(top, "demo", "play three acts of bots that work together, with nothing configured", demoHelp, &demoCommand{})
	p.add(top, "sim", "a Feishu stand-in to try bots against, without a tenant", simHelp, &simCommand{})
	p.add(top, "check", "try everything that is configured, and say what is missing", checkHelp, &checkCommand{})
	p.add(top, "status", "one screen: who is online, groups, depth, what waits, the last stop and error", statusHelp,
		&statusCommand{})
	p.add(top, "why", "what became of a message at each bot, and what to do", whyHelp, &whyCommand{})
	p.add(top, "group", "show and change how the bots of a group behave", groupHelp, &groupCommand{})
	p.addTranscript(p.add(top, "transcript", "list, show or follow the groups' transcripts", transcriptHelp, &parts{}))
	p.addMailbox(p.add(top, "mailbox", "see other agents, send them messages and tasks, read the inbox", mailboxHelp,
		&parts{}))
	p.add(top, "mcp", "the peer tools over MCP, on standard input and output", mcpHelp, &mcpCommand{})
	p.add(top, "health", "ask a running sidecar whether it is alive", healthHelp, &healthCommand{})
	p.add(top, "completion", "print a script that completes commands in bash, zsh or fish", completionHelp,
		&completionCommand{})
	p.add(top, "version", "print the version", "", &versionCommand{})
}

// parts is a command of which only its parts can be run.
type parts struct{}

func (*parts) run(*cli, []string) error { return errUsage }

func commandNames(of *flags.Command) (names []string) {
	for _, c := range of.Commands() {
		names = append(names, c.Name)
	}
	return names
}

// didYouMean is the end of a sentence that names the known word that word was probably meant to be, "" if none is near.
func didYouMean(word string, known []string) string {
	if meant := nearestOf(word, known); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}

// nearestOf is the known word that begins so, or is spelt nearly so; "" is none.
func nearestOf(word string, known []string) string {
	begins := func(k string) bool { return len(word) > 1 && strings.HasPrefix(k, word) }
	if i := slices.IndexFunc(known, begins); i >= 0 {
		return known[i]
	}
	for edits := 1; edits <= max(1, len(word)/3); edits++ {
		near := func(k string) bool { return spelling.Near(word, k, edits) }
		if i := slices.IndexFunc(known, near); i >= 0 {
			return known[i]
		}
	}
	return ""
}
