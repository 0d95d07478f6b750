package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"feishu-relay/feishu"
	"feishu-relay/group"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
	"feishu-relay/mcptools"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

// Pauses between questions to Feishu about the same thing.
const (
	askAgain    = 10 * time.Minute // who else is in a chat; whether the bot is
	feishuAsked = 10 * time.Second // for one question, and between those about an id that is still unknown
)

const (
	personWait = time.Second      // to get a name from Feishu; without one the transcript has the open_id
	personNext = 10 * time.Minute // before the next question about somebody that Feishu did not name
	// before the next question about somebody whose name is known: people rename themselves
	personDay = 24 * time.Hour
)

// defaultBase is FEISHU_BASE_URL's default.
var defaultBase = url.URL{Scheme: "https", Host: "open.feishu.cn"}

// app is the bot's app in Feishu: who it is, who the others are as it sees them, and what
// the sidecar asks Feishu for itself.
type app struct {
	*base
	chats *chats
	book  *feishu.Directory // of this bot's Feishu app
	api   *feishu.API
	names atomic.Pointer[namesOf]
	// changed: the app is another one than in the last run.
	changed bool
}

func (s *Sidecar) openApp() error {
	b := s.base
	a := &app{base: b, chats: s.chats, api: feishu.NewAPI(b.cfg.BaseURL.String(), b.cfg.AppID, string(b.cfg.AppSecret))}
	root, err := b.folder("feishu", b.name())
	if err != nil {
		return err
	}
	store, err := feishu.OpenStore(root.Name(), b.log)
	if err != nil {
		return err
	}
	b.onClose(store.Close)
	a.book = feishu.NewDirectory(store, a.api, b.log)
	b.onClose(a.book.Close)
	if known := a.book.Self().AppID; b.cfg.AppID != "" && known != "" && known != b.cfg.AppID {
		// Another app: every open_id in the directory is another one's.
		b.log.Warn("FEISHU_APP_ID has changed; the stored chats and bots of the previous app are not used",
			"before", known)
		a.book.Forget()
		a.changed = true
	}
	a.book.LearnSelf(feishu.Self{AppID: b.cfg.AppID, Name: b.cfg.BotName, OpenID: b.cfg.BotOpenID})
	s.app = a
	return nil
}

// self is who the bot is: as configured, else as Feishu says.
func (a *app) self() feishu.Self {
	known := a.book.Self()
	return feishu.Self{AppID: cmp.Or(a.cfg.AppID, known.AppID), Name: cmp.Or(a.cfg.BotName, known.Name),
		OpenID: cmp.Or(a.cfg.BotOpenID, known.OpenID), Tenant: known.Tenant}
}

// selfFresh is how long what Feishu said of the bot counts for the next message that it sends.
const selfFresh = time.Second

// noWait is an ended context, for questions whose answer nobody waits for.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// selfSoon asks Feishu for the bot's own identity beside what is sent: it may have been renamed, or removed and added.
func (a *app) selfSoon() { _ = a.book.AskSelf(noWait, selfFresh) }

// selfNow waits for what selfSoon has asked: a bot that is known for a tenth of selfWait only.
func (a *app) selfNow() {
	longest := selfWait
	if self := a.self(); self.Name != "" && self.OpenID != "" {
		longest /= 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	_ = a.book.AskSelf(ctx, selfFresh) // it is asked again with the next message
}

// selfAsked is self, after Feishu was asked for what is missing and can be; not
// for each message, where Feishu does not answer.
func (a *app) selfAsked(ctx context.Context) feishu.Self {
	if self := a.self(); self.OpenID != "" && self.Name != "" {
		return self
	}
	return a.askSelf(ctx, feishuAsked)
}

func (a *app) askSelf(ctx context.Context, within time.Duration) feishu.Self {
	if err := a.book.AskSelf(ctx, within); err != nil && !errors.Is(err, feishu.ErrNoToken) {
		a.problems.set("identity", err)
	}
	return a.self()
}

// namesOf is the directory of names made from one state of the groups file and
// the book.
type namesOf struct {
	file *groups.File
	book uint64
	dir  *mention.Directory
}

// directory is who can be addressed: the agents of the groups file, the bots
// that were met, and this bot under its own names.
func (a *app) directory() *mention.Directory {
	file, version := a.chats.groups.Current(), a.book.Version()
	if n := a.names.Load(); n != nil && n.file == file && n.book == version {
		return n.dir
	}
	self := a.self()
	var others []mention.Agent
	for _, b := range a.book.Bots() {
		if b.Agent == "" || b.Agent == a.cfg.Agent {
			continue
		}
		if seen, ok := a.book.Agent(b.Agent, b.AppID, b.Name); ok { // with the id that this app sees
			b.OpenID = cmp.Or(b.OpenID, seen.OpenID)
		}
		others = append(others, mention.Agent{ID: string(b.Agent), Names: []string{b.Name},
			IDs: []string{b.AppID, string(b.OpenID)}})
	}
	dir := file.DirectoryFor(mention.Agent{ID: string(a.cfg.Agent), Names: []string{self.Name},
		IDs: []string{string(self.OpenID), self.AppID}}, others...)
	a.names.Store(&namesOf{file, version, dir})
	return dir
}

// met learns from a relayed message who its sender is.
func (a *app) met(m *relay.Message) {
	if m.SenderAgentName == "" || m.SenderAgentName == a.cfg.Agent {
		return
	}
	a.book.LearnName(string(m.SenderBotOpenID), feishu.Who{Agent: m.SenderAgentName})
	if m.SenderName == "" && m.SenderAppID == "" {
		return
	}
	a.book.Added(m.ChatID, m.SenderAgentName, m.SenderName, m.SenderBotOpenID)
	a.book.LearnBot(feishu.Bot{Agent: m.SenderAgentName, AppID: m.SenderAppID, Name: m.SenderName})
}

// peer is the sender of m as this bot's app sees it. Its OpenID is empty where
// neither an event nor Feishu's list of a chat's bots told it.
func (a *app) peer(ctx context.Context, m *relay.Message) feishu.Bot {
	bot, within := a.seenAs(m), askAgain
	switch {
	case bot.OpenID == "":
		within = feishuAsked // its name may be known by then
	case bot.Name != "":
		return bot
	}
	err := a.book.AskBots(ctx, m.ChatID, within)
	if err != nil && !errors.Is(err, feishu.ErrNoToken) {
		a.problems.set("chat bots", err)
	}
	return a.seenAs(m)
}

func (a *app) seenAs(m *relay.Message) feishu.Bot {
	bot := feishu.Bot{AppID: m.SenderAppID, Name: m.SenderName, Agent: m.SenderAgentName}
	if known, is := a.book.Bot(m.SenderBotOpenID); is { // Feishu told this app
		bot.OpenID = m.SenderBotOpenID
		bot.Name = cmp.Or(bot.Name, known.Name, string(bot.Agent))
		return bot
	}
	if known, ok := a.book.Agent(m.SenderAgentName, m.SenderAppID, m.SenderName); ok {
		bot.OpenID = known.OpenID
		bot.Name = cmp.Or(bot.Name, known.Name)
		bot.AppID = cmp.Or(bot.AppID, known.AppID)
	}
	bot.Name = cmp.Or(bot.Name, string(m.SenderAgentName))
	return bot
}

// errUndecided says that Feishu has to be asked first, and was not yet.
var errUndecided = errors.New("it is not known yet whether the bot is in this chat")

// askMembership asks Feishu whether the bot is in a chat. An error is no answer.
func (a *app) askMembership(ctx context.Context, chat relay.ChatID) (bool, error) {
	err := a.book.AskMember(ctx, chat, askAgain)
	switch {
	case errors.Is(err, feishu.ErrNoToken):
		return false, fmt.Errorf("%w: the bot has made no call to Feishu since the start", errUndecided)
	case err != nil:
		a.problems.set("membership", err)
		return false, fmt.Errorf("%w: %w", errUndecided, err)
	}
	return a.book.Chat(chat).In == feishu.Yes, nil
}

// introduce asks Feishu until it says who the bot is.
func (a *app) introduce(ctx context.Context) {
	for pauses := wait.NewBackoff(time.Second, time.Minute); a.askSelf(ctx, 0).OpenID == ""; {
		if pauses.Sleep(ctx) != nil {
			return
		}
	}
}

// answerable is the message that a reply is meant for. Another agent's result is
// no message of Feishu's: the reply goes to the person's newest one in that chat,
// or if there is none, to no message.
func (a *app) answerable(chat relay.ChatID, to relay.MessageID) relay.MessageID {
	if to == "" || strings.HasPrefix(string(to), "om_") {
		return to
	}
	known, _ := a.chats.talk(relay.DefaultChannel, chat)
	return known.MessageID
}

// chatKind is what kind of chat it is: as remembered, else as Feishu says.
func (a *app) chatKind(ctx context.Context, chat relay.ChatID) (string, error) {
	if known := a.book.Chat(chat); known.Kind != "" {
		return known.Kind, nil
	}
	err := a.book.AskChat(ctx, chat, 0)
	return a.book.Chat(chat).Kind, err
}

// mentionsOf is what a message's mentions say, in the relay's words: an id of
// this app's is the agent that it is known to be.
func (a *app) mentionsOf(mentions []feishu.Mention) []relay.Mention {
	var out []relay.Mention
	for _, m := range mentions {
		r := relay.Mention{Key: m.Key, Name: m.Name, OpenID: m.OpenID}
		for _, id := range m.IDs() {
			who, _ := a.book.Name(id)
			r.AgentName, r.Name = cmp.Or(r.AgentName, who.Agent), cmp.Or(r.Name, who.Name)
		}
		out = append(out, r)
	}
	return out
}

// talkIn is what is known of a conversation. Where no person has spoken yet, its
// kind may be known all the same.
func (a *app) talkIn(channel string, chat relay.ChatID) talk {
	t, ok := a.chats.talk(channel, chat)
	if !ok && channel == relay.DefaultChannel {
		t.ChatType = a.book.Chat(chat).Kind
	}
	return t
}

// botOf is the agent of an id that is known to be a bot's: by the groups file, by what bots relayed, or by Feishu.
func (a *app) botOf(id relay.OpenID) (agent relay.AgentName, is bool) {
	if id == "" {
		return "", false
	}
	_, is = a.book.Bot(id)
	who, _ := a.book.Name(string(id))
	named := a.directory().Find(mention.Text{Refs: []mention.Ref{{OpenID: string(id)}}}).Agents
	if who.Agent == "" && len(named) > 0 {
		who.Agent = relay.AgentName(named[0])
	}
	return who.Agent, is || who.Agent != ""
}

// matched learns from one message seen in both ways which bot an id of this
// app's is.
func (a *app) matched(id relay.OpenID, agent relay.AgentName) {
	if agent == "" || id == "" {
		return
	}
	known, _ := a.book.Agent(agent, "", "")
	a.book.LearnBot(feishu.Bot{OpenID: id, Agent: agent, AppID: known.AppID, Name: known.Name})
}

// named gives a message that Feishu delivered the name under which its sender
// is known on the relay.
func (a *app) named(m *relay.Message) {
	if m.SenderAgentName != "" {
		return
	}
	if bot, ok := a.book.Bot(m.SenderBotOpenID); ok {
		m.SenderAgentName, m.SenderName = bot.Agent, cmp.Or(m.SenderName, bot.Name)
		m.SenderAppID = cmp.Or(m.SenderAppID, bot.AppID)
	}
}

// person returns the name of who sent m, "" where it is unknown: events have ids only. The
// book has names from mentions; Feishu is asked with the bot's own token.
func (a *app) person(ctx context.Context, m *feishu.Message) string {
	a.book.LearnMentions(m.Mentions)
	id := m.Sender.OpenID
	known, _ := a.book.Name(string(id))
	if m.Sender.Name != "" || id == "" {
		return m.Sender.Name
	}
	pause := personNext
	if known.Name != "" {
		pause = personDay
	}
	if m.ChatType != feishu.ChatGroup {
		return known.Name
	}
	ctx, cancel := context.WithTimeout(ctx, personWait)
	defer cancel()
	_ = a.book.AskPerson(ctx, id, pause) // the bot has no scope for it, most often
	known, _ = a.book.Name(string(id))
	return known.Name
}

// addressed reports whether a text, or what its sender resolved in it, names
// this bot.
func (a *app) addressed(content, msgType string, mentions []relay.Mention) bool {
	named := group.NamesOf(a.directory(), &relay.Message{Content: content, MsgType: msgType, Mentions: mentions})
	return named.All && a.cfg.MentionAll || slices.Contains(named.Bots, a.cfg.Agent)
}

func refsOf(mentions []relay.Mention) []mention.Ref {
	refs := make([]mention.Ref, len(mentions))
	for i, m := range mentions {
		refs[i] = mention.Ref{Key: m.Key, Name: m.Name, OpenID: string(m.OpenID), AgentName: string(m.AgentName)}
	}
	return refs
}

// bare reports whether a text has no letter or digit but those of names that it addresses.
func (a *app) bare(text string) bool {
	for _, hit := range slices.Backward(a.directory().Plain(text)) {
		text = text[:hit.From] + text[hit.To:]
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// resolve completes what the bot says of its mentions by what the text shows.
func (a *app) resolve(content, msgType string, given []relay.Mention) []relay.Mention {
	var out []relay.Mention
	for _, r := range a.directory().Resolve(mention.Text{Content: content, MsgType: msgType, Refs: refsOf(given)}) {
		out = append(out, relay.Mention{Key: r.Key, Name: r.Name, OpenID: relay.OpenID(r.OpenID),
			AgentName: relay.AgentName(r.AgentName)})
	}
	return out
}

// whoAmI is what the bot's model may know of itself.
func (a *app) whoAmI(context.Context) mcptools.Identity {
	self := a.self()
	out := mcptools.Identity{AgentID: mailbox.AgentID(a.cfg.Agent), BotName: self.Name, Description: a.cfg.Role,
		Capabilities: a.cfg.Capabilities,
		Limits: mcptools.Limits{MaxMessageBytes: mailbox.MaxBody, MaxConcurrentTasks: a.cfg.Mailbox.MaxTasks,
			MaxExchanges: a.cfg.Mailbox.MaxExchanges}}
	file := a.chats.groups.Current()
	for _, t := range a.chats.listTalks() {
		out.Conversations = append(out.Conversations, mcptools.Conversation{Channel: t.Channel,
			ChatID: string(t.ChatID), ChatType: t.ChatType,
			Name: file.Groups[string(t.ChatID)].Name, LastMessageAt: time.UnixMilli(int64(t.At)).UTC()})
	}
	return out
}
