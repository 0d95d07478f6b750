package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"feishu-relay/internal/demo"
)

// runDemo shows a conversation of three bots with three sidecars. Unlike the
// others it listens to a closed terminal too: its sidecars must not outlive it.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("demo", "demo [--backend file|redis] [--chat] [--keep]\n\n"+
		"Starts three sidecars on a queue in a temporary folder, three scripted bots and a\n"+
		"user; shows what is said and what the sidecars decide, and checks it all.\n", stdout)
	backend := f.String("backend", or(os.Getenv("BACKEND"), "file"), "`file`, or redis, which starts a redis-server; the environment's BACKEND is the default")
	chat := f.Bool("chat", false, "be the user yourself: type what to say; Ctrl-D or /quit ends")
	keep := f.Bool("keep", false, "leave the folder with queue, transcripts and logs there")
	if err := parse(f, args, 0); err != nil {
		return err
	}
	if *backend != "file" && *backend != "redis" {
		fmt.Fprintf(stderr, "feishu-relay demo: --backend: want file or redis, got %.60q\n", *backend)
		return errUsage
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	o := demo.Options{Backend: *backend, Chat: *chat, Keep: *keep, Input: os.Stdin, Output: stdout}
	if out, ok := stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		o.Color = os.Getenv("NO_COLOR") == ""
		if term.IsTerminal(int(os.Stdin.Fd())) {
			o.Prompt = "> "
		}
	}
	return demo.Run(ctx, o)
}
