package main

import (
	"cmp"
	"context"
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
	f := flags("demo", "demo [--act 1|2|3|all] [--backend file|redis] [--chat] [--view] [--keep]\n\n"+
		"Plays three acts, shows what is said and what the sidecars decide, and checks it all.\n"+
		"In the first, three scripted bots speak over the local API of three sidecars. In the\n"+
		"second, two bots on Feishu's official SDK, which know nothing of the relay, stand\n"+
		"behind the gateways of two. In the third, one such bot gives another a job, which comes\n"+
		"there as a private chat; the result comes back into the chat of the person who asked.\n"+
		"Everything is in a temporary folder and on loopback.\n\n"+
		"  feishu-relay demo --act 1 --view\n",
		stdout, stdout)
	act := f.String("act", "all", "`1`, 2, 3 or all")
	backend := f.String("backend", cmp.Or(os.Getenv("BACKEND"), "file"),
		"`file`, or redis, which starts a redis-server; the environment's BACKEND is the default")
	chat := f.Bool("chat", false, "be the user yourself, of act 1 unless --act 2: type what to say; Ctrl-D or /quit ends")
	view := f.Bool("view", false, "play act 1 or --act, then leave the sidecars running "+
		"so that the page in the browser can be looked at; Ctrl-C ends")
	keep := f.Bool("keep", false, "leave the folder with queue, transcripts and logs there")
	if _, err := f.parse(args, 0); err != nil {
		return err
	}
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
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	o := demo.Options{Backend: *backend, Act: number, Chat: *chat, View: *view, Keep: *keep,
		Input: os.Stdin, Output: stdout}
	if out, ok := stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		o.Color = os.Getenv("NO_COLOR") == ""
		if term.IsTerminal(int(os.Stdin.Fd())) {
			o.Prompt = "> "
		}
	}
	return demo.Run(ctx, o)
}
