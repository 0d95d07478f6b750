package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

const whyHelp = `Says what became of a message at each bot of its group, and what to do. With --chat alone it is
the last message of that chat: a chat id, the group's name, or the beginning of an id. Where nothing
is named it is the newest message of all chats.
It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN).

  feishu-relay why om_dc13264520f392
  feishu-relay why --chat oc_a1b2 --lang zh`

const (
	whyOutcomes = 5000 // of a group are asked for; a message beyond them counts as not recorded
	whyEntries  = 1000 // of its transcript
	whyText     = 120  // characters of the message are shown
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
	ctx := p.ctx
	api, err := newLocalAPI(c.Addr)
	if err != nil {
		return err
	}
	api.inline = inline{inChinese(c.Lang)}
	w := whyCall{groupCall: groupCall{out: p.stdout, api: api, now: time.Now(), json: c.JSON}, inline: api.inline,
		paint: newPaint(p.stdout), limit: answerLimit, where: p.where(c.Addr)}
	groups, _, err := w.groups(ctx)
	if err != nil {
		return err
	}
	groups = w.withChats(ctx, groups)
	w.settings(ctx)
	chosen := ""
	if c.Args.ID == "" && c.Chat == "" && len(groups) > 1 {
		chosen = w.say("The newest message of %d chats; `feishu-relay why --chat CHAT` explains the last one of another.\n",
			"%d 个会话里最新的一条消息；`feishu-relay why --chat 会话` 解释别的会话的最后一条。\n", len(groups))
		groups = groups[:1]
	}
	if c.Chat != "" {
		g, err := findGroup(groups, c.Chat)
		if err != nil {
			return err
		}
		groups = []steer.Group{g}
	}
	return w.explainIn(ctx, groups, relay.MessageID(c.Args.ID), chosen)
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

// explainIn explains a message of one of groups; "" is the last one of the first.
func (w *whyCall) explainIn(ctx context.Context, groups []steer.Group, id relay.MessageID, title string) error {
	found, err := w.find(ctx, groups, id)
	if err != nil {
		return err
	}
	if w.json {
		return writeLine(w.out, found)
	}
	return w.print(title + w.text(found))
}

// whyCall is one use of the command.
type whyCall struct {
	groupCall
	inline
	paint *paint
	limit time.Duration                 // how long a bot may take to answer
	away  map[relay.AgentName]time.Time // since when bots are not connected whose sidecar is online
	where string                        // the flags by which other commands reach the same sidecar
}

// answerLimit is the default of DELIVERY_TIMEOUT, for sidecars that do not report their settings.
const answerLimit = 15 * time.Minute

// settings takes what matters here of the sidecar's settings.
func (w *whyCall) settings(ctx context.Context) {
	data, err := w.api.call(ctx, http.MethodGet, "/v1/status", nil)
	var status struct {
		Settings map[string]string
		Agents   []sidecar.AgentStatus
	}
	if err != nil || w.read(data, &status) != nil {
		return // the defaults are enough mostly
	}
	if limit, err := time.ParseDuration(status.Settings["DELIVERY_TIMEOUT"]); err == nil {
		w.limit = limit
	}
	w.away = map[relay.AgentName]time.Time{}
	for _, a := range status.Agents {
		if a.Online && a.Bot != nil && !a.Bot.Connected {
			w.away[a.Agent] = a.Bot.Since
		}
	}
}

// shownEntry is an entry of a transcript as the API shows it.
type shownEntry struct {
	transcript.Entry
	Depth int `json:"depth,omitempty"`
}

// explained is a message and what became of it at each bot of its group.
type explained struct {
	Channel   string          `json:"channel"`
	ChatID    relay.ChatID    `json:"chat_id"`
	Group     string          `json:"group,omitempty"`
	MessageID relay.MessageID `json:"message_id"`
	Message   *shownEntry     `json:"message,omitempty"` // nil: it is not in the transcript
	Depth     int             `json:"depth,omitempty"`
	Bots      []botFate       `json:"bots"`
	later     []shownEntry    // what was said after it
}

// The states of a message at a bot.
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

// botFate is what became of a message at a bot.
type botFate struct {
	Agent   relay.AgentName  `json:"agent"`
	Name    string           `json:"name"`
	Online  bool             `json:"online"`
	State   string           `json:"state"`
	Means   string           `json:"means,omitempty"` // of the reason
	Do      string           `json:"do,omitempty"`
	Command string           `json:"command,omitempty"`    // that does it
	Since   relay.Millis     `json:"away_since,omitempty"` // with fateAway
	Answer  relay.MessageID  `json:"answer,omitempty"`     // the first message that the bot sent after it was given this one
	At      relay.Millis     `json:"answered_at,omitempty"`
	Outcome *outcome.Outcome `json:"outcome,omitempty"`
}

// withChats adds the chats of the transcripts that are not known as groups: where only this bot has spoken,
// a group may not be known as one yet. The chat with the newest entry is first.
func (w *whyCall) withChats(ctx context.Context, groups []steer.Group) []steer.Group {
	data, err := w.api.call(ctx, http.MethodGet, "/v1/transcripts", nil)
	if err != nil {
		return groups // the groups are enough mostly
	}
	var answer struct {
		Transcripts []struct {
			steer.Group
			Modified relay.Millis
			Last     *transcript.Entry
		}
	}
	if w.read(data, &answer) != nil {
		return groups
	}
	type chat struct {
		channel string
		id      relay.ChatID
	}
	newest := map[chat]int64{} // when its newest entry was sent
	for _, c := range answer.Transcripts {
		if !slices.ContainsFunc(groups, func(g steer.Group) bool { return g.Channel == c.Channel && g.ChatID == c.ChatID }) {
			groups = append(groups, c.Group)
		}
		at := int64(c.Modified)
		if c.Last != nil {
			at = c.Last.TS
		}
		newest[chat{c.Channel, c.ChatID}] = at
	}
	slices.SortStableFunc(groups, func(a, b steer.Group) int {
		return cmp.Compare(newest[chat{b.Channel, b.ChatID}], newest[chat{a.Channel, a.ChatID}])
	})
	return groups
}

// find looks for a message in groups.
func (w *whyCall) find(ctx context.Context, groups []steer.Group, id relay.MessageID) (*explained, error) {
	for _, g := range groups {
		w.group = g
		entry, later, about, err := w.entry(ctx, id)
		if err != nil {
			return nil, err
		}
		if about == "" {
			return nil, fmt.Errorf("nobody has said anything in %s yet", groupTitle(g))
		}
		outcomes, since, err := w.outcomes(ctx, about)
		if err != nil {
			return nil, err
		}
		if entry != nil || len(outcomes) > 0 {
			return w.explain(about, entry, later, outcomes, since), nil
		}
	}
	if strings.HasPrefix(string(id), "msg_") {
		return nil, fmt.Errorf("%.100q is in no group; is it mail? `feishu-relay mailbox tasks` shows how tasks stand, "+
			"`feishu-relay mailbox inbox` what waits for the bot", id)
	}
	if len(groups) == 0 {
		return nil, errors.New("the sidecar knows of no group yet: was anything said to this bot, or by it?")
	}
	return nil, fmt.Errorf("no message %.100q is among the newest of %s; "+
		"`feishu-relay transcript show CHAT` shows the recorded ones", id, groupNames(groups))
}

// entry is the message in the transcript of the group, and later what was said after it; nil: it is not among
// the newest.
func (w *whyCall) entry(ctx context.Context, id relay.MessageID) (
	entry *shownEntry, later []shownEntry, about relay.MessageID, err error) {
	query := url.Values{"limit": {fmt.Sprint(whyEntries)}}
	path := "/v1/transcripts/" + url.PathEscape(w.group.Channel) + "/" + url.PathEscape(string(w.group.ChatID)) + "?" +
		query.Encode()
	data, err := w.api.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, nil, id, err
	}
	var answer struct{ Entries []shownEntry }
	if err := w.read(data, &answer); err != nil {
		return nil, nil, id, err
	}
	said := slices.DeleteFunc(answer.Entries, func(e shownEntry) bool { return isNotice(e.Entry) || e.EditOf != "" })
	for i, e := range slices.Backward(said) {
		if id == "" || e.MessageID == string(id) {
			return &e, said[i+1:], relay.MessageID(e.MessageID), nil
		}
	}
	return nil, nil, id, nil
}

// outcomes are those of a message, "" for any; since is from when on all outcomes of the group are known.
func (w *whyCall) outcomes(ctx context.Context, id relay.MessageID) (found []outcome.Outcome, since relay.Millis, err error) {
	query := url.Values{"chat_id": {string(w.group.ChatID)}, "limit": {fmt.Sprint(whyOutcomes)}}
	data, err := w.api.call(ctx, http.MethodGet, w.path("/v1/outcomes", query), nil)
	if err != nil {
		return nil, 0, err
	}
	var answer struct {
		Outcomes []outcome.Outcome
		Complete bool
	}
	if err := w.read(data, &answer); err != nil {
		return nil, 0, err
	}
	if !answer.Complete || len(answer.Outcomes) >= whyOutcomes {
		since = relay.MillisOf(w.now)
		for _, o := range answer.Outcomes {
			since = min(since, o.At)
		}
	}
	found = slices.DeleteFunc(answer.Outcomes, func(o outcome.Outcome) bool { return id != "" && o.RelayMsgID != id })
	return found, since, nil
}

// explain puts together what is known. Where the outcomes of the message's time are known, a bot without
// one has not decided yet.
func (w *whyCall) explain(id relay.MessageID, entry *shownEntry, later []shownEntry, outcomes []outcome.Outcome,
	since relay.Millis) *explained {
	x := &explained{Channel: w.group.Channel, ChatID: w.group.ChatID, Group: w.group.Name, MessageID: id, Message: entry,
		Bots: []botFate{}, later: later}
	sender := relay.AgentName("")
	if entry != nil {
		x.Depth = entry.Depth
	}
	if entry != nil && entry.Role == relay.RoleAssistant {
		sender = relay.AgentName(entry.Sender)
	}
	seen := map[relay.AgentName]bool{}
	for _, o := range outcomes {
		seen[o.Agent] = true
		if o.Decision != nil {
			x.Depth = max(x.Depth, o.Decision.Depth)
		}
		f := botFate{Agent: o.Agent, Name: w.botName(o.Agent), Online: w.online(o.Agent), Outcome: &o}
		switch {
		case o.Stopped != "":
			w.stopped(&f, later)
		case o.Delivered != 0:
			w.delivered(&f, x.person(), later)
		case w.isAway(&f, false):
		default:
			f.State, f.Do = fateWaits, w.say("is the bot there? It may also be thinking: `feishu-relay status` shows what it has not answered",
				"机器人在吗？也可能还在想：`feishu-relay status` 显示它没有回答的消息")
		}
		x.Bots = append(x.Bots, f)
	}
	for _, b := range w.group.Bots {
		if seen[b.Agent] || b.Agent == sender {
			continue
		}
		f := botFate{Agent: b.Agent, Name: w.botName(b.Agent), Online: b.Online}
		if entry != nil && w.now.Sub(time.UnixMilli(entry.TS)) < steer.OnItsWay && b.Online {
			f.State = fateUndecided
		} else {
			w.unknown(&f, x.person(), since == 0 || entry != nil && relay.Millis(entry.TS) >= since)
		}
		x.Bots = append(x.Bots, f)
	}
	for i := range x.Bots {
		x.Bots[i].Command = w.command(x.Bots[i:i+1], later)
	}
	return x
}

// person reports whether a person said the message.
func (x *explained) person() bool { return x.Message != nil && x.Message.Role == relay.RoleUser }

// stopped fills in f for a message that was stopped at the bot.
func (w *whyCall) stopped(f *botFate, later []shownEntry) {
	why := f.Outcome.Stopped
	f.State, f.Means = fateStopped, string(why)
	if a, ok := outcome.Advise(why); ok {
		f.Means, f.Do = a.Means.In(w.chinese), a.Do.In(w.chinese)
	} else if text := steer.ReasonText(why, w.chinese); text != "" {
		f.Means = text
	}
	if w.released(why) && personSpoke(later) {
		f.Do = w.say("nothing: a person has spoken since, and the bots answer again", "不用处理：之后有人说过话，机器人会继续回答")
	}
}

// delivered fills in f for a message that the bot has.
func (w *whyCall) delivered(f *botFate, person bool, later []shownEntry) {
	f.State = fateDelivered
	i := slices.IndexFunc(later, func(e shownEntry) bool {
		return e.Role == relay.RoleAssistant && relay.AgentName(e.Sender) == f.Agent
	})
	switch waited := w.now.Sub(f.Outcome.Delivered.Time()); {
	case i >= 0:
		f.Answer, f.At = relay.MessageID(later[i].MessageID), relay.Millis(later[i].TS)
	case !person: // a bot need not answer a bot
	case waited < w.limit:
		f.Do = w.say("it may still be working on it: it has had the message for %s, and may take %s (DELIVERY_TIMEOUT)",
			"它可能还在处理：收到已 %s，最多可用 %s（DELIVERY_TIMEOUT）", w.age(waited), w.age(w.limit))
	default:
		f.Do = w.say("the relay has done its part: look into the bot's own log for why it sends nothing",
			"中继已经送到：请查机器人自己的日志，看它为什么没有发言")
	}
}

// unknown fills in f for a message of which nothing is noted at the bot; recent: it would be.
func (w *whyCall) unknown(f *botFate, person, recent bool) {
	switch {
	case !f.Online && person:
		f.State, f.Do = fateOffline, w.say("start its sidecar and its bot", "启动它的边车和机器人")
	case !f.Online:
		f.State, f.Do = fateOffline, w.say("start its sidecar: it is given the message if that is within RELAY_MAX_AGE",
			"启动它的边车：在 RELAY_MAX_AGE 之内它还会收到")
	case !recent:
		f.State, f.Do = fateNotRecorded, w.say("look into the log of its sidecar", "查它的边车的日志")
	case w.isAway(f, person):
	case person:
		f.State, f.Do = fateNotHeard, w.say("is the bot connected (`feishu-relay status`)? Feishu brings a person's message to a bot "+
			"that is mentioned, and others only to apps with the scope for all messages of a group (`feishu-relay check`)",
			"机器人连上了吗（`feishu-relay status`）？飞书把人的消息送给被点名的机器人；其他消息只送给有“群内所有消息”权限的应用（`feishu-relay check`）")
	default:
		f.State, f.Do = fateUndecided, w.say("it may wait behind an earlier message of this chat, or the judge "+
			"thinks; if it stays so, its sidecar does not read this queue: `feishu-relay check` at both",
			"它可能排在本群更早的消息后面，或裁判还在想；若一直这样，它的边车没有读这个队列：在两边运行 `feishu-relay check`")
	}
}

// isAway fills in f if its bot is not connected. What another bot said waits for it; of what a person said, only what
// Feishu has brought to its sidecar, which is not known here.
func (w *whyCall) isAway(f *botFate, person bool) bool {
	since, away := w.away[f.Agent]
	if !away {
		return false
	}
	f.State, f.Since = fateAway, relay.MillisOf(since)
	if person {
		f.Do = w.say("start the bot: the message waits for it if its sidecar is a connector that Feishu has given it to",
			"启动机器人：如果边车是连接器，并且飞书已把消息送给它，消息会等着机器人")
	} else {
		f.Do = w.say("start the bot: the message waits for it, for RELAY_MAX_AGE (10 minutes by default) at most",
			"启动机器人：消息会等着它，最久 RELAY_MAX_AGE（默认 10 分钟）")
	}
	return true
}

// released reports whether `continue` gives the bots what was stopped for a reason.
func (w *whyCall) released(why relay.Reason) bool {
	return why == relay.MaxDepth || why == relay.Budget
}

func personSpoke(later []shownEntry) bool {
	return slices.ContainsFunc(later, func(e shownEntry) bool { return e.Role == relay.RoleUser })
}

// command is the one that does what is advised about bots at which a message stopped for one reason, "" for
// none.
func (w *whyCall) command(bots []botFate, later []shownEntry) string {
	o := bots[0].Outcome
	if o == nil || o.Stopped == "" {
		return ""
	}
	var names []string
	for _, b := range bots {
		names = append(names, shellWord(string(b.Agent)))
	}
	all := strings.Join(names, " ")
	words := ""
	switch {
	case w.released(o.Stopped) && !personSpoke(later):
		words = "continue " + all
	case o.Stopped == relay.Muted:
		words = "unmute " + all
	case o.Stopped == relay.Paused:
		words = "resume"
	case o.Stopped == relay.StoppedByPerson && !personSpoke(later):
		words = "continue"
	case o.Stopped == relay.NotForMe:
		words = "answer all"
	case o.Stopped == relay.JudgeNo:
		words = fmt.Sprintf("threshold %d", w.group.Settings.Threshold+1)
	}
	if words == "" {
		return ""
	}
	return "feishu-relay group " + w.where + shellWord(groupName(w.group)) + " " + words
}

func (w *whyCall) online(agent relay.AgentName) bool {
	i := slices.IndexFunc(w.group.Bots, func(b steer.Bot) bool { return b.Agent == agent })
	return i >= 0 && w.group.Bots[i].Online
}

// text is x for people.
func (w *whyCall) text(x *explained) string {
	lines := []string{w.title(x)}
	if e := x.Message; e != nil {
		lines = append(lines, "  "+w.paint.text(dim, runes.Fit(strings.Join(contentLines(e.Entry), " "), whyText)))
	}
	if len(x.Bots) == 0 {
		lines = append(lines, w.say("No other bot is known in this group.", "本群没有已知的其他机器人。"))
	}
	for _, f := range x.Bots {
		lines = append(lines, w.fate(f))
	}
	advised := w.advised(x)
	if len(advised) > 0 {
		lines = append(append(lines, "", w.paint.text(bold, w.say("What to do:", "怎么办："))), advised...)
	}
	return strings.Join(lines, "\n")
}

// advised is what to do, once for all bots that it is the same for.
func (w *whyCall) advised(x *explained) (lines []string) {
	var said []string
	for i, f := range x.Bots {
		advice := w.advice(f)
		if advice == "" || slices.Contains(said, advice) {
			continue
		}
		said = append(said, advice)
		lines = append(lines, advice)
		alike := slices.DeleteFunc(slices.Clone(x.Bots[i:]), func(b botFate) bool { return w.advice(b) != advice })
		if f.Command != "" {
			lines = append(lines, "    "+w.command(alike, x.later))
		}
	}
	return lines
}

func (w *whyCall) title(x *explained) string {
	group := groupTitle(w.group)
	by, when := "", ""
	if e := x.Message; e != nil {
		by = cmp.Or(e.SenderName, e.Sender)
		if e.Role == relay.RoleAssistant {
			by = w.botName(relay.AgentName(e.Sender))
		}
		when = time.UnixMilli(e.TS).Format("2006-01-02 15:04:05")
	} else if len(x.Bots) > 0 && x.Bots[0].Outcome != nil {
		by = w.botName(x.Bots[0].Outcome.Sender)
		when = x.Bots[0].Outcome.At.Time().Local().Format("2006-01-02 15:04:05")
	}
	depth := ""
	if x.Depth > 0 {
		depth = w.say(", depth %d", "，深度 %d", x.Depth)
	}
	return w.paint.text(bold, neutral(string(x.MessageID))) + w.say(": %s in %s, %s%s", "：%s，在 %s，%s%s",
		neutral(by), group, when, depth)
}

// fate is one line about a bot.
func (w *whyCall) fate(f botFate) string {
	name := neutral(f.Name)
	if f.Name != string(f.Agent) {
		name += " (" + neutral(string(f.Agent)) + ")"
	}
	mark, text := w.paint.text(dim, "?"), ""
	switch o := f.Outcome; f.State {
	case fateDelivered:
		mark = w.paint.text(green, "✓")
		at := o.Delivered.Time().Local().Format(time.TimeOnly)
		text = w.say("given to it at %s by %s", "%s 由 %s 送达", at, neutral(o.Door))
		if o.Door == "" { // it has the message from Feishu
			text = w.say("it reported the message itself at %s", "它在 %s 自己报告了这条消息", at)
		}
		if f.Answer != "" {
			text += w.say("; it sent %s at %s", "；它在 %[2]s 发出 %[1]s", neutral(string(f.Answer)),
				f.At.Time().Local().Format(time.TimeOnly))
		} else {
			text += w.say("; it has sent nothing here since", "；此后它没有在这里发言")
		}
	case fateStopped:
		mark = w.paint.text(yellow, "✗")
		text = w.say("not given to it, %s: %s", "没有转给它，%s：%s", neutral(string(o.Stopped)), neutral(f.Means))
		if o.Detail != "" {
			text += " (" + neutral(o.Detail) + ")"
		}
	case fateWaits:
		mark = w.paint.text(yellow, "…")
		text = w.say("let through, and the bot has not taken it yet", "已放行，机器人还没有收下")
	case fateAway:
		mark = w.paint.text(yellow, "…")
		text = w.say("its bot is not connected since %s", "机器人自 %s 起未连接", moment(f.Since.Time()))
	case fateOffline:
		text = w.say("offline: its sidecar has not read it", "离线：它的边车还没有读到这条消息")
	case fateUndecided:
		text = w.say("it is on its way there, or not decided on yet", "正在送达，或还没有作出决定")
	case fateNotHeard:
		text = w.say("online, and as far as is known Feishu has not given it this message", "在线；据已知，飞书没有把这条消息送给它")
	default:
		text = w.say("nothing is recorded of it: too long ago, or from before its sidecar first ran",
			"没有记录：时间太久，或在它的边车第一次启动之前")
	}
	return fmt.Sprintf("%s %s: %s", mark, name, text)
}

// advice is what to do about f, "" for nothing.
func (w *whyCall) advice(f botFate) string {
	if f.Do == "" {
		return ""
	}
	about := neutral(f.Name)
	if f.Outcome != nil && f.Outcome.Stopped != "" {
		about = string(f.Outcome.Stopped)
		if a, ok := outcome.Advise(f.Outcome.Stopped); ok && a.More.EN != "" {
			return fmt.Sprintf("  %s: %s (docs/%s)", neutral(about), f.Do, a.More.In(w.chinese))
		}
	}
	return fmt.Sprintf("  %s: %s", neutral(about), f.Do)
}

// print writes lines that are neutral already.
func (w *whyCall) print(text string) error {
	_, err := io.WriteString(w.out, text+"\n")
	return err
}
