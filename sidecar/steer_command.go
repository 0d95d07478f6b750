package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// refuseAfter is how long a sidecar that cannot carry out a command leaves it to the others: an
// open_id is one app's view, and of what stopped elsewhere it hears later.
const refuseAfter = 2 * time.Second

// said is a person's message as commands are read from it.
func (s *steering) said(m *relay.Message) steer.Said {
	said := steer.Said{Text: m.Content}
	g := s.records.state(m.Channel, m.ChatID)
	for _, x := range m.Mentions {
		if x.Name == "" {
			continue
		}
		_, isBot := s.app.book.Bot(x.OpenID)
		said.Mentions = append(said.Mentions,
			steer.Mentioned{Text: "@" + x.Name, Agent: s.mentioned(g, x), IsBot: isBot || x.AgentName != ""})
	}
	return said
}

// mentioned is the bot of a group that a mention names, "" if none: by what the app knows of
// its id, else by its name, where one bot alone has that.
func (s *steering) mentioned(g *groupState, x relay.Mention) (agent relay.AgentName) {
	if _, in := g.record.Member(x.AgentName); in {
		return x.AgentName
	}
	for _, m := range g.members {
		if x.AgentName == "" && s.botName(g, m.Agent) == x.Name {
			if agent != "" {
				return ""
			}
			agent = m.Agent
		}
	}
	return agent
}

// isCommand reports whether a person's message is a command.
func (s *steering) isCommand(m *relay.Message) bool {
	_, is := s.parse(m)
	return is
}

// parse reads a person's message that may be a command.
func (s *steering) parse(m *relay.Message) (asked steer.Asked, is bool) {
	words := s.cfg.Steer.Commands
	if len(words) == 0 || !content.IsText(m.MsgType) {
		return asked, false
	}
	return steer.ParseCommand(s.said(m), words, s.named(s.records.state(m.Channel, m.ChatID)))
}

// command carries out a person's message that is a command.
func (s *steering) command(m *relay.Message, union string) error {
	s.announce(m.Channel, m.ChatID)
	if s.known.Contains(commandID(m)) {
		return nil
	}
	if now := relay.MillisOf(time.Now()); m.TS > now { // a pause would last for longer than it may
		bounded := *m
		bounded.TS, m = now, &bounded
	}
	s.awaitOthers(m.Channel, m.ChatID)
	asked, _ := s.parse(m)
	if time.Since(m.TS.Time()) > s.cfg.MaxAge { // too late to be carried out, and not unseen
		return s.publish(s.commandMark(m, asked, steer.Answer, nil))
	}
	g := s.group(m.Channel, m.ChatID)
	set, answer := s.execute(g, asked, m)
	if len(set) == 0 {
		return s.answer(m, asked, set, answer)
	}
	refusal := ""
	switch {
	case g.Locked:
		return s.answer(m, asked, nil, steer.Locked(asked.Chinese))
	case asked.Verb == steer.VerbContinue: // of anybody
		refusal = s.cannotContinue(g, m, asked)
	default:
		ctx, cancel := context.WithTimeout(context.Background(), personWait)
		defer cancel()
		if may, who := s.mayChange(ctx, m, union); !may {
			refusal = steer.Refused(who, asked.Chinese)
		}
	}
	if refusal != "" {
		s.refuse(m, asked, refusal)
		return nil
	}
	return s.answer(m, asked, set, answer)
}

// refuse answers a command that this sidecar cannot carry out, unless another one knows better.
func (s *steering) refuse(m *relay.Message, asked steer.Asked, answer string) {
	later := *m
	time.AfterFunc(refuseAfter, func() {
		if s.known.Contains(commandID(&later)) {
			return
		}
		if err := s.answer(&later, asked, nil, answer); err != nil {
			s.problems.set("steer", err)
		}
	})
}

func commandID(m *relay.Message) string { return "command/" + string(m.ID()) }

// execute is what a command changes, and its answer.
func (s *steering) execute(g steer.Group, asked steer.Asked, m *relay.Message) (steer.Set, string) {
	if asked.Mistake != nil {
		return nil, asked.Mistake.Text(asked.Chinese)
	}
	now := time.Now()
	switch asked.Verb {
	case steer.VerbStatus:
		return nil, steer.StatusText(s.withLastStop(context.Background(), g), now, asked.Chinese)
	case steer.VerbHelp:
		return nil, steer.HelpText(s.cfg.Steer.Commands, asked.Chinese)
	case steer.VerbWhy:
		return nil, s.why(g, m, asked.Chinese)
	}
	set, mistake := asked.Changes(g, m.TS)
	if mistake != nil {
		return nil, mistake.Text(asked.Chinese)
	}
	return set, asked.AnswerText(s.after(g, set.Of(m.TS, commandID(m))), m.TS.Time())
}

// cannotContinue says why the bots that a command names, none: any, cannot go on where m was said:
// nobody stopped them, and nothing that stopped since a person last spoke can be released.
func (s *steering) cannotContinue(g steer.Group, m *relay.Message, asked steer.Asked) string {
	record := s.records.state(m.Channel, m.ChatID).record
	since, err := s.spoken(m.Channel, m.ChatID, m.ThreadID, m.TS-1)
	if err != nil || record.Stopped() > record.Continued() {
		return ""
	}
	var muted []relay.AgentName
	mark := s.commandMark(m, asked, steer.Continue, nil)
	for _, bot := range s.stoppedSince(&mark, since) {
		switch {
		case len(asked.Bots) > 0 && !slices.Contains(asked.Bots, bot):
		case g.Settings.Muted[bot] == nil:
			return ""
		default:
			muted = append(muted, bot)
		}
	}
	if len(muted) > 0 {
		return steer.StillMuted(muted, g.Bots).Text(asked.Chinese)
	}
	return steer.NothingToContinue(asked.Chinese)
}

// stoppedSince are the bots at which a message stopped that a continue m can release: this bot by what it holds, the
// others by the outcomes since a time, as far as they are known.
func (s *steering) stoppedSince(m *steer.Mark, since relay.Millis) (bots []relay.AgentName) {
	if slices.ContainsFunc(s.heldBefore(m), func(h heldMessage) bool {
		fresh, err := s.canRelease(m, &h)
		return fresh && err == nil
	}) {
		bots = append(bots, s.cfg.Agent)
	}
	since = max(since, m.TS-relay.Millis(s.cfg.Steer.ContinueWindow.Milliseconds()))
	for _, o := range s.recent(context.Background(), m.Channel, m.ChatID) {
		if o.At > since && o.ThreadID == m.ThreadID && releasable(o.Stopped) && !slices.Contains(bots, o.Agent) &&
			!s.chats.recalls.has(o.Channel, o.ChatID, o.RelayMsgID) {
			bots = append(bots, o.Agent)
		}
	}
	return bots
}

// recent is what became of a group's newest messages, as far as it is known.
func (s *steering) recent(ctx context.Context, channel string, chat relay.ChatID) []outcome.Outcome {
	ctx, cancel := context.WithTimeout(ctx, personWait)
	defer cancel()
	list, _, err := s.watch.outcomes.Recent(ctx, channel, chat, maxWhy)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.problems.set("steer", err) // what is known is told
	}
	return list
}

// answer shares a command with what it changes, and has it answered once.
func (s *steering) answer(m *relay.Message, asked steer.Asked, set steer.Set, text string) error {
	act := steer.Change
	switch asked.Verb {
	case steer.VerbContinue:
		act = steer.Continue
	case steer.VerbStop:
		act = steer.Stop
	case steer.VerbStatus, steer.VerbHelp, steer.VerbWhy:
		act = steer.Answer
	}
	if set == nil {
		act = steer.Answer
	}
	once := "answer/" + string(m.ID())
	return s.publish(
		s.commandMark(m, asked, act, set),
		steer.Mark{ID: once + "/" + string(s.cfg.Agent), Kind: steer.Wanted, Act: steer.Answer, Once: once,
			Channel: m.Channel, ChatID: m.ChatID, ThreadID: m.ThreadID, Of: m.ID(), Text: text, Chinese: asked.Chinese})
}

func (s *steering) commandMark(m *relay.Message, asked steer.Asked, act steer.Act, set steer.Set) steer.Mark {
	return steer.Mark{ID: commandID(m), Kind: steer.Command, Act: act, Channel: m.Channel, ChatID: m.ChatID,
		ThreadID: m.ThreadID, MessageID: m.ID(), Of: m.ID(), By: byWhom(m), Bots: asked.Bots, Set: set, Text: m.Content,
		TS: m.TS}
}

// mayChange reports whether the person who sent m may change the group's settings, and who may.
func (s *steering) mayChange(ctx context.Context, m *relay.Message, union string) (may bool, who string) {
	by := s.records.state(m.Channel, m.ChatID).file.SteerBy
	if by == "" {
		by = s.cfg.Steer.By
	}
	switch by {
	case "", "members":
		return true, "members"
	case "admins":
		return m.SenderID != "" && slices.Contains(s.managers(ctx, m.ChatID), m.SenderID), "admins"
	}
	for id := range strings.SplitSeq(by, ",") {
		if id = strings.TrimSpace(id); id != "" && (id == string(m.SenderID) || id == union) {
			return true, "list"
		}
	}
	return false, "list"
}

// admins are who Feishu said at a time that owns and manages a group.
type admins struct {
	ids   []relay.OpenID
	asked time.Time
}

// managersFresh is how long Feishu's answer is believed who a group's owner and managers are.
const managersFresh = time.Minute

// managers are a group's owner and managers as this bot's app sees them; none: Feishu does not say.
func (s *steering) managers(ctx context.Context, chat relay.ChatID) []relay.OpenID {
	if known, ok := s.admins.Get(chat); ok && time.Since(known.asked) < managersFresh {
		return known.ids
	}
	if !s.app.api.Ready() {
		return nil
	}
	owner, managers, err := s.app.api.Managers(ctx, chat)
	if err != nil {
		s.problems.set("steer", err)
		return nil
	}
	managers = append(managers, owner)
	s.admins.Add(chat, admins{managers, time.Now()})
	return managers
}

// why is what became of the message that m replies to, else of the last one that stopped.
func (s *steering) why(g steer.Group, m *relay.Message, chinese bool) string {
	list, about := s.recent(context.Background(), g.Channel, g.ChatID), m.ParentID
	for i := len(list) - 1; i >= 0 && about == ""; i-- {
		if list[i].Stopped != "" {
			about = list[i].RelayMsgID
		}
	}
	if about == "" {
		return steer.NothingToContinue(chinese)
	}
	var fates []steer.Fate
	title := ""
	for _, o := range list {
		if o.RelayMsgID == about {
			fates = append(fates, fateOf(o))
			if o.Sender != o.Agent { // else it is a person's, which that agent's bot heard
				title = s.botName(s.records.state(m.Channel, m.ChatID), o.Sender)
			}
		}
	}
	entries, _ := s.chats.transcript.Tail(m.Channel, string(m.ChatID), nearTail) // of what is older no bot is waited for
	i := slices.IndexFunc(entries, func(e transcript.Entry) bool { return e.MessageID == string(about) })
	if i >= 0 && time.Since(time.UnixMilli(entries[i].TS)) < steer.OnItsWay {
		for _, b := range g.Bots {
			is := func(f steer.Fate) bool { return f.Agent == b.Agent }
			if b.Online && string(b.Agent) != entries[i].Sender && !slices.ContainsFunc(fates, is) {
				fates = append(fates, steer.Fate{Agent: b.Agent})
			}
		}
	}
	return steer.WhyText(title, fates, g, time.Now(), s.cfg.Steer.Commands, chinese)
}

// maxWhy is how many outcomes are looked at to tell what became of a message.
const maxWhy = 2000

func fateOf(o outcome.Outcome) steer.Fate {
	f := steer.Fate{Agent: o.Agent, Delivered: o.Delivered, Stopped: o.Stopped, At: o.At, Detail: o.Detail}
	if o.Decision != nil {
		f.Depth = o.Decision.Depth
	}
	return f
}

// weigh says what becomes of a message that was heard from a person, before it is recorded: the
// reason why it is not for this bot, and where it is for one of several bots, these.
func (s *steering) weigh(ctx context.Context, m *relay.Message, by sentBy) (why relay.Reason, bots []relay.AgentName,
	err error) {
	if s.chats.wasRecalled(m) {
		return relay.Recalled, nil, nil
	}
	switch why := s.asksTo(m, by); why {
	case relay.Command:
		return why, nil, s.within(ctx, func() error { return s.command(m, by.union) })
	case relay.Continue:
		return why, nil, s.within(ctx, func() error { return s.goOn(m) })
	}
	s.announce(m.Channel, m.ChatID)
	why, bots = s.forPerson(m, entryOf(m, m.TS.Time()))
	return why, bots, nil
}

// within does what a person asked for and returns its error; after the deadline of ctx it goes on by itself.
func (s *steering) within(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	s.deliver.delivering.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				done <- fmt.Errorf("it panicked: %v", v)
			}
		}()
		err := do()
		if err != nil {
			s.problems.set("steer", err)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil
		}
		return ctx.Err()
	}
}

// asksTo is Command or Continue if a message that was heard asks for that, else Pass.
func (s *steering) asksTo(m *relay.Message, by sentBy) relay.Reason {
	if !s.isPerson(m, by) {
		return relay.Pass
	}
	if s.isCommand(m) {
		return relay.Command
	}
	if _, is := s.continueOf(m); is {
		return relay.Continue
	}
	return relay.Pass
}

// sentBy is what Feishu says of who sent a message, beside their open_id.
type sentBy struct{ union, kind string }

// isPerson reports whether what was heard is a person's: a bot's words steer nothing, nor do those of anybody that
// Feishu does not call a user.
func (s *steering) isPerson(m *relay.Message, by sentBy) bool {
	_, bot := s.app.botOf(m.SenderID)
	return by.kind == feishu.SenderUser && !bot
}
