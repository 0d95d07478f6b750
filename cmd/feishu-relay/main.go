// Command feishu-relay is a sidecar that joins one bot to the others of its Feishu groups. `feishu-relay --help` lists
// the commands; the environment configures it.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
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

// named is an argument that names something; a variable of a script that is not set must not pass for a name.
type named string

// UnmarshalFlag is called by package flags.
func (n *named) UnmarshalFlag(text string) error {
	if text == "" {
		return errors.New("an argument is empty; is a variable not set?")
	}
	*n = named(text)
	return nil
}

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

// asks are the flags of commands that show what a running sidecar answers.
type asks struct {
	reach
	JSON bool `long:"json"`
}

func newCLI(ctx context.Context, stdout, stderr io.Writer) *cli {
	p := &cli{ctx: ctx, stdout: stdout, stderr: stderr, commands: map[*flags.Command]command{},
		parser: flags.NewNamedParser("feishu-relay", flags.HelpFlag|flags.PassDoubleDash)}
	p.parser.SubcommandsOptional = true
	_, p.parser.LongDescription = helpOf("")
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
		panic(err) // a mistake in the program
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
	if _, takes := does.(interface{ takesArgs() }); !takes && len(rest) > 0 {
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

// helpText is what --help prints; help.txt says how.
//
//go:embed help.txt
var helpText string

// helpOf is what a command does, in a line, and its help.
func helpOf(path string) (summary, text string) {
	_, section, _ := strings.Cut("\n"+helpText, "\n== "+path+": ")
	section, _, _ = strings.Cut(section, "\n== ")
	summary, text, _ = strings.Cut(section, "\n")
	return summary, strings.TrimSpace(text)
}

// addCommands adds the commands, each behind the one that it is a part of.
func (p *cli) addCommands() {
	under := map[string]*flags.Command{"": p.parser.Command}
	for _, c := range []struct {
		path string
		does command
	}{
		{"run", &runCommand{}}, {"init", &initCommand{}}, {"up", &upCommand{}}, {"demo", &demoCommand{}},
		{"sim", &simCommand{}}, {"check", &checkCommand{}}, {"status", &statusCommand{}}, {"why", &whyCommand{}},
		{"group", &groupCommand{}},
		{"transcript", nil},
		{"transcript list", &transcriptListCommand{}}, {"transcript show", &transcriptShowCommand{}},
		{"transcript tail", &transcriptTailCommand{}}, {"transcript redact", &transcriptRedactCommand{}},
		{"mailbox", nil},
		{"mailbox agents", &mailboxAgentsCommand{}}, {"mailbox send", &mailboxSendCommand{}},
		{"mailbox inbox", &mailboxInboxCommand{}},
		{"mailbox tasks", &mailboxTasksCommand{}}, {"mailbox tasks update", &mailboxUpdateCommand{}},
		{"mailbox dead-letters", &mailboxDeadLettersCommand{}},
		{"mailbox dead-letters list", &mailboxDeadLettersCommand{}},
		{"mailbox dead-letters replay", &mailboxReplayCommand{}},
		{"mcp", &mcpCommand{}}, {"health", &healthCommand{}}, {"completion", &completionCommand{}},
		{"version", &versionCommand{}},
	} {
		cut := strings.LastIndexByte(c.path, ' ')
		summary, text := helpOf(c.path)
		var fields any = c.does
		if c.does == nil {
			fields = &struct{}{}
		}
		added := must(under[c.path[:max(cut, 0)]].AddCommand(c.path[cut+1:], summary, text, fields))
		added.SubcommandsOptional = c.does != nil
		under[c.path], p.commands[added] = added, c.does
		top, _, _ := strings.Cut(c.path, " ")
		describe(added.Group, top)
	}
}

// describe takes the descriptions of flags from the catalogue: those of a command, or of all.
func describe(of *flags.Group, command string) {
	for _, o := range of.Options() {
		key := "flag/" + cmp.Or(o.LongName, string(o.ShortName))
		if own := "flag/" + command + strings.TrimPrefix(key, "flag"); words.Has(own) {
			key = own
		}
		o.Description = words.Words{}.Say(key)
	}
}

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
	for edits := range 1 + max(1, len(word)/3) {
		for _, k := range known {
			if edits == 0 && len(word) > 1 && strings.HasPrefix(k, word) || edits > 0 && spelling.Near(word, k, edits) {
				return k
			}
		}
	}
	return ""
}
