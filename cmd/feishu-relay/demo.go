package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/term"

	"feishu-relay/internal/demo"
)

// demoCommand shows conversations of bots with their sidecars. Unlike the others it listens to a closed terminal too:
// its sidecars must not outlive it.
type demoCommand struct {
	language
	Act     string `long:"act" choice:"1" choice:"2" choice:"all" default:"all"`
	Backend string `long:"backend" value-name:"file|redis"`
	Chat    bool   `long:"chat"`
	View    bool   `long:"view"`
	Listen  string `long:"listen" value-name:"HOST:PORT"`
	Keep    bool   `long:"keep"`
}

func (c *demoCommand) run(p *cli, _ []string) error {
	backend := cmp.Or(c.Backend, os.Getenv("BACKEND"), "file")
	if backend != "file" && backend != "redis" {
		return p.misused("--backend: want file or redis, got %.60q", backend)
	}
	if c.Chat && c.View {
		return p.misused("--chat or --view: a chat can be watched as well")
	}
	token, err := demoToken(c.Listen, c.View || c.Chat)
	if err != nil {
		return p.misused("--listen: %v", err)
	}
	ctx, stop := signal.NotifyContext(p.ctx, syscall.SIGHUP)
	defer stop()
	number, _ := strconv.Atoi(c.Act) // 0: all
	o := demo.Options{Backend: backend, Act: number, Chat: c.Chat, View: c.View, Keep: c.Keep,
		Input: os.Stdin, Output: p.stdout, Chinese: c.words().Chinese, Listen: c.Listen, Token: token}
	if out, ok := p.stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		o.Color = os.Getenv("NO_COLOR") == ""
		if term.IsTerminal(int(os.Stdin.Fd())) {
			o.Prompt = "> "
		}
	}
	return demo.Run(ctx, o)
}

// demoToken is the API_TOKEN for a page at addr: "" for loopback, and for addr "".
func demoToken(addr string, shown bool) (token string, err error) {
	switch {
	case addr == "":
		return "", nil
	case !shown:
		return "", errors.New("want --view or --chat as well: without them there is no page")
	case isNoTarget(addr):
		return "", fmt.Errorf("want HOST:PORT with a port that is not 0, such as 127.0.0.1:8787, got %.60q", addr)
	case !beyondLoopback(addr):
		return "", nil
	}
	token = os.Getenv("API_TOKEN")
	if len(token) < minSecret {
		return "", fmt.Errorf("other hosts reach %s: set API_TOKEN to at least %d characters (`openssl rand -hex 32` "+
			"makes a good one), or listen on 127.0.0.1", addr, minSecret)
	}
	return token, nil
}
