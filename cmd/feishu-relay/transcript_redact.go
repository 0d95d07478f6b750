package main

import (
	"fmt"
	"os"

	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// transcriptRedactCommand removes the text of a message from this host.
type transcriptRedactCommand struct {
	Channel string `long:"channel" default:"feishu"`
	Args    struct {
		Chat relay.ChatID    `positional-arg-name:"CHAT" required:"yes"`
		ID   relay.MessageID `positional-arg-name:"MESSAGE_ID" required:"yes"`
	} `positional-args:"yes"`
}

func (c *transcriptRedactCommand) run(p *cli, _ []string) error {
	id := string(c.Args.ID)
	if c.Args.Chat == "" || id == "" || relay.CheckID(id) != nil {
		return p.misused("which CHAT and MESSAGE_ID? `feishu-relay transcript show --json CHAT` has them")
	}
	if os.Getenv("AGENT_NAME") == "" { // it does not matter whose host this is
		_ = os.Setenv("AGENT_NAME", "redact") // never fails
	}
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	found, err := sidecar.Redact(p.ctx, cfg.Config, c.Channel, c.Args.Chat, c.Args.ID)
	found = append(found, sidecar.Redacted{Place: "the sidecars are not told", Err: err})
	removed, failed := 0, false
	for _, r := range found {
		if removed += r.N; r.N > 0 {
			fmt.Fprintf(p.stdout, "%s: %s\n", neutral(r.Place), counted(r.N, "line", "lines"))
		}
		if r.Err != nil {
			failed = true
			fmt.Fprintf(p.stderr, "%s: %v\n", neutral(r.Place), r.Err)
		}
	}
	switch {
	case failed:
		fmt.Fprintln(p.stderr, "Some places may still have the text; run the command again.")
		return errFailed
	case removed == 0:
		fmt.Fprintf(p.stdout, "No text of %s was found in %s and %s. Is the id right? "+
			"The sidecars of the group were told to hide it anyway, so that none delivers or shows it.\n",
			neutral(id), neutral(cfg.TranscriptDir), neutral(cfg.RelayDir))
	default:
		fmt.Fprintln(p.stdout, "The sidecars of the group were told to hide it.")
	}
	return nil
}
