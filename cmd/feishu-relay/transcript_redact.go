package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jessevdk/go-flags"

	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// transcriptRedactCommand removes the text of a message from this host.
type transcriptRedactCommand struct {
	Dir     flags.Filename `long:"dir" value-name:"FOLDER"`
	Channel string         `long:"channel" default:"feishu"`
	Args    struct {
		Chat relay.ChatID    `positional-arg-name:"CHAT" required:"yes"`
		ID   relay.MessageID `positional-arg-name:"MESSAGE_ID" required:"yes"`
	} `positional-args:"yes"`
}

func (c *transcriptRedactCommand) run(p *cli, _ []string) error {
	if c.Args.Chat == "" || c.Args.ID == "" || relay.CheckID(string(c.Args.ID)) != nil {
		return p.misused("which CHAT and MESSAGE_ID? `feishu-relay transcript show --json CHAT` has them")
	}
	cfg, err := hostConfig()
	if err != nil {
		return err
	}
	if c.Dir != "" {
		if cfg.TranscriptDir, err = fullPath(string(c.Dir)); err != nil {
			return err
		}
	}
	found, err := sidecar.Redact(p.ctx, cfg.Config, c.Channel, c.Args.Chat, c.Args.ID)
	return printRedacted(found, err, string(c.Args.ID), cfg, p.stdout, p.stderr)
}

// hostConfig is the configuration of the sidecars of this host; whose it is does not matter.
func hostConfig() (config, error) {
	cfg, err := loadConfig()
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	} else if err != nil {
		all = []error{err}
	}
	err = nil
	for _, mistake := range all {
		if !strings.HasPrefix(mistake.Error(), "AGENT_NAME:") {
			err = errors.Join(err, mistake)
		}
	}
	return cfg, err
}

// printRedacted prints what was done, and what could not be done.
func printRedacted(found []sidecar.Redacted, told error, id string, cfg config, stdout, stderr io.Writer) error {
	var failed error
	complain := func(what string, err error) {
		failed = errFailed
		fmt.Fprintf(stderr, "%s: %v\n", neutral(what), err)
	}
	removed := 0
	for _, r := range found {
		removed += r.N
		if r.N > 0 {
			unit := "lines"
			if r.N == 1 {
				unit = "line"
			}
			if _, err := fmt.Fprintf(stdout, "%s: %d %s\n", neutral(r.Place), r.N, unit); err != nil {
				return err
			}
		}
		if r.Err != nil {
			complain(r.Place, r.Err)
		}
	}
	if told != nil {
		complain("the sidecars are not told", told)
	}
	switch {
	case failed != nil:
		fmt.Fprintln(stderr, "Some places may still have the text; run the command again.")
		return failed
	case removed == 0:
		_, err := fmt.Fprintf(stdout, "No text of %s was found in %s and %s. Is the id right? "+
			"The sidecars of the group were told to hide it anyway, so that none delivers or shows it.\n",
			neutral(id), neutral(cfg.TranscriptDir), neutral(cfg.RelayDir))
		return err
	}
	_, err := fmt.Fprintln(stdout, "The sidecars of the group were told to hide it.")
	return err
}
