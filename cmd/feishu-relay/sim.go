package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jessevdk/go-flags"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/runes"
)

// simCommand plays Feishu until it is interrupted, and shows what is said. Unlike the sidecar it prints secrets and
// texts: they are invented here.
type simCommand struct {
	Listen   string         `long:"listen" value-name:"HOST:PORT" default:"127.0.0.1:0"`
	Apps     int            `long:"apps" value-name:"N" default:"2"`
	Scenario flags.Filename `long:"scenario" value-name:"FILE"`
}

func (c *simCommand) run(p *cli, _ []string) error {
	if c.Apps < 1 || c.Apps > 26 {
		return p.misused("--apps: want 1 to 26, got %d", c.Apps)
	}
	sc, err := simScenario(string(c.Scenario), c.Apps)
	if err != nil {
		return err
	}
	// A bot that lost its connection is to come back soon, as with a sidecar.
	options := feishusim.Options{GroupQPS: 5, Client: feishusim.ClientConfig{
		ReconnectCount: -1, ReconnectInterval: 3, ReconnectNonce: 2, PingInterval: 120,
	}}
	if err := options.FromEnv(os.Getenv); err != nil {
		return err
	}
	server := feishusim.New(options)
	defer server.Close()
	if err := server.Build(sc); err != nil {
		return err
	}
	url, err := server.Listen(c.Listen)
	if err != nil {
		return err
	}
	activities, stop, err := server.Watch()
	if err != nil {
		return err
	}
	defer stop()
	show := &simScreen{w: p.stdout, paint: newPaint(p.stdout), server: server}
	show.welcome(url, server.State())
	for {
		select {
		case <-p.ctx.Done():
			return nil
		case a := <-activities:
			show.line(show.activity(a))
		}
	}
}

// simScenario is the file's, or a group with n bots and a user.
func simScenario(file string, n int) (feishusim.Scenario, error) {
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return feishusim.Scenario{}, err
		}
		return feishusim.ParseScenario(data)
	}
	sc := feishusim.Scenario{Users: []string{"Ann"}}
	lab := feishusim.Group{Name: "Lab", Members: []string{"Ann"}}
	for i := range n {
		name := "Bot" + string(rune('A'+i))
		sc.Apps = append(sc.Apps, feishusim.App{Name: name})
		lab.Members = append(lab.Members, name)
	}
	sc.Groups = []feishusim.Group{lab}
	return sc, nil
}

// simScreen shows what happens.
type simScreen struct {
	w      io.Writer
	paint  *paint
	server *feishusim.Server
}

func (s *simScreen) line(text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(s.w, "%s  %s\n", s.paint.text(dim, time.Now().Format(time.TimeOnly)), text)
}

// welcome says what is there, and what to paste.
func (s *simScreen) welcome(url string, state feishusim.State) {
	fmt.Fprintf(s.w, "Feishu is played at %s (Ctrl-C ends it)\n\n", s.paint.text(bold, url))
	for _, g := range state.Groups {
		fmt.Fprintf(s.w, "group %s  %s\n", neutral(g.Name), g.ID)
	}
	for _, u := range state.Users {
		fmt.Fprintf(s.w, "user  %s  user_id %s\n", neutral(u.Name), u.ID)
	}
	for _, a := range state.Apps {
		fmt.Fprintf(s.w, "bot   %s  app_id %s  app_secret %s\n",
			s.paint.text(s.paint.bot(a.Name), neutral(a.Name)), a.ID, neutral(a.Secret))
	}
	if len(state.Apps) > 0 {
		fmt.Fprintf(s.w, "\nA bot by itself: base URL (SDK \"domain\") %s, with the id and the secret above.\n"+
			"Bots with sidecars: a sidecar for each, and its GATEWAY_ADDR as the bot's base URL:\n\n", url)
		data := filepath.Join(os.TempDir(), "feishu-relay-try")
		for i, a := range state.Apps[:min(len(state.Apps), simSidecars)] {
			fmt.Fprintf(s.w, "  AGENT_NAME=%s FEISHU_APP_ID=%s FEISHU_BASE_URL=%s DATA_DIR=%s "+
				"LISTEN_ADDR=127.0.0.1:%d GATEWAY_ADDR=127.0.0.1:%d %s run\n",
				"agent_"+string(rune('a'+i)), a.ID, url, data, simPort+2*i, simPort+2*i+1, os.Args[0])
		}
	}
	if len(state.Groups) > 0 && len(state.Users) > 0 && len(state.Apps) > 0 {
		fmt.Fprintf(s.w, "\nTo say something, to see the group, to break something:\n\n"+
			"  curl -s %[1]s/sim/say -d '{\"chat\":\"%[2]s\",\"user\":\"%[3]s\",\"text\":\"@%[5]s hello\"}'\n"+
			"  curl -s '%[1]s/sim/messages?chat=%[2]s'\n"+
			"  curl -s %[1]s/sim/faults -d '{\"kind\":\"drop\",\"app\":\"%[4]s\"}'\n",
			url, state.Groups[0].ID, state.Users[0].ID, state.Apps[0].ID, state.Apps[0].Name)
		fmt.Fprintf(s.w, "\nKinds of faults: %s.\n", strings.Join(feishusim.FaultKinds(), ", "))
	}
	fmt.Fprintln(s.w)
}

// The lines that are printed to paste: so many, with ports from simPort on, which
// are none of the defaults.
const (
	simSidecars = 4
	simPort     = 8801
)

// activity is a line about what happened; "": nothing to show.
func (s *simScreen) activity(a feishusim.Activity) string {
	text := ""
	if a.Message != nil {
		text = neutral(strings.ReplaceAll(a.Message.Text, "\n", "⏎ "))
	}
	switch d := a.Delivery; {
	case a.Kind == "message" || a.Kind == "edit":
		name := neutral(a.Message.SenderName)
		if a.Message.SenderType == "app" {
			name = s.paint.text(s.paint.bot(a.Message.SenderName), name)
		}
		switch {
		case a.Message.Streaming:
			name += s.paint.text(dim, " (streaming)")
		case a.Kind == "edit":
			name += s.paint.text(dim, " (edited)")
		}
		return name + ": " + text
	case a.Kind == "recall":
		return s.paint.text(yellow, neutral(a.Message.SenderName)+" took back: "+text)
	case a.Kind == "reaction":
		return s.paint.text(dim, fmt.Sprintf(`reactions to "%s": %d`, runes.Fit(text, 60), len(a.Message.Reactions)))
	case a.Kind == "ready":
		return s.paint.text(green, s.name(a.App)+" is connected")
	case a.Kind == "disconnected":
		return s.paint.text(yellow, s.name(a.App)+" is disconnected")
	case a.Kind == "acked" && d.Acked != 200:
		return s.paint.text(red, fmt.Sprintf("%s answered an event (%s) with %d", s.name(a.App), d.EventType, d.Acked))
	case a.Kind == "delivery" && d.Attempt > 1:
		return s.paint.text(yellow, fmt.Sprintf("%s gets an event (%s) again, try %d", s.name(a.App), d.EventType, d.Attempt))
	}
	return ""
}

// name is that of an app or a user.
func (s *simScreen) name(id string) string {
	state := s.server.State()
	if i := slices.IndexFunc(state.Apps, func(a feishusim.AppState) bool { return a.ID == id }); i >= 0 {
		return neutral(state.Apps[i].Name)
	}
	if i := slices.IndexFunc(state.Users, func(u feishusim.User) bool { return u.ID == id }); i >= 0 {
		return neutral(state.Users[i].Name)
	}
	return id
}
