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

	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

const whySynopsis = `why [flags] MESSAGE_ID
       feishu-relay why [flags] --chat CHAT

Says what became of a message at each bot of its group, and what to do. With --chat alone it is
the last message of that chat: a chat id, the group's name, or the beginning of an id.
It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN).

  feishu-relay why om_dc13264520f392
  feishu-relay why --chat oc_a1b2 --lang zh
`

const (
	whyOutcomes = 5000 // of a group are asked for; a message beyond them counts as not recorded
	whyEntries  = 1000 // of its transcript
	whyText     = 120  // characters of the message are shown
)

// runWhy explains what became of a message.
func runWhy(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := envFlags("why", whySynopsis, stdout, stderr)
	addr := f.String("addr", "", "`host:port` where the sidecar listens (default LISTEN_ADDR)")
	chat := f.String("chat", "", "the `chat` that the message is in; alone: its last message")
	lang := f.String("lang", "", langHelp)
	asJSON := f.Bool("json", false, "print one object: the message, and what became of it at each bot")
	rest, err := f.parse(args, 1)
	if err != nil {
		return err
	}
	chinese, err := inChinese(*lang)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return errUsage
	}
	if len(rest) == 0 && *chat == "" {
		fmt.Fprintln(stderr, "which message? `feishu-relay why MESSAGE_ID`, or `feishu-relay why --chat CHAT` for the last one; "+
			"`feishu-relay status` lists the groups")
		return errUsage
	}
	api, err := newLocalAPI(*addr)
	if err != nil {
		return err
	}
	w := whyCall{groupCall: groupCall{out: stdout, api: api, now: time.Now()}, words: words{chinese}, paint: newPaint(stdout)}
	groups, _, err := w.groups(ctx)
	if err != nil {
		return err
	}
	groups = w.withChats(ctx, groups)
	if *chat != "" {
		g, err := findGroup(groups, *chat)
		if err != nil {
			return err
		}
		groups = []steer.Group{g}
	}
	var id relay.MessageID
	if len(rest) > 0 {
		id = relay.MessageID(rest[0])
	}
	found, err := w.find(ctx, groups, id)
	if err != nil {
		return err
	}
	if *asJSON {
		return writeLine(stdout, found)
	}
	return w.print(w.text(found))
}

// whyCall is one use of the command.
type whyCall struct {
	groupCall
	words
	paint *paint
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
}

// The states of a message at a bot.
const (
	fateDelivered   = "delivered"
	fateStopped     = "stopped"
	fateWaits       = "waits"        // for the bot
	fateOffline     = "offline"      // nothing is noted, and the sidecar does not run
	fateUndecided   = "undecided"    // nothing is noted yet
	fateNotRecorded = "not_recorded" // nothing is noted any more, or it was never
)

// botFate is what became of a message at a bot.
type botFate struct {
	Agent   relay.AgentName  `json:"agent"`
	Name    string           `json:"name"`
	Online  bool             `json:"online"`
	State   string           `json:"state"`
	Means   string           `json:"means,omitempty"` // of the reason
	Do      string           `json:"do,omitempty"`
	Outcome *outcome.Outcome `json:"outcome,omitempty"`
}

// withChats adds the chats of the transcripts that are no known groups: where only this bot has spoken,
// a group may not be known as one yet.
func (w *whyCall) withChats(ctx context.Context, groups []steer.Group) []steer.Group {
	data, err := w.api.call(ctx, http.MethodGet, "/v1/transcripts", nil)
	if err != nil {
		return groups // the groups are enough mostly
	}
	var answer struct{ Transcripts []steer.Group }
	if w.read(data, &answer) != nil {
		return groups
	}
	for _, c := range answer.Transcripts {
		if !slices.ContainsFunc(groups, func(g steer.Group) bool { return g.Channel == c.Channel && g.ChatID == c.ChatID }) {
			groups = append(groups, c)
		}
	}
	return groups
}

// find looks for a message in groups; "" is the last one of the only group.
func (w *whyCall) find(ctx context.Context, groups []steer.Group, id relay.MessageID) (*explained, error) {
	for _, g := range groups {
		w.group = g
		entry, about, err := w.entry(ctx, id)
		if err != nil {
			return nil, err
		}
		if about == "" {
			return nil, fmt.Errorf("nobody has said anything in %s yet", groupName(g))
		}
		outcomes, since, err := w.outcomes(ctx, about)
		if err != nil {
			return nil, err
		}
		if entry != nil || len(outcomes) > 0 {
			return w.explain(about, entry, outcomes, since), nil
		}
	}
	if strings.HasPrefix(string(id), "msg_") {
		return nil, fmt.Errorf("%.100q is in no group; is it mail? `feishu-relay mailbox tasks` shows how tasks stand, "+
			"`feishu-relay mailbox inbox` what waits for the bot", id)
	}
	if len(groups) == 0 {
		return nil, errors.New("the sidecar knows of no group yet: was anything said to this bot, or by it?")
	}
	return nil, fmt.Errorf("no message %.100q is among the newest of %s; is it one of another bot's group, older, or of a private chat? "+
		"`feishu-relay transcript show CHAT` shows what this sidecar recorded", id, groupNames(groups))
}

// entry is the message in the transcript of the group; nil: it is not among the newest.
func (w *whyCall) entry(ctx context.Context, id relay.MessageID) (*shownEntry, relay.MessageID, error) {
	query := url.Values{"limit": {fmt.Sprint(whyEntries)}}
	if id == "" {
		query.Set("limit", "1")
	}
	path := "/v1/transcripts/" + url.PathEscape(w.group.Channel) + "/" + url.PathEscape(string(w.group.ChatID)) + "?" + query.Encode()
	data, err := w.api.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, id, err
	}
	var answer struct{ Entries []shownEntry }
	if err := w.read(data, &answer); err != nil {
		return nil, id, err
	}
	for _, e := range slices.Backward(answer.Entries) {
		if !isNotice(e.Entry) && e.EditOf == "" && (id == "" || e.MessageID == string(id)) {
			return &e, relay.MessageID(e.MessageID), nil
		}
	}
	return nil, id, nil
}

// outcomes are those of a message; since is from when on all outcomes of the group are known.
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
	found = slices.DeleteFunc(answer.Outcomes, func(o outcome.Outcome) bool { return o.RelayMsgID != id })
	return found, since, nil
}

// explain puts together what is known. Where the outcomes of the message's time are known, a bot without
// one has not decided yet.
func (w *whyCall) explain(id relay.MessageID, entry *shownEntry, outcomes []outcome.Outcome, since relay.Millis) *explained {
	x := &explained{Channel: w.group.Channel, ChatID: w.group.ChatID, Group: w.group.Name, MessageID: id, Message: entry,
		Bots: []botFate{}}
	sender := relay.AgentName("")
	if entry != nil {
		x.Depth = entry.Depth
	}
	if entry != nil && entry.Role == transcript.RoleAssistant {
		sender = relay.AgentName(entry.Sender)
	}
	seen := map[relay.AgentName]bool{}
	for _, o := range outcomes {
		seen[o.Agent] = true
		f := botFate{Agent: o.Agent, Name: w.botName(o.Agent), Online: w.online(o.Agent), Outcome: &o}
		if o.Decision != nil {
			x.Depth = max(x.Depth, o.Decision.Depth)
		}
		switch {
		case o.Stopped != "":
			f.State, f.Means = fateStopped, string(o.Stopped)
			if a, ok := outcome.Advise(o.Stopped); ok {
				f.Means, f.Do = a.Means.In(w.chinese), a.Do.In(w.chinese)
			} else if text := steer.ReasonText(o.Stopped, w.chinese); text != "" {
				f.Means = text
			}
		case o.Delivered != 0:
			f.State = fateDelivered
		default:
			f.State, f.Do = fateWaits, w.say("is the bot there? It may also be thinking: GET /v1/deliveries lists what it has not answered",
				"机器人在吗？也可能还在想：GET /v1/deliveries 列出它没有回答的消息")
		}
		x.Bots = append(x.Bots, f)
	}
	for _, b := range w.group.Bots {
		if seen[b.Agent] || b.Agent == sender || entry != nil && entry.Role == transcript.RoleUser {
			continue // people's messages come to each bot from Feishu itself
		}
		f := botFate{Agent: b.Agent, Name: w.botName(b.Agent), Online: b.Online}
		switch {
		case !b.Online:
			f.State, f.Do = fateOffline, w.say("start its sidecar: it is given the message if that is within RELAY_MAX_AGE",
				"启动它的边车：在 RELAY_MAX_AGE 之内它还会收到")
		case since == 0 || entry != nil && relay.Millis(entry.TS) >= since:
			f.State, f.Do = fateUndecided, w.say("it may wait behind an earlier message of this chat, or the judge "+
				"thinks; if it stays so, its sidecar does not read this queue: `feishu-relay check` at both",
				"它可能排在本群更早的消息后面，或裁判还在想；若一直这样，它的边车没有读这个队列：在两边运行 `feishu-relay check`")
		default:
			f.State, f.Do = fateNotRecorded, w.say("look into the log of its sidecar", "查它的边车的日志")
		}
		x.Bots = append(x.Bots, f)
	}
	return x
}

func (w *whyCall) online(agent relay.AgentName) bool {
	i := slices.IndexFunc(w.group.Bots, func(b steer.Bot) bool { return b.Agent == agent })
	return i >= 0 && w.group.Bots[i].Online
}

// text is x for people.
func (w *whyCall) text(x *explained) string {
	lines := []string{w.title(x)}
	if e := x.Message; e != nil {
		lines = append(lines, "  "+w.paint.text(dim, cutTo(strings.Join(contentLines(e.Entry), " "), whyText)))
	}
	person := x.Message != nil && x.Message.Role == transcript.RoleUser
	if person && len(x.Bots) == 0 {
		lines = append(lines, w.say("A person's message: each bot gets it from Feishu itself. The relay has stopped it nowhere.",
			"这是人说的话：每个机器人直接从飞书收到，中继没有拦下它。"))
	} else if len(x.Bots) == 0 {
		lines = append(lines, w.say("No other bot is known in this group.", "本群没有已知的其他机器人。"))
	}
	for _, f := range x.Bots {
		lines = append(lines, w.fate(f))
	}
	var advised []string
	for _, f := range x.Bots {
		if advice := w.advice(f); advice != "" && !slices.Contains(advised, advice) {
			advised = append(advised, advice)
		}
	}
	if len(advised) > 0 {
		lines = append(append(lines, "", w.paint.text(bold, w.say("What to do:", "怎么办："))), advised...)
	}
	return strings.Join(lines, "\n")
}

func (w *whyCall) title(x *explained) string {
	group := cmp.Or(neutral(x.Group), groupName(w.group))
	by, when := "", ""
	if e := x.Message; e != nil {
		by = cmp.Or(e.SenderName, e.Sender)
		if e.Role == transcript.RoleAssistant {
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
		text = w.say("given to it at %s by %s", "%s 由 %s 送达", o.Delivered.Time().Local().Format(time.TimeOnly),
			neutral(cmp.Or(o.Door, "?")))
	case fateStopped:
		mark = w.paint.text(yellow, "✗")
		text = w.say("not given to it, %s: %s", "没有转给它，%s：%s", neutral(string(o.Stopped)), neutral(f.Means))
		if o.Detail != "" {
			text += " (" + neutral(o.Detail) + ")"
		}
	case fateWaits:
		mark = w.paint.text(yellow, "…")
		text = w.say("let through, and the bot has not taken it yet", "已放行，机器人还没有收下")
	case fateOffline:
		text = w.say("offline: it has not had a look at it", "离线：还没有看过这条消息")
	case fateUndecided:
		text = w.say("online, and has not decided yet", "在线，还没有作出决定")
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
		if a, ok := outcome.Advise(f.Outcome.Stopped); ok && a.More != "" {
			return fmt.Sprintf("  %s: %s (docs/%s)", neutral(about), f.Do, a.More)
		}
	}
	return fmt.Sprintf("  %s: %s", neutral(about), f.Do)
}

// cutTo is text of at most n characters; what is cut is shown by an ellipsis.
func cutTo(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// print writes lines that are neutral already.
func (w *whyCall) print(text string) error {
	_, err := io.WriteString(w.out, text+"\n")
	return err
}
