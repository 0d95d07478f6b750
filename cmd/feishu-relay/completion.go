package main

import "fmt"

// completionScripts ask the program itself, as package flags does.
var completionScripts = map[string]string{
	"bash": `_feishu_relay() {
  local IFS=$'\n'
  COMPREPLY=($(GO_FLAGS_COMPLETION=1 "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:$COMP_CWORD}"))
}
complete -o default -F _feishu_relay feishu-relay
`,
	"zsh": `#compdef feishu-relay
_feishu_relay() {
  local -a found=(${(f)"$(GO_FLAGS_COMPLETION=1 ${words[1]} "${(@)words[2,$CURRENT]}")"})
  compadd -- $found
  [[ $PREFIX == -* ]] || _files
}
compdef _feishu_relay feishu-relay
`,
	"fish": `complete -c feishu-relay -a '(env GO_FLAGS_COMPLETION=1 (commandline -opc) "$(commandline -ct)")'
`,
}

type completionCommand struct {
	Args struct {
		Shell string `positional-arg-name:"bash|zsh|fish" required:"yes"`
	} `positional-args:"yes"`
}

func (c *completionCommand) run(p *cli, _ []string) error {
	script := completionScripts[c.Args.Shell]
	if script == "" {
		return p.misused("no completion for %q; want one of bash, fish, zsh", c.Args.Shell)
	}
	_, err := fmt.Fprint(p.stdout, script)
	return err
}
