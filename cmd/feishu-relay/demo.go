package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"feishu-relay/internal/demo"
)

// runDemo shows conversations of bots with their sidecars. Unlike the others it
// listens to a closed terminal too: its sidecars must not outlive it.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("demo", "demo [--act 1|2|3|all] [--backend file|redis] [--chat] [--view] [--listen HOST:PORT] [--lang en|zh] [--keep]\n\n"+
		"Plays three acts, shows what is said and what the sidecars decide, and checks it all.\n"+
		"In the first, three scripted bots speak over the local API of three sidecars. In the\n"+
		"second, two bots on Feishu's official SDK, which know nothing of the relay, stand\n"+
		"behind the gateways of two. In the third, one such bot gives another a task, which comes\n"+
		"there as a private chat; the result comes back into the chat of the person who asked.\n"+
		"Everything is in a temporary folder and on loopback.\n\n"+
		"  feishu-relay demo --act 1 --view --listen 127.0.0.1:8787\n",
		stdout, stderr)
	act := f.String("act", "all", "`1`, 2, 3 or all")
	backend := f.String("backend", "", "`file`, or redis, which starts a redis-server (default: BACKEND of the environment, else file)")
	chat := f.Bool("chat", false, "be the user yourself, of act 1 unless --act 2: type what to say; Ctrl-D or /quit ends")
	view := f.Bool("view", false, "play act 1 or --act, then leave the sidecars running "+
		"so that the page in the browser can be looked at; Ctrl-C ends")
	listen := f.String("listen", "", "`address` of the page, with --view or --chat; an address that other hosts reach\n"+
		"needs the environment's API_TOKEN (default: one of loopback that the system chooses)")
	lang := f.language()
	keep := f.Bool("keep", false, "leave the folder with queue, transcripts and logs there")
	if _, err := f.parse(args, 0); err != nil {
		return err
	}
	*backend = cmp.Or(*backend, os.Getenv("BACKEND"), "file")
	if *backend != "file" && *backend != "redis" {
		fmt.Fprintf(stderr, "feishu-relay demo: --backend: want file or redis, got %.60q\n", *backend)
		return errUsage
	}
	acts := map[string]int{"all": 0, "1": 1, "2": 2, "3": 3}
	number, ok := acts[*act]
	if !ok {
		fmt.Fprintf(stderr, "feishu-relay demo: --act: want 1, 2, 3 or all, got %.60q\n", *act)
		return errUsage
	}
	if *chat && *view {
		fmt.Fprintln(stderr, "feishu-relay demo: --chat or --view: a chat can be watched as well")
		return errUsage
	}
	token, err := demoToken(*listen, *view || *chat)
	if err != nil {
		fmt.Fprintf(stderr, "feishu-relay demo: --listen: %v\n", err)
		return errUsage
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	o := demo.Options{Backend: *backend, Act: number, Chat: *chat, View: *view, Keep: *keep,
		Input: os.Stdin, Output: stdout, Chinese: inChinese(*lang), Listen: *listen, Token: token}
	if out, ok := stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
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
