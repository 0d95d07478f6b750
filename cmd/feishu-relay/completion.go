package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const completionSynopsis = `completion bash|zsh|fish

Prints a script that completes commands and flags in a shell:

  bash   source <(feishu-relay completion bash)          in ~/.bashrc
  zsh    source <(feishu-relay completion zsh)           in ~/.zshrc, after compinit
  fish   feishu-relay completion fish | source           in ~/.config/fish/config.fish
`

// shells are the functions that write the script of a shell.
var shells = map[string]func(w io.Writer, all []completed){
	"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion,
}

// verbsOf are the words of which one follows a command.
var verbsOf = map[string][]string{
	"completion": {"bash", "fish", "zsh"},
	"transcript": {"list", "redact", "show", "tail"},
	"mailbox":    {"agents", "dead-letters", "inbox", "send", "tasks"},
}

func runCompletion(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	rest, err := flags("completion", completionSynopsis, stdout, stderr).parse(args, 1)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(shells))
	if len(rest) == 0 {
		fmt.Fprintf(stderr, "which shell? want one of %s\n", strings.Join(names, ", "))
		return errUsage
	}
	script := shells[rest[0]]
	if script == nil {
		fmt.Fprintf(stderr, "no completion for %q; want one of %s\n", rest[0], strings.Join(names, ", "))
		return errUsage
	}
	var out bytes.Buffer
	script(&out, completions(ctx))
	_, err = out.WriteTo(stdout)
	return err
}

// completed is what can follow a command on the command line.
type completed struct {
	command, summary string
	verbs            []string
	flags            []string // of the command and its verbs, with two dashes
}

// words are all that can follow the command.
func (c completed) words() string { return strings.Join(slices.Concat(c.verbs, c.flags), " ") }

var flagInHelp = regexp.MustCompile(`(?m)^  -([a-z-]{2,})`)

// completions reads the words from each command's own help, so that a new flag needs
// nothing here.
func completions(ctx context.Context) (all []completed) {
	for _, c := range commands() {
		help := func(words ...string) string {
			var out bytes.Buffer
			_ = c.run(ctx, append(words, "--help"), &out, &out) // asking for help changes nothing
			return out.String()
		}
		one := completed{command: c.name, summary: c.summary, verbs: verbsOf[c.name]}
		var text strings.Builder
		text.WriteString(help())
		for _, verb := range one.verbs {
			text.WriteString(help(verb))
		}
		for _, m := range flagInHelp.FindAllStringSubmatch(text.String(), -1) {
			if flag := "--" + m[1]; !slices.Contains(one.flags, flag) {
				one.flags = append(one.flags, flag)
			}
		}
		slices.Sort(one.flags)
		all = append(all, one)
	}
	return all
}

// cases are the words behind each command, as arms of a shell's case statement; set is
// put before the words.
func cases(w io.Writer, all []completed, set string) {
	for _, c := range all {
		fmt.Fprintf(w, "    %s) %s'%s' ;;\n", c.command, set, c.words())
	}
	fmt.Fprintf(w, "    *) %s'' ;;\n", set)
}

func bashCompletion(w io.Writer, all []completed) {
	fmt.Fprintf(w, `_feishu_relay() {
  local cur=${COMP_WORDS[COMP_CWORD]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='%s'
  else case ${COMP_WORDS[1]} in
`, commandWords(all))
	cases(w, all, "words=")
	fmt.Fprint(w, `  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _feishu_relay feishu-relay
`)
}

func zshCompletion(w io.Writer, all []completed) {
	fmt.Fprint(w, "#compdef feishu-relay\n_feishu_relay() {\n  local words_of\n  if (( CURRENT == 2 )); then\n"+
		"    local -a names=(\n")
	for _, c := range all {
		fmt.Fprintf(w, "      %s\n", quoted(c.command+":"+c.summary))
	}
	fmt.Fprint(w, "    )\n    _describe command names\n    return\n  fi\n  case $words[2] in\n")
	cases(w, all, "words_of=")
	fmt.Fprint(w, `  esac
  compadd -- ${=words_of}
  [[ $PREFIX == -* ]] || _files
}
compdef _feishu_relay feishu-relay
`)
}

func fishCompletion(w io.Writer, all []completed) {
	const only = "complete -c feishu-relay -n"
	for _, c := range all {
		fmt.Fprintf(w, "%s __fish_use_subcommand -f -a %s -d %s\n", only, c.command, quoted(c.summary))
		seen := quoted("__fish_seen_subcommand_from " + c.command)
		for _, verb := range c.verbs {
			fmt.Fprintf(w, "%s %s -a %s\n", only, seen, verb)
		}
		for _, flag := range c.flags {
			fmt.Fprintf(w, "%s %s -l %s\n", only, seen, strings.TrimPrefix(flag, "--"))
		}
	}
}

// commandWords are the names of all commands.
func commandWords(all []completed) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.command
	}
	return strings.Join(names, " ")
}

// quoted is text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
