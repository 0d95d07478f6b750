package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/sidecar"
)

const (
	statusEvery  = 2 * time.Second // between two screens of --watch
	maxStatus    = 20              // groups or agents on a screen
	statusErrors = 5
)

type statusCommand struct {
	language
	reach
	Watch bool `long:"watch"`
	JSON  bool `long:"json"`
}

func (c *statusCommand) run(p *cli, _ []string) error {
	a, err := c.client(p, c.JSON, c.words())
	if err != nil {
		return err
	}
	for {
		a.now = time.Now()
		err := a.status(p.ctx, c.Watch)
		if !c.Watch || p.ctx.Err() != nil || err != nil && !errors.Is(err, errFailed) {
			return err
		}
		if wait.Sleep(p.ctx, statusEvery) != nil {
			return nil
		}
	}
}

// shownStatus is what a screen shows.
type shownStatus struct {
	Sidecar    *sidecar.Status    `json:"sidecar"` // nil: none answers
	Error      string             `json:"error,omitempty"`
	Groups     []group.Group      `json:"groups"`
	Deliveries []httpapi.Delivery `json:"deliveries"` // that the bot has and has not answered
}

// status prints one screen.
func (c *client) status(ctx context.Context, watch bool) error {
	shown := &shownStatus{}
	err := c.get(ctx, "/v1/status", &shown.Sidecar)
	if err == nil {
		err = c.get(ctx, "/v1/deliveries", shown)
	}
	if err == nil {
		err = c.get(ctx, "/v1/groups", shown)
	}
	if _, none := errors.AsType[noSidecar](err); none {
		shown.Error = err.Error()
	} else if err != nil {
		return err
	}
	if c.json {
		err = writeLine(c.out, shown)
	} else {
		screen := c.screen(shown)
		if watch && isTerminal(c.out) {
			screen = "\x1b[H\x1b[2J" + screen // the screen before it goes
		}
		_, err = io.WriteString(c.out, screen)
	}
	if err == nil && shown.Sidecar == nil {
		return errFailed
	}
	return err
}

// screen is a screen for people.
func (c *client) screen(x *shownStatus) string {
	s := x.Sidecar
	if s == nil {
		return c.paint.text(red, "✗") + " " + neutral(x.Error) + "\n" + c.say("start it") + "\n"
	}
	var b strings.Builder
	line := func(key, text string) {
		title := c.say(key)
		fmt.Fprintf(&b, "%s%s  %s\n", c.paint.text(bold, title), strings.Repeat(" ", max(0, 8-runes.Columns(title))), text)
	}
	name := neutral(string(s.Identity.Agent))
	if s.Identity.Name != "" && s.Identity.Name != name {
		name += " (" + neutral(s.Identity.Name) + ")"
	}
	ready := c.paint.text(green, c.say("is ready"))
	if !s.Ready {
		ready = c.paint.text(red, c.say("is not ready", neutral(s.NotReady)))
	}
	line("Sidecar", c.say("the sidecar", name, ready, neutral(s.Backend), neutral(cmp.Or(s.Version, "?")),
		c.since(s.Started)))
	bot := c.say("posted to")
	if s.Door.Connected != nil {
		bot = c.paint.text(yellow, c.say("not connected", neutral(s.Door.Name)))
		if *s.Door.Connected {
			bot = c.paint.text(green, c.say("connected", neutral(s.Door.Name)))
		}
	}
	line("Bot", bot)
	line("Waits", cmp.Or(strings.Join(c.waits(x), "; "), c.say("nothing")))
	line("Agents", c.agents(s))
	b.WriteByte('\n')
	c.printGroups(&b, x.Groups[:min(len(x.Groups), maxStatus)])
	if more := len(x.Groups) - maxStatus; more > 0 {
		fmt.Fprintln(&b, c.say("more groups", more))
	}
	if len(s.Errors) > 0 {
		fmt.Fprintf(&b, "\n%s\n", c.paint.text(bold, c.say("last errors")))
		for _, e := range s.Errors[:min(len(s.Errors), statusErrors)] {
			fmt.Fprintf(&b, "%s %s (%d×, %s): %s\n", c.paint.text(yellow, "!"), neutral(e.Part), e.Count,
				c.say("since", c.since(e.At)), runes.Fit(neutral(strings.Join(strings.Fields(e.Error), " ")), 300))
		}
		fmt.Fprintln(&b, c.say("about errors"))
	}
	return b.String()
}

// waits is what waits.
func (c *client) waits(x *shownStatus) (parts []string) {
	wait := func(n int64, key string, args ...any) {
		if n > 0 {
			parts = append(parts, c.say(key, slices.Insert(args, 0, any(n))...))
		}
	}
	s, oldest := x.Sidecar, ""
	for _, d := range x.Deliveries {
		if oldest == "" || d.Since < oldest {
			oldest = d.Since
		}
	}
	wait(int64(len(x.Deliveries)), "waits/given", c.since(oldest))
	wait(int64(s.Waiting.Messages), "waits/not given", c.words.Age(time.Duration(s.Waiting.Oldest)*time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(s.Queues)) {
		wait(s.Queues[name].Outbox.Pending, "waits/not taken", neutral(name))
		wait(int64(s.Queues[name].Unsettled), "waits/in progress", neutral(name))
	}
	if s.Mailbox != nil {
		wait(int64(s.Mailbox.Waiting), "waits/letters")
	}
	return parts
}

func (c *client) agents(s *sidecar.Status) string {
	var names []string
	for _, a := range s.Agents[:min(len(s.Agents), maxStatus)] {
		name := neutral(string(a.Agent))
		switch {
		case a.Online && a.Bot != nil && !a.Bot.Connected:
			name = c.paint.text(yellow, "◐") + " " + c.say("agent away", name, moment(a.Bot.Since))
		case a.Online:
			name = c.paint.text(green, "●") + " " + name
		default:
			name = c.paint.text(dim, "○ "+c.say("agent offline", name))
		}
		names = append(names, name)
	}
	if more := len(s.Agents) - maxStatus; more > 0 {
		names = append(names, c.say("more agents", more))
	}
	return strings.Join(names, "  ")
}
