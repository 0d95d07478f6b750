package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/internal/words"
	"feishu-relay/mailbox"
	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
	"feishu-relay/steer"
)

const statusHelp = `One screen: who is online, the groups with their depth and last stop, what waits,
and the last errors. It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN).
Without one it says so, and exits with status 1.

  feishu-relay status --env-file bot.env
  feishu-relay status --watch
  feishu-relay status --json | jq '.groups[] | {chat_id, depth}'`

const (
	statusEvery  = 2 * time.Second // between two screens of --watch
	maxStatus    = 20              // groups, agents or errors on a screen
	statusErrors = 5
)

type statusCommand struct {
	language
	reach
	Watch bool `long:"watch"`
	JSON  bool `long:"json"`
}

func (c *statusCommand) run(p *cli, _ []string) error {
	api, err := newLocalAPI(c.Addr)
	if err != nil {
		return err
	}
	api.inline = inline{inChinese(c.Lang)}
	s := statusCall{groupCall: groupCall{out: p.stdout, api: api, json: c.JSON}, inline: api.inline,
		paint: newPaint(p.stdout)}
	ctx := p.ctx
	for {
		s.now = time.Now()
		err := s.show(ctx, c.Watch)
		if !c.Watch || ctx.Err() != nil {
			return err
		}
		if err != nil && !errors.Is(err, errFailed) {
			return err
		}
		if wait.Sleep(ctx, statusEvery) != nil {
			return nil
		}
	}
}

// statusCall is one use of the command.
type statusCall struct {
	groupCall
	inline
	paint *paint
}

// statusShown is what a screen shows.
type statusShown struct {
	Sidecar    *sidecarShown `json:"sidecar"` // nil: none answers
	Error      string        `json:"error,omitempty"`
	Groups     []groupShown  `json:"groups"`
	Deliveries []struct {
		ID    relay.MessageID `json:"relay_msg_id"`
		Chat  relay.ChatID    `json:"chat_id"`
		Door  string          `json:"door"`
		Since relay.Millis    `json:"since"`
	} `json:"deliveries"` // that the bot has and has not answered
	Agents []sidecar.AgentStatus `json:"agents"`
}

// sidecarShown is what of GET /v1/status is shown.
type sidecarShown struct {
	Version  string                         `json:"version"`
	Identity sidecar.Identity               `json:"identity"`
	Started  time.Time                      `json:"started"`
	Ready    bool                           `json:"ready"`
	NotReady string                         `json:"not_ready,omitempty"`
	Backend  string                         `json:"backend"`
	Door     sidecar.DoorStatus             `json:"door"`
	Waiting  sidecar.WaitingStatus          `json:"waiting"`
	Queues   map[string]sidecar.QueueStatus `json:"queues"`
	Mailbox  *sidecar.MailboxStatus         `json:"mailbox,omitempty"`
	Agents   []sidecar.AgentStatus          `json:"agents"`
	Errors   []sidecar.Problem              `json:"last_errors"`
}

// groupShown is a group, and the last message that stopped there as far as it is recorded.
type groupShown struct {
	steer.Group
	Stop *outcome.Outcome `json:"last_stopped,omitempty"`
}

// show prints one screen.
func (s *statusCall) show(ctx context.Context, watch bool) error {
	shown, err := s.ask(ctx)
	if _, ok := errors.AsType[noSidecar](err); ok {
		shown = &statusShown{Error: err.Error(), Groups: []groupShown{}, Agents: []sidecar.AgentStatus{}}
	} else if err != nil {
		return err
	}
	if s.json {
		if err := writeLine(s.out, shown); err != nil {
			return err
		}
	} else {
		text := s.screen(shown)
		if f, ok := s.out.(*os.File); ok && watch && term.IsTerminal(int(f.Fd())) {
			text = "\x1b[H\x1b[2J" + text // the screen before it goes
		}
		if _, err := io.WriteString(s.out, text); err != nil {
			return err
		}
	}
	if shown.Sidecar == nil {
		return errFailed
	}
	return nil
}

// ask asks the running sidecar.
func (s *statusCall) ask(ctx context.Context) (*statusShown, error) {
	shown := &statusShown{Groups: []groupShown{}}
	data, err := s.api.call(ctx, http.MethodGet, "/v1/status", nil)
	if err != nil {
		return nil, err
	}
	if err := s.read(data, &shown.Sidecar); err != nil {
		return nil, err
	}
	shown.Agents = shown.Sidecar.Agents
	groups, _, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		s.group = g
		stop, err := s.lastStop(ctx)
		if err != nil {
			return nil, err
		}
		shown.Groups = append(shown.Groups, groupShown{g, stop})
	}
	if data, err = s.api.call(ctx, http.MethodGet, "/v1/deliveries", nil); err != nil {
		return nil, err
	}
	return shown, s.read(data, shown)
}

// lastStop is the newest message of the group that was stopped and that somebody may wonder about.
func (s *statusCall) lastStop(ctx context.Context) (*outcome.Outcome, error) {
	query := url.Values{"chat_id": {string(s.group.ChatID)}, "limit": {"200"}}
	data, err := s.api.call(ctx, http.MethodGet, s.path("/v1/outcomes", query), nil)
	if err != nil {
		return nil, err
	}
	var answer struct{ Outcomes []outcome.Outcome }
	if err := s.read(data, &answer); err != nil {
		return nil, err
	}
	for _, o := range slices.Backward(answer.Outcomes) {
		if o.Stopped != "" && o.Stopped != relay.Command && o.Stopped != relay.Continue && o.Stopped != relay.NotForMe {
			return &o, nil
		}
	}
	return nil, nil
}

// screen is a screen for people.
func (s *statusCall) screen(x *statusShown) string {
	var b strings.Builder
	line := func(title, text string) {
		fmt.Fprintf(&b, "%s  %s\n", padded(s.paint.text(bold, title), title, 8), text)
	}
	if x.Sidecar == nil {
		fmt.Fprintf(&b, "%s %s\n", s.paint.text(red, "✗"), neutral(x.Error))
		b.WriteString(s.say("Start it with the bot's environment: `feishu-relay`, or `feishu-relay run --env-file bot.env`; "+
			"`feishu-relay check` says what is missing.\n", "用机器人的环境启动它：`feishu-relay`，或 `feishu-relay run --env-file bot.env`；"+
			"`feishu-relay check` 会说缺什么。\n"))
	} else {
		s.sidecarLines(line, x)
	}
	if agents := s.agents(x.Agents); agents != "" {
		line(s.say("Agents", "智能体"), agents)
	}
	b.WriteString(s.groupTable(x))
	if x.Sidecar != nil {
		s.errorLines(&b, x.Sidecar.Errors)
	}
	return b.String()
}

func (s *statusCall) sidecarLines(line func(title, text string), x *statusShown) {
	c := x.Sidecar
	name := neutral(string(c.Identity.Agent))
	if c.Identity.Name != "" && c.Identity.Name != name {
		name += " (" + neutral(c.Identity.Name) + ")"
	}
	ready := s.paint.text(green, s.say("ready", "就绪"))
	if !c.Ready {
		ready = s.paint.text(red, s.say("not ready: ", "未就绪：")+neutral(c.NotReady))
	}
	up := ""
	if !c.Started.IsZero() {
		up = s.say(", started %s ago", "，%s前启动", s.age(s.now.Sub(c.Started)))
	}
	line(s.say("Sidecar", "边车"), strings.Join([]string{name, ready, c.Backend,
		neutral(cmp.Or(c.Version, "?"))}, s.say(", ", "，"))+up)
	bot := s.say("posted to (webhook)", "投递到 webhook")
	if c.Door.Connected != nil {
		bot = s.paint.text(yellow, s.say("not connected (%s)", "未连接（%s）", neutral(c.Door.Name)))
		if *c.Door.Connected {
			bot = s.paint.text(green, s.say("connected (%s)", "已连接（%s）", neutral(c.Door.Name)))
		}
	}
	line(s.say("Bot", "机器人"), bot)
	line(s.say("Waits", "等待"), s.waits(x))
}

// waits is what waits, in one line.
func (s *statusCall) waits(x *statusShown) string {
	var parts []string
	if n := len(x.Deliveries); n > 0 {
		oldest := x.Deliveries[0].Since
		for _, d := range x.Deliveries {
			oldest = min(oldest, d.Since)
		}
		parts = append(parts, s.say("%d given to the bot and not answered, the oldest for %s", "%d 条已给机器人、未回答，最久已等 %s", n,
			s.age(s.now.Sub(oldest.Time()))))
	}
	if w := x.Sidecar.Waiting; w.Messages > 0 {
		parts = append(parts, s.say("%d not given to the bot yet, the oldest for %s", "%d 条还没有给机器人，最久已等 %s", w.Messages,
			s.age(time.Duration(w.Oldest)*time.Millisecond)))
	}
	for name, whose := range map[string]string{"outbound": s.say("of bots' messages", "机器人消息"),
		"inbound": s.say("of people's messages", "人的消息")} {
		q := x.Sidecar.Queues[name]
		if q.Outbox.Pending > 0 {
			parts = append(parts, s.say("%d %s that the backend has not taken", "%d 条%s后端还没有收", q.Outbox.Pending, whose))
		}
		if q.Unsettled > 0 {
			parts = append(parts, s.say("%d %s in progress", "%d 条%s处理中", q.Unsettled, whose))
		}
	}
	if m := x.Sidecar.Mailbox; m != nil && m.Waiting > 0 {
		parts = append(parts, s.say("%d letters", "%d 封信", m.Waiting))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return s.say("nothing", "没有")
	}
	return strings.Join(parts, s.say("; ", "；"))
}

func (s *statusCall) agents(all []sidecar.AgentStatus) string {
	var names []string
	for _, a := range all[:min(len(all), maxStatus)] {
		name := neutral(string(a.Agent))
		if a.Name != "" && a.Name != string(a.Agent) {
			name = fmt.Sprintf("%s (%s)", runes.Fit(neutral(a.Name), 64), name)
		}
		switch {
		case a.Online && a.Bot != nil && !a.Bot.Connected:
			names = append(names, s.paint.text(yellow, "◐")+" "+name+s.away(a.Bot))
		case a.Online:
			names = append(names, s.paint.text(green, "●")+" "+name)
		default:
			names = append(names, s.paint.text(dim, "○ "+name+s.say(" (offline)", "（离线）")))
		}
	}
	if more := len(all) - maxStatus; more > 0 {
		names = append(names, s.say("%d more", "另有 %d 个", more))
	}
	return strings.Join(names, "  ")
}

// away says since when a bot is not connected.
func (s *statusCall) away(b *mailbox.Bot) string {
	return s.say(" (sidecar online, bot not connected since %s)", "（边车在线，机器人自 %s 起未连接）", moment(b.Since))
}

func (s *statusCall) groupTable(x *statusShown) string {
	if len(x.Groups) == 0 {
		if x.Sidecar == nil {
			return ""
		}
		return "\n" + s.say("No group yet: the sidecar knows one when its bot was heard or heard something there.\n",
			"还没有群：机器人在群里说过或听过话之后，边车才知道它。\n")
	}
	rows := make([][]string, 0, maxStatus)
	for _, g := range x.Groups[:min(len(x.Groups), maxStatus)] {
		row := []string{cmp.Or(cell(g.Name), "-"), groupName(g.Group)}
		if x.Sidecar != nil {
			row = append(row, s.groupCells(g)...)
		}
		rows = append(rows, row)
	}
	head := s.say("GROUP|CHAT", "群|会话")
	if x.Sidecar != nil {
		head += s.say("|DEPTH|ONLINE|STATE|LAST STOP", "|深度|在线|状态|最近一次停下")
	}
	var b strings.Builder
	b.WriteByte('\n')
	_ = writeTable(&b, head, rows) // a Builder never fails
	if more := len(x.Groups) - maxStatus; more > 0 {
		fmt.Fprintln(&b, s.say("%d more: `feishu-relay group` lists all", "另有 %d 个：`feishu-relay group` 列出全部", more))
	}
	return b.String()
}

func (s *statusCall) groupCells(g groupShown) []string {
	state := "-"
	switch {
	case g.Settings.Paused.Holds(s.now):
		state = s.say("paused", "已暂停")
	case len(g.Settings.Muted) > 0:
		state = s.say("%d muted", "%d 个静音", len(g.Settings.Muted))
	}
	stop := "-"
	if o := g.Stop; o != nil {
		s.group = g.Group
		stop = s.say("%s, %s ago: %s of %s at %s", "%s，%s前：%[4]s 的 %[3]s，在 %[5]s 处", neutral(string(o.Stopped)),
			s.age(s.now.Sub(o.At.Time())), neutral(string(o.RelayMsgID)), neutral(s.botName(o.Sender)), neutral(s.botName(o.Agent)))
	}
	return []string{fmt.Sprintf("%d/%d", g.Depth, g.Settings.Limit), canHear(g.Group), state, stop}
}

// errorLines are the newest errors, one line each.
func (s *statusCall) errorLines(b *strings.Builder, all []sidecar.Problem) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", s.paint.text(bold, s.say("Last errors", "最近的错误")))
	for _, e := range all[:min(len(all), statusErrors)] {
		when := e.At
		if at, err := time.Parse(time.RFC3339, e.At); err == nil {
			when = s.say("%s ago", "%s前", s.age(s.now.Sub(at)))
		}
		fmt.Fprintf(b, "%s %s (%d×, %s): %s\n", s.paint.text(yellow, "!"), neutral(e.Part), e.Count, when,
			runes.Fit(neutral(strings.Join(strings.Fields(e.Error), " ")), 300))
	}
	fmt.Fprintln(b, s.say("`feishu-relay check` looks for what is behind them; `feishu-relay why MESSAGE_ID` explains a message.",
		"`feishu-relay check` 查找原因；`feishu-relay why 消息ID` 解释一条消息。"))
}

// age is a span of time as people say it.
func (w inline) age(d time.Duration) string { return words.Words{Chinese: w.chinese}.Age(d) }

// padded is text, which shows as plain, at least n columns wide.
func padded(text, plain string, n int) string {
	return text + strings.Repeat(" ", max(0, n-runes.Columns(plain)))
}
