package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

const whyHelp = `Says what became of a message at each bot of its group, and what to do. With --chat alone it is
the last message of that chat: a chat id, the group's name, or the beginning of an id. Where nothing
is named it is the newest message of all chats.
It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN).

  feishu-relay why om_dc13264520f392
  feishu-relay why --chat oc_a1b2 --lang zh`

const (
	whyOutcomes = 5000             // of a group are asked for; a message beyond them counts as not recorded
	whyEntries  = 1000             // of its transcript
	whyText     = 120              // columns of the message are shown
	onItsWay    = 30 * time.Second // how long a message that was just sent may be undecided
	answerLimit = 15 * time.Minute // how long a bot may take to answer, as DELIVERY_TIMEOUT is by default
)

type whyCommand struct {
	language
	reach
	Chat string `long:"chat" value-name:"CHAT"`
	JSON bool   `long:"json"`
	Args struct {
		ID string `positional-arg-name:"MESSAGE_ID"`
	} `positional-args:"yes"`
}

func (c *whyCommand) run(p *cli, _ []string) error {
	w := c.words()
	a, err := c.client(p, c.JSON, w)
	if err != nil {
		return err
	}
	groups, err := a.withChats(p.ctx)
	if err != nil {
		return err
	}
	title := ""
	switch {
	case c.Chat != "":
		g, err := findGroup(groups, c.Chat)
		if err != nil {
			return err
		}
		groups = []group{*g}
	case c.Args.ID == "" && len(groups) > 1:
		title = w.Say("newest of all", len(groups)) + "\n"
		groups = groups[:1]
	}
	found, err := a.explain(p.ctx, groups, relay.MessageID(c.Args.ID), p.where(c.Addr))
	if err != nil {
		return err
	}
	if c.JSON {
		return writeLine(a.out, found)
	}
	_, err = io.WriteString(a.out, title+a.explanation(found))
	return err
}

// where returns the flags by which another command reaches the same sidecar, with a space behind them.
func (p *cli) where(addr string) (flags string) {
	if p.EnvFile != "" {
		flags += "--env-file " + shellWord(string(p.EnvFile)) + " "
	}
	if addr != "" {
		flags += "--addr " + shellWord(addr) + " "
	}
	return flags
}

// withChats are the groups, and the chats of the transcripts that are not known as groups: where only this bot has
// spoken, a group may not be known as one yet. The chat with the newest entry is first.
func (c *client) withChats(ctx context.Context) ([]group, error) {
	groups, err := c.groups(ctx)
	if err != nil {
		return nil, err
	}
	var recorded struct {
		Transcripts []struct {
			group
			Modified relay.Millis
			Last     *transcript.Entry
		}
	}
	if c.get(ctx, "/v1/transcripts", &recorded) != nil {
		return groups, nil // the groups are enough mostly
	}
	newest := map[string]int64{} // when its newest entry was sent
	for _, t := range recorded.Transcripts {
		newest[t.id()] = int64(t.Modified)
		if t.Last != nil {
			newest[t.id()] = t.Last.TS
		}
		if !slices.ContainsFunc(groups, func(g group) bool { return g.id() == t.id() }) {
			groups = append(groups, t.group)
		}
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(newest[b.id()], newest[a.id()]) })
	return groups, nil
}

// shownEntry is an entry of a transcript as the API shows it.
type shownEntry struct {
	transcript.Entry
	Depth int `json:"depth,omitempty"`
}

// outcome is what became of a message at a bot.
type outcome struct {
	Agent      relay.AgentName `json:"agent"`
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Sender     relay.AgentName `json:"sender,omitempty"`
	At         relay.Millis    `json:"at"`
	Decision   *struct {
		Depth int `json:"depth"`
	} `json:"decision,omitempty"`
	Stopped   relay.Reason `json:"stopped,omitempty"`
	Detail    string       `json:"detail,omitempty"`
	Delivered relay.Millis `json:"delivered_at,omitempty"`
	Door      string       `json:"door,omitempty"`
}

// explained is a message and what became of it at each bot of its group.
type explained struct {
	Channel   string          `json:"channel"`
	ChatID    relay.ChatID    `json:"chat_id"`
	Group     string          `json:"group,omitempty"`
	MessageID relay.MessageID `json:"message_id"`
	Message   *shownEntry     `json:"message,omitempty"` // nil: it is not in the transcript
	Depth     int             `json:"depth,omitempty"`
	Bots      []fate          `json:"bots"`

	group *group
	later []shownEntry // what was said after it
	where string       // the flags by which other commands reach the same sidecar
}

// The states of a message at a bot; the catalogue has what they mean ("fate/STATE").
const (
	fateDelivered   = "delivered"
	fateStopped     = "stopped"
	fateWaits       = "waits"        // for the bot
	fateAway        = "bot_away"     // it has not got it, and is not connected
	fateOffline     = "offline"      // nothing is noted, and the sidecar does not run
	fateUndecided   = "undecided"    // nothing is noted yet
	fateNotRecorded = "not_recorded" // nothing is noted any more, or it was never
	fateNotHeard    = "not_heard"    // a person's message that Feishu has not brought to the bot
)

// fate is what became of a message at a bot.
type fate struct {
	Agent   relay.AgentName `json:"agent"`
	Name    string          `json:"name"`
	Online  bool            `json:"online"`
	State   string          `json:"state"`
	Means   string          `json:"means,omitempty"` // of the reason
	Do      string          `json:"do,omitempty"`
	Command string          `json:"command,omitempty"`    // that does it
	Since   relay.Millis    `json:"away_since,omitempty"` // with fateAway
	Answer  relay.MessageID `json:"answer,omitempty"`     // the first message that the bot sent after this one
	At      relay.Millis    `json:"answered_at,omitempty"`
	Outcome *outcome        `json:"outcome,omitempty"`
}

// explain looks for a message in groups; "" is the last one of the first.
func (c *client) explain(ctx context.Context, groups []group, id relay.MessageID, where string) (*explained, error) {
	for i := range groups {
		g := &groups[i]
		x := &explained{Channel: g.Channel, ChatID: g.ChatID, Group: g.Name, MessageID: id, Bots: []fate{}, group: g,
			where: where}
		if err := c.readEntries(ctx, x); err != nil {
			return nil, err
		}
		if x.MessageID == "" {
			return nil, fmt.Errorf("nobody has said anything in %s yet", g.title())
		}
		path := g.path("/v1/outcomes", url.Values{"chat_id": {string(g.ChatID)}, "limit": {fmt.Sprint(whyOutcomes)}})
		var all struct {
			Outcomes []outcome
			Complete bool
		}
		if err := c.get(ctx, path, &all); err != nil {
			return nil, err
		}
		since := relay.Millis(0) // from when on all outcomes of the group are known
		if !all.Complete || len(all.Outcomes) >= whyOutcomes {
			since = relay.MillisOf(c.now)
			for _, o := range all.Outcomes {
				since = min(since, o.At)
			}
		}
		own := slices.DeleteFunc(all.Outcomes, func(o outcome) bool { return o.RelayMsgID != x.MessageID })
		if x.Message != nil || len(own) > 0 {
			c.fates(x, own, since)
			return x, nil
		}
	}
	switch {
	case strings.HasPrefix(string(id), "msg_"):
		return nil, fmt.Errorf("%.100q is in no group; is it mail? `feishu-relay mailbox tasks` shows how tasks stand, "+
			"`feishu-relay mailbox inbox` what waits for the bot", id)
	case len(groups) == 0:
		return nil, errors.New("the sidecar knows of no group yet: was anything said to this bot, or by it?")
	}
	return nil, fmt.Errorf("no message %.100q is among the newest of %s; "+
		"`feishu-relay transcript show CHAT` shows the recorded ones", id, groupNames(groups))
}

// readEntries looks for the message in the transcript, and takes what was said after it.
func (c *client) readEntries(ctx context.Context, x *explained) error {
	var page struct{ Entries []shownEntry }
	path := "/v1/transcripts/" + url.PathEscape(x.Channel) + "/" + url.PathEscape(string(x.ChatID)) +
		fmt.Sprintf("?limit=%d", whyEntries)
	if err := c.get(ctx, path, &page); err != nil {
		return err
	}
	said := slices.DeleteFunc(page.Entries, func(e shownEntry) bool { return isNotice(e.Entry) || e.EditOf != "" })
	for i, e := range slices.Backward(said) {
		if x.MessageID == "" || e.MessageID == string(x.MessageID) {
			x.Message, x.MessageID, x.Depth, x.later = &e, relay.MessageID(e.MessageID), e.Depth, said[i+1:]
			return nil
		}
	}
	return nil
}

// fates puts together what is known. Where the outcomes of the message's time are known, a bot without one has not
// decided yet.
func (c *client) fates(x *explained, own []outcome, since relay.Millis) {
	sender, person, sent := relay.AgentName(""), false, time.Time{}
	if e := x.Message; e != nil {
		person, sent = e.Role == relay.RoleUser, time.UnixMilli(e.TS)
		if e.Role == relay.RoleAssistant {
			sender = relay.AgentName(e.Sender)
		}
	}
	add := func(f fate) {
		f.Name = x.group.botName(f.Agent)
		i := slices.IndexFunc(x.group.Bots, func(b bot) bool { return b.Agent == f.Agent })
		if i >= 0 {
			f.Online = x.group.Bots[i].Online
		}
		away := i >= 0 && x.group.Bots[i].Away != 0
		if f.Outcome != nil {
			c.decided(x, &f, person, away)
		} else {
			recent := since == 0 || relay.MillisOf(sent) >= since
			f.State = state(f.Online, away, person, recent, c.now.Sub(sent) < onItsWay)
		}
		if f.State == fateAway {
			f.Since = x.group.Bots[i].Away
		}
		if f.Do == "" {
			f.Do = c.advice(f.State, person && f.Outcome == nil)
		}
		f.Command = x.command([]fate{f})
		x.Bots = append(x.Bots, f)
	}
	for _, o := range own {
		if o.Decision != nil {
			x.Depth = max(x.Depth, o.Decision.Depth)
		}
		add(fate{Agent: o.Agent, Outcome: &o})
	}
	for _, b := range x.group.Bots {
		if b.Agent != sender && !slices.ContainsFunc(own, func(o outcome) bool { return o.Agent == b.Agent }) {
			add(fate{Agent: b.Agent})
		}
	}
}

// state is what is known of a message at a bot that has noted nothing.
func state(online, away, person, recent, fresh bool) string {
	switch {
	case online && fresh:
		return fateUndecided
	case !online:
		return fateOffline
	case !recent:
		return fateNotRecorded
	case away:
		return fateAway
	case person:
		return fateNotHeard
	}
	return fateUndecided
}

// advice is what to do about a state: the text "fate/STATE/do", of a person's message "fate/STATE/do/person" if there
// is one.
func (c *client) advice(state string, person bool) string {
	key := "fate/" + state + "/do"
	if person && words.Has(key+"/person") {
		key += "/person"
	}
	if !words.Has(key) {
		return ""
	}
	return c.say(key)
}

// decided fills in f by what its bot has noted.
func (c *client) decided(x *explained, f *fate, person, away bool) {
	o := f.Outcome
	switch {
	case o.Stopped != "":
		f.State, f.Means = fateStopped, string(o.Stopped)
		if key := "reason/" + string(o.Stopped); words.Has(key) {
			f.Means, f.Do = c.say(key), c.say(key+"/do")
		}
		if released(o.Stopped) && x.personSpoke() {
			f.Do = c.say("person has spoken")
		}
	case o.Delivered != 0:
		f.State = fateDelivered
		i := slices.IndexFunc(x.later, func(e shownEntry) bool {
			return e.Role == relay.RoleAssistant && relay.AgentName(e.Sender) == f.Agent
		})
		switch waited := c.now.Sub(o.Delivered.Time()); {
		case i >= 0:
			f.Answer, f.At = relay.MessageID(x.later[i].MessageID), relay.Millis(x.later[i].TS)
		case !person: // a bot need not answer a bot
		case waited < answerLimit:
			f.Do = c.say("may be working", c.words.Age(waited))
		default:
			f.Do = c.say("relay has done its part")
		}
	case away:
		f.State = fateAway
	default:
		f.State = fateWaits
	}
}

// released reports whether "continue" gives the bots what was stopped for a reason.
func released(why relay.Reason) bool { return why == relay.MaxDepth || why == relay.Budget }

func (x *explained) personSpoke() bool {
	return slices.ContainsFunc(x.later, func(e shownEntry) bool { return e.Role == relay.RoleUser })
}

// command is the one that does what is advised about bots at which a message stopped for one reason, "" for none.
func (x *explained) command(bots []fate) string {
	o := bots[0].Outcome
	if o == nil || o.Stopped == "" {
		return ""
	}
	var all strings.Builder
	for _, b := range bots {
		all.WriteString(" " + shellWord(string(b.Agent)))
	}
	words := ""
	switch {
	case released(o.Stopped) && !x.personSpoke():
		words = "continue" + all.String()
	case o.Stopped == relay.Muted:
		words = "unmute" + all.String()
	case o.Stopped == relay.Paused:
		words = "resume"
	case o.Stopped == relay.StoppedByPerson && !x.personSpoke():
		words = "continue"
	case o.Stopped == relay.NotForMe:
		words = "answer all"
	case o.Stopped == relay.JudgeNo:
		words = fmt.Sprintf("threshold %d", x.group.Settings.Threshold+1)
	default:
		return ""
	}
	return "feishu-relay group " + x.where + shellWord(x.group.id()) + " " + words
}

// explanation is x for people.
func (c *client) explanation(x *explained) string {
	by, at := relay.AgentName(""), relay.Millis(0)
	if len(x.Bots) > 0 && x.Bots[0].Outcome != nil {
		by, at = x.Bots[0].Outcome.Sender, x.Bots[0].Outcome.At
	}
	name := x.group.botName(by)
	if e := x.Message; e != nil {
		at, name = relay.Millis(e.TS), neutral(cmp.Or(e.SenderName, e.Sender))
		if e.Role == relay.RoleAssistant {
			name = x.group.botName(relay.AgentName(e.Sender))
		}
	}
	title := c.say("why title", c.paint.text(bold, neutral(string(x.MessageID))), name, x.group.title(), moment(at.Time()))
	if x.Depth > 0 {
		title += c.say("why depth title", x.Depth)
	}
	lines := []string{title}
	if e := x.Message; e != nil {
		lines = append(lines, "  "+c.paint.text(dim, runes.Fit(strings.Join(contentLines(e.Entry), " "), whyText)))
	}
	if len(x.Bots) == 0 {
		lines = append(lines, c.say("no other bot"))
	}
	for _, f := range x.Bots {
		lines = append(lines, c.fateLine(f))
	}
	if advised := c.advised(x); len(advised) > 0 {
		lines = append(append(lines, "", c.paint.text(bold, c.say("what to do"))), advised...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// fateLine is one line about a bot.
func (c *client) fateLine(f fate) string {
	name := f.Name
	if f.Name != string(f.Agent) {
		name += " (" + neutral(string(f.Agent)) + ")"
	}
	mark, text := c.paint.text(dim, "?"), ""
	switch o := f.Outcome; f.State {
	case fateDelivered:
		mark = c.paint.text(green, "✓")
		at := o.Delivered.Time().Local().Format(time.TimeOnly)
		if text = c.say("fate/delivered", at, neutral(o.Door)); o.Door == "" { // it has the message from Feishu
			text = c.say("fate/reported", at)
		}
		if f.Answer != "" {
			text += c.say("fate/answered", neutral(string(f.Answer)), f.At.Time().Local().Format(time.TimeOnly))
		} else {
			text += c.say("fate/silent")
		}
	case fateStopped:
		mark = c.paint.text(yellow, "✗")
		if text = c.say("fate/stopped", neutral(string(o.Stopped)), neutral(f.Means)); o.Detail != "" {
			text += " (" + neutral(o.Detail) + ")"
		}
	case fateAway:
		mark, text = c.paint.text(yellow, "…"), c.say("fate/bot_away", moment(f.Since.Time()))
	case fateWaits:
		mark, text = c.paint.text(yellow, "…"), c.say("fate/waits")
	default:
		text = c.say("fate/" + f.State)
	}
	return fmt.Sprintf("%s %s: %s", mark, name, text)
}

// advised is what to do, once for all bots that it is the same for.
func (c *client) advised(x *explained) (lines []string) {
	advice := func(f fate) string {
		about, more := f.Name, ""
		if f.Outcome != nil && f.Outcome.Stopped != "" {
			about = neutral(string(f.Outcome.Stopped))
			if key := "reason/" + string(f.Outcome.Stopped) + "/more"; words.Has(key) {
				more = " (docs/" + c.say(key) + ")"
			}
		}
		return "  " + about + ": " + f.Do + more
	}
	for i, f := range x.Bots {
		if f.Do == "" || slices.Contains(lines, advice(f)) {
			continue
		}
		lines = append(lines, advice(f))
		if f.Command != "" {
			alike := slices.DeleteFunc(slices.Clone(x.Bots[i:]), func(b fate) bool { return advice(b) != advice(f) })
			lines = append(lines, "    "+x.command(alike))
		}
	}
	return lines
}
