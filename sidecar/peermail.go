package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/group"
	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// peerMail brings mail to a bot behind the gateway as private chats with the other agents, and sends them what the
// bot answers there.
type peerMail struct {
	*base
	agent   *agent.Agent
	chats   *peerchat.Chats
	observe func(agent.Event)

	mu sync.Mutex // held while an answer is sent: the next one sees what it did to the task
}

func (s *Sidecar) openPeerMail() (err error) {
	if s.mail == nil || !s.cfg.Mailbox.Gateway {
		return nil
	}
	p := &peerMail{base: s.base, agent: s.mail.agent, observe: s.mailed}
	p.chats, err = peerchat.Open(peerchat.Options{Store: s.app.book.Store(), Self: s.app.self,
		SenderType: s.cfg.InjectSenderType, Needed: p.needed, Logger: s.log, Trace: s.trace})
	s.peers = p
	return err
}

// mailInfo is what is kept with a message that an agent wrote.
type mailInfo struct {
	ID          string            `json:"id"` // as the bot knows it
	Type        mailbox.Type      `json:"type"`
	Task        string            `json:"task,omitempty"`
	Hops        int               `json:"ttl"`
	Trace       []mailbox.AgentID `json:"trace,omitempty"`
	Correlation string            `json:"correlation_id,omitempty"`
	Reply       bool              `json:"reply,omitempty"` // it answers something itself
}

// answerMail is what is kept with a message of the bot: how it goes to the agent. It is decided once, so that a
// repeat behind a crash is the same.
type answerMail struct {
	Of      string        `json:"of"` // a digest of the text that it is about
	Text    string        `json:"text"`
	ID      string        `json:"id"` // of the envelope
	Type    mailbox.Type  `json:"type"`
	Task    *mailbox.Task `json:"task,omitempty"`
	About   mailInfo      `json:"letter"`            // the mail that it answers
	Stays   bool          `json:"stays,omitempty"`   // it is not sent
	Done    bool          `json:"done,omitempty"`    // the mailbox has it
	Refused mailbox.Code  `json:"refused,omitempty"` // the mailbox does not send it
}

// write gives the bot one piece of mail in the chat with its sender, and returns when the bot has acknowledged it.
func (p *peerMail) write(ctx context.Context, door *gatewayDoor, m agent.Delivery, in *core.Input, again bool,
	written func()) error {
	refused := func(err error) error { return &core.ResultError{Result: deliver.Refused, Err: err} }
	e := m.Envelope
	peer := relay.AgentName(e.From)
	kept, err := relay.Marshal(mailInfo{e.ID, e.Type, taskOf(e), e.Hops, e.Trace, e.Metadata.CorrelationID,
		e.ReplyTo != ""})
	if there := p.named(m); there != "" {
		peer, kept = there, nil // what the bot answers there is for that agent
	}
	if err != nil {
		return refused(err)
	}
	shown, err := p.chats.Receive(peer, e.ID, p.text(e), kept)
	if err != nil {
		return err
	}
	p.trace("shown")
	var content struct{ Text string }
	if err := json.Unmarshal([]byte(shown.Content), &content); err != nil {
		return refused(err)
	}
	who := feishu.Bot{OpenID: p.chats.User(peer), Agent: peer, Name: string(peer)}
	return door.give(ctx, feishu.Injected{Sender: who, Message: shown.ID, ChatID: shown.Chat, ChatType: feishu.ChatP2P,
		Text: content.Text}, in, again, written)
}

// oneTaskFor is how long the bot has one task of an agent before it is given the next one, unless it ends the first.
const oneTaskFor = 30 * time.Minute

// waits returns how long a task waits, where the bot has an older one of the same agent to end: which of two tasks a
// message is the result of, only a reply says.
func (p *peerMail) waits(e mailbox.Envelope) (wait time.Duration) {
	open := p.open(e.From)
	own := open[taskOf(e)]
	for _, r := range open {
		if e.Type.GivesTask() && own != nil && !r.State.Ended() && r.CreatedAt.Before(own.CreatedAt) {
			wait = max(wait, min(oneTaskFor, time.Until(r.CreatedAt.Add(oneTaskFor)))) // the clock may have been put back
		}
	}
	return wait
}

// named is the other agent of the chat of ours that the bot named for a result, as where it passes on a task that it
// got there; "": it named none.
func (p *peerMail) named(m agent.Delivery) relay.AgentName {
	if all := p.chats.Messages(relay.ChatID(m.Conversation.Chat())); len(all) > 0 {
		return all[0].Peer
	}
	return ""
}

func taskOf(e mailbox.Envelope) string {
	if e.Task == nil {
		return ""
	}
	return e.Task.ID
}

// text is mail as a person would write it, and a line on who asks, what is expected and until when.
func (p *peerMail) text(e mailbox.Envelope) string {
	return strings.TrimSpace(plainMail(e)) + "\n\n" + peerLine(e, group.HasHan(mailText(e)))
}

// Commands with which the bot ends a task without a result.
const (
	failWord   = "/fail"
	rejectWord = "/reject"
)

func peerLine(e mailbox.Envelope, chinese bool) string {
	say := func(en, zh string, args ...any) string {
		if chinese {
			en = zh
		}
		return fmt.Sprintf(en, args...)
	}
	until := ""
	if e.Task != nil && !e.Task.Deadline.IsZero() {
		until = say(", until ", "，截止 ") + e.Task.Deadline.UTC().Format("2006-01-02 15:04 UTC")
	}
	switch {
	case e.Type.GivesTask():
		return say("(%s gives you this task%s. Your reply to this message is its result; if it cannot be done, "+
			"answer %s and why.)", "（%s 交给你这个任务%s。对这条消息的回复就是结果；如果做不了，请回复 %s 和原因。）",
			e.From, until, failWord)
	case e.Type.TaskStep() && e.Task != nil && e.Task.State.Ended():
		return say("(%s: the task %s that you gave is %s. No answer is needed, and a reply is not sent.)",
			"（%s：你交给它的任务 %s 的状态是 %s。不需要回复，回复也不会发出。）", e.From, e.Task.ID, e.Task.State)
	case e.Type.TaskStep() && e.Task != nil:
		return say("(%s, on the task %s that you gave. No answer is needed, and a reply is not sent.)",
			"（%s，关于你交给它的任务 %s。不需要回复，回复也不会发出。）", e.From, e.Task.ID)
	case expectsAnswer(e.Type):
		return say("(%s asks you; your reply here is sent to it%s.)",
			"（%s 向你提问；你在这里的回复会发给它%s。）", e.From, until)
	case wantsAnswer(e.Type, e.ReplyTo != ""):
		return say("(%s writes to you; your reply here is sent to it.)", "（%s 给你发来消息；你在这里的回复会发给它。）", e.From)
	}
	return say("(%s sends you this for information. No answer is needed.)", "（来自 %s 的通知，不需要回复。）", e.From)
}

// answerTypes are the types of the answers to those that ask.
var answerTypes = map[mailbox.Type]mailbox.Type{mailbox.TypeQuestion: mailbox.TypeAnswer,
	mailbox.TypeCodeReviewRequest: mailbox.TypeCodeReviewResult, mailbox.TypeTestRequest: mailbox.TypeTestResult}

func expectsAnswer(t mailbox.Type) bool { return answerTypes[t] != "" }

// wantsAnswer reports whether mail says that an answer goes back; reply: it is an answer itself.
func wantsAnswer(t mailbox.Type, reply bool) bool {
	return expectsAnswer(t) || t == mailbox.TypeMessage && !reply
}

// sent sends an agent what the bot has said in their chat: it is safe in the mailbox when it returns nil, or refused
// there for good.
func (p *peerMail) sent(ctx context.Context, m gateway.Sent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.chats.Message(cmp.Or(m.EditOf, m.ID))
	if !ok || own.Deleted {
		return nil // it was dropped for newer messages, or recalled
	}
	as, err := p.decide(own, m)
	if err != nil || as.Stays || as.Done || as.Refused != "" {
		return err
	}
	p.trace("answered")
	e := as.envelope(own.Peer, m.Text)
	_, err = p.agent.Send(ctx, agent.Draft{Envelope: e})
	no, refused := errors.AsType[*mailbox.Error](err)
	if refused && as.Task != nil && (no.Field == "state" || no.Code == mailbox.TaskNotFound) {
		as.Type, as.Task = mailbox.TypeMessage, nil // the task has ended in between, and the agent still gets the text
		if err = p.keep(own.ID, as); err != nil {
			return err
		}
		e = as.envelope(own.Peer, m.Text)
		_, err = p.agent.Send(ctx, agent.Draft{Envelope: e})
		no, refused = errors.AsType[*mailbox.Error](err)
	}
	if refused {
		p.log.Warn("the bot's message to an agent was not sent", keyChat, own.Chat, keyMsg, own.ID, keyErr, err)
		p.problems.set("mailbox answer", err)
		as.Refused, err = no.Code, nil
	}
	if err != nil {
		return err
	}
	p.trace("mailed")
	as.Done = as.Refused == ""
	if err := p.keep(own.ID, as); err != nil || as.Done {
		return err
	}
	p.observe(agent.Event{What: agent.EventRefused, Envelope: e, Reason: string(as.Refused)})
	return nil
}

// envelope is what the agent gets of a text of the bot.
func (a answerMail) envelope(peer relay.AgentName, text string) mailbox.Envelope {
	if reason, word := command(text); word != "" && a.Task != nil && a.Task.State.Ended() {
		text = reason
	}
	e := mailbox.Envelope{ID: a.ID, To: mailbox.AgentID(peer), Type: a.Type, Task: a.Task, ReplyTo: a.About.ID,
		Hops: a.hops(), Trace: a.About.Trace,
		Content: mailbox.Content{Parts: []mailbox.Part{{Type: mailbox.PartText, Text: cutText(text)}}}}
	e.Metadata.CorrelationID = cmp.Or(a.About.Correlation, a.About.ID)
	return e
}

// decide says how a message of the bot goes to the agent, and keeps that.
func (p *peerMail) decide(own peerchat.Message, m gateway.Sent) (answerMail, error) {
	var as answerMail
	if json.Unmarshal(own.Mail, &as) == nil && as.Of == short(m.Text) {
		return as, nil
	}
	s := p.about(own)
	as = answerMail{Of: short(m.Text), Text: cutText(m.Text), ID: mailbox.NewID(p.agent.Self(), time.Now()),
		About: s.mail, Type: cmp.Or(answerTypes[s.mail.Type], mailbox.TypeMessage), Stays: s.stays}
	if s.task != nil {
		as.Type, as.Task = mailbox.TypeTaskUpdate, &mailbox.Task{ID: s.task.ID, State: p.state(s.task, own.Type, m.Text)}
	}
	return as, p.keep(own.ID, as)
}

// hops are those that an answer has left. Two bots that answer every message come to an end; what was asked for always
// goes.
func (a answerMail) hops() int {
	if a.Type.Answers() {
		return max(1, a.About.Hops-1)
	}
	return a.About.Hops - 1
}

func (p *peerMail) keep(id relay.MessageID, as answerMail) error {
	kept, err := relay.Marshal(as)
	if err != nil {
		return err
	}
	return p.chats.Keep(id, kept)
}

// state is what a finished answer makes of a task.
func (p *peerMail) state(task *agent.TaskRecord, msgType, text string) mailbox.TaskState {
	switch _, word := command(text); {
	case !content.IsText(msgType) && msgType != "interactive": // of a picture or a file the agent gets a word only
		return mailbox.Working
	case word == rejectWord && task.State != mailbox.Working: // who has begun cannot reject it any more
		return mailbox.Rejected
	case word != "":
		return mailbox.Failed
	}
	return mailbox.Completed
}

// commandText is an answer that begins with a command word, behind names and with Markdown's marks around it, and the
// reason behind the word.
var commandText = regexp.MustCompile("(?is)^\\s*(?:@[^\\s\\pZ/]+[\\s\\pZ]*)*[*_~`]*[/／](fail|reject)[*_~`]*" +
	"(?:$|[\\s\\pZ:：,，.。;；!！–—、])[-\\s\\pZ:：,，.。;；!！–—、]*(.*)$")

// command finds a command word at the beginning of an answer, and the reason behind it.
func command(text string) (reason, word string) {
	found := commandText.FindStringSubmatch(text)
	if found == nil {
		return "", ""
	}
	word = "/" + strings.ToLower(found[1])
	return cmp.Or(strings.TrimRight(found[2], " \n*_~`"), "it says "+word), word
}

// cutText keeps a text within what a message may have.
func cutText(text string) string {
	const mark = "\n[…]"
	if len(text) <= mailbox.MaxBody {
		return text
	}
	return runes.Cut(text, mailbox.MaxBody-len(mark)) + mark
}

// subject is what a message of the bot is about.
type subject struct {
	mail  mailInfo          // that it answers
	task  *agent.TaskRecord // that it moves; nil: none
	stays bool              // it is not sent: nothing more is to be said
}

// about returns what a message of the bot is about: the mail that it replies to, else the newest mail that the bot was
// given before and has not answered. A task is unanswered while it is open; of several, the oldest is meant. What
// answers a step of a task that the bot gave is not sent.
func (p *peerMail) about(m peerchat.Message) subject {
	open := p.open(mailbox.AgentID(m.Peer))
	if l := p.quoted(m); l.ID != "" {
		s := subject{mail: l, stays: l.Type.TaskStep()}
		if l.Type.GivesTask() {
			s.task = open[l.Task]
		}
		return s
	}
	given, answered := p.given(m)
	if len(given) == 0 {
		return subject{mail: mailInfo{Hops: mailbox.DefaultHops + 1}}
	}
	s := subject{mail: given[len(given)-1]}
	newest, tasks, wanted := -1, []mailInfo{}, false
	for i, l := range given {
		task := l.Type.GivesTask() && open[l.Task] != nil
		if !task && (answered[l.ID] || l.Type.GivesTask()) {
			continue
		}
		newest, wanted = i, wanted || task || wantsAnswer(l.Type, l.Reply)
		if task {
			tasks = append(tasks, l)
		}
	}
	if wanted {
		s.mail = given[newest]
	}
	switch {
	case s.mail.Type.TaskStep():
		s.stays = len(tasks) == 0 // else it may be the result of a task
	case s.mail.Type.GivesTask() && len(tasks) > 0: // nothing says which one is meant
		s.mail, s.task = tasks[0], open[tasks[0].Task]
	}
	return s
}

// quoted is the mail that a message of the bot replies to, also by way of its own messages.
func (p *peerMail) quoted(m peerchat.Message) mailInfo {
	for hops := 0; m.Parent != "" && hops < maxQuotes; hops++ {
		next, ok := p.chats.Message(m.Parent)
		if !ok {
			break
		}
		if m = next; !m.Own {
			return infoOf(m)
		}
	}
	return mailInfo{}
}

// given returns the mail before a message of the bot, the oldest first, and what of it its other messages answer.
func (p *peerMail) given(m peerchat.Message) (given []mailInfo, answered map[string]bool) {
	answered = map[string]bool{}
	before := true
	for _, one := range p.chats.Messages(m.Chat) {
		if one.ID == m.ID {
			before = false
			continue
		}
		var as answerMail
		if one.Own && json.Unmarshal(one.Mail, &as) == nil {
			answered[as.About.ID] = true
		}
		if l := infoOf(one); before && !one.Own && l.ID != "" {
			given = append(given, l)
		}
	}
	return given, answered
}

// maxQuotes is how many own messages that quote each other are followed back to mail.
const maxQuotes = 20

func infoOf(m peerchat.Message) (l mailInfo) {
	_ = json.Unmarshal(m.Mail, &l) // it is one of ours
	return l
}

// needed reports whether mail gives a task that is open: the bot is to answer it.
func (p *peerMail) needed(m peerchat.Message) bool {
	l := infoOf(m)
	return l.Type.GivesTask() && slices.ContainsFunc(p.agent.Task(l.Task), func(r agent.TaskRecord) bool {
		return r.Direction == agent.Received && string(r.Peer) == string(m.Peer) && !r.State.Ended()
	})
}

// open are the tasks of an agent that wait for a result, by id. One that was given up waits, too.
func (p *peerMail) open(peer mailbox.AgentID) map[string]*agent.TaskRecord {
	out := map[string]*agent.TaskRecord{}
	for _, r := range p.agent.Tasks() {
		if r.Direction == agent.Received && r.Peer == peer && (!r.State.Ended() || r.Overdue) {
			out[r.ID] = &r
		}
	}
	return out
}
