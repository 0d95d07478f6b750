// Command feishu-relay is a sidecar that joins one bot to the others of its
// Feishu groups. `feishu-relay --help` lists the commands; the environment
// configures it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"feishu-relay/internal/spelling"
	"feishu-relay/internal/words"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is one verb of the program.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"run", "run the sidecar (the default)", runSidecar},
		{"init", "set up the sidecar of a bot: asks, tries the answers, writes an env file", runInit},
		{"up", "run the sidecars of several bots of this host", runUp},
		{"demo", "play three acts of bots that work together, with nothing configured", runDemo},
		{"sim", "a Feishu stand-in to try bots against, without a tenant", runSim},
		{"check", "try everything that is configured, and say what is missing", runCheck},
		{"status", "one screen: who is online, groups, depth, what waits, the last stop and error", runStatus},
		{"why", "what became of a message at each bot, and what to do", runWhy},
		{"group", "show and change how the bots of a group behave", runGroup},
		{"transcript", "list, show or follow the groups' transcripts", runTranscript},
		{"mailbox", "see other agents, send them messages and tasks, read the inbox", runMailbox},
		{"mcp", "the peer tools over MCP, on standard input and output", runMCP},
		{"health", "ask a running sidecar whether it is alive", runHealth},
		{"completion", "print a script that completes commands in bash, zsh or fish", runCompletion},
		{"version", "print the version", runVersion},
	}
}

// Errors that decide the exit status.
var (
	errUsage  = errors.New("usage")            // already explained
	errFailed = errors.New("see output above") // already explained
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name, rest := "run", args
	switch {
	case len(args) == 0:
	case slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]):
		usage(stdout)
		return 0
	case slices.Contains([]string{"-v", "-version", "--version"}, args[0]):
		name, rest = "version", args[1:]
	case !strings.HasPrefix(args[0], "-"): // else flags of run
		name, rest = args[0], args[1:]
	}
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		err := c.run(ctx, rest, stdout, stderr)
		switch {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		case errors.Is(err, errFailed):
			return 1
		}
		fmt.Fprintf(stderr, "feishu-relay %s: %v\n", name, err)
		return 1
	}
	fmt.Fprintf(stderr, "feishu-relay: no command %q%s\n\n", name, didYouMean(name, commandNames()))
	usage(stderr)
	return 2
}

func commandNames() (names []string) {
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

// didYouMean is the end of a sentence that names the known word that word was probably
// meant to be, "" if none is near.
func didYouMean(word string, known []string) string {
	begins := func(k string) bool { return len(word) > 1 && strings.HasPrefix(k, word) }
	if i := slices.IndexFunc(known, begins); i >= 0 {
		return "; did you mean " + known[i] + "?"
	}
	for edits := 1; edits <= max(1, len(word)/3); edits++ {
		near := func(k string) bool { return spelling.Near(word, k, edits) }
		if i := slices.IndexFunc(known, near); i >= 0 {
			return "; did you mean " + known[i] + "?"
		}
	}
	return ""
}

func usage(w io.Writer) {
	fmt.Fprint(w, "feishu-relay joins self-hosted bots in one Feishu group: one sidecar beside each bot.\n\n"+
		"Usage: feishu-relay [command] [flags]\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-11s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\n`feishu-relay COMMAND --help` tells more. The sidecar is configured by the environment:\n"+
		"AGENT_NAME is required, everything else has a default; `feishu-relay run --help` lists it all.\n"+
		"--env-file FILE reads settings from a file, as in: feishu-relay check --env-file bot.env\n")
}

// verbs runs the subcommand of a command that args begin with.
func verbs(command, usage string, args []string, stdout, stderr io.Writer,
	run map[string]func(args []string) error,
) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	var err error
	switch do, known := run[verb]; {
	case known:
		err = do(args)
	case slices.Contains([]string{"-h", "-help", "--help", "help"}, verb):
		_, err = io.WriteString(stdout, usage)
	default:
		if verb != "" {
			fmt.Fprintf(stderr, "there is no %s %s%s\n", command, neutral(verb),
				didYouMean(verb, slices.Sorted(maps.Keys(run))))
		}
		fmt.Fprint(stderr, usage)
		return errUsage
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil // the reader, such as head, has seen enough
	}
	return err
}

// commandLine is the flags of a command. What it explains goes to help for who asks
// for help, and to mistake else.
type commandLine struct {
	*flag.FlagSet
	help, mistake io.Writer
	explained     strings.Builder
	envFile       string
	report        func([]notice) // is given warnings about the env file
}

// flags returns the flags of a command. Its --help prints synopsis. parse loads the file that
// --env-file names, and prints the warnings about it, unless the command sets report.
func flags(name, synopsis string, help, mistake io.Writer) *commandLine {
	c := &commandLine{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), help: help, mistake: mistake}
	c.SetOutput(&c.explained)
	c.Usage = func() {
		fmt.Fprintf(&c.explained, "Usage: feishu-relay %s\n", synopsis)
		c.PrintDefaults()
	}
	c.StringVar(&c.envFile, "env-file", "", "`file` of KEY=VALUE lines with settings that the environment does not have")
	c.report = func(found []notice) {
		for _, n := range found {
			f := n.in(words.Words{})
			fmt.Fprintf(mistake, "feishu-relay: warning: %s: %s\n", neutral(f.Detail), neutral(f.Mend))
		}
	}
	return c
}

// where returns the flags by which another command reaches the same sidecar, with a space behind them.
func (c *commandLine) where(addr string) (flags string) {
	if c.envFile != "" {
		flags += "--env-file " + shellWord(c.envFile) + " "
	}
	if addr != "" {
		flags += "--addr " + shellWord(addr) + " "
	}
	return flags
}

// parse reads flags and returns the arguments, of which there may be most. Flags may
// also follow arguments; what follows "--" is an argument.
func (c *commandLine) parse(args []string, most int) (rest []string, err error) {
	for err = c.Parse(args); err == nil && c.NArg() > 0; err = c.Parse(args) {
		if parsed := len(args) - c.NArg(); parsed > 0 && args[parsed-1] == "--" {
			rest = append(rest, c.Args()...)
			break
		}
		rest, args = append(rest, c.Arg(0)), c.Args()[1:]
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(c.help, &c.explained)
		return nil, err
	case err == nil && len(rest) > most:
		fmt.Fprintf(&c.explained, "unexpected argument %q\n", rest[most])
		c.Usage()
	case err == nil && c.envFile != "":
		found, err := loadEnvFile(c.envFile)
		if err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
		c.report(found)
		return rest, nil
	case err == nil:
		return rest, nil
	}
	fmt.Fprint(c.mistake, &c.explained)
	return nil, errUsage
}
