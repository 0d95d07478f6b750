package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/safefile"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

// Pauses between questions to Feishu about the same thing.
const (
	askAgain    = 10 * time.Minute // who else is in a chat; whether the bot is, after a no
	maxAsked    = 1000             // chats whose last question is remembered
	feishuAsked = 10 * time.Second // for one question, and between those about a chat that got no answer
	askRate     = 2                // questions about memberships a second, of three calls at most: they count against the bot's own limits
	askBurst    = 10
)

// defaultBase is FEISHU_BASE_URL's default.
var defaultBase = url.URL{Scheme: "https", Host: "open.feishu.cn"}

// openFeishu opens what is known of Feishu: the book, and the calls the sidecar
// makes for itself.
func (s *Sidecar) openFeishu() error {
	if s.cfg.BaseURL == nil {
		s.cfg.BaseURL = &defaultBase
	}
	root, err := s.folder("chats")
	if err != nil {
		return err
	}
	name := safefile.Name(string(s.cfg.Agent)) + ".feishu.json"
	s.book = feishu.OpenBook(root, name, s.log)
	if known := s.book.Self().AppID; s.cfg.AppID != "" && known != "" && known != s.cfg.AppID {
		// Another app: every open_id in the book is another one's.
		s.log.Warn("FEISHU_APP_ID is not the app of before; what was known of its chats and bots is set aside", "before", known)
		if err := errors.Join(s.book.Close(), root.Rename(name, name+".other-app")); err != nil {
			return fmt.Errorf("set the former app's book aside: %w", err)
		}
		s.book = feishu.OpenBook(root, name, s.log)
		s.members.forget()
	}
	s.book.LearnSelf(feishu.Self{AppID: s.cfg.AppID, Name: s.cfg.BotName, OpenID: s.cfg.BotOpenID})
	s.onClose(s.book.Close)
	s.api = feishu.NewAPI(s.cfg.BaseURL.String(), s.cfg.AppID, string(s.cfg.AppSecret))
	return nil
}

// self is who the bot is: as configured, else as Feishu says.
func (s *Sidecar) self() feishu.Self {
	known := s.book.Self()
	return feishu.Self{AppID: cmp.Or(s.cfg.AppID, known.AppID), Name: cmp.Or(s.cfg.BotName, known.Name),
		OpenID: cmp.Or(s.cfg.BotOpenID, known.OpenID)}
}

// selfAsked is self, after Feishu was asked for what is missing and can be; not
// for each message, where Feishu does not answer.
func (s *Sidecar) selfAsked(ctx context.Context) feishu.Self {
	self := s.self()
	if self.OpenID != "" && self.Name != "" || !s.api.Ready() || !s.selfDue.due("", feishuAsked) {
		return self
	}
	return s.askSelf(ctx)
}

func (s *Sidecar) askSelf(ctx context.Context) feishu.Self {
	ctx, cancel := context.WithTimeout(ctx, feishuAsked)
	defer cancel()
	info, err := s.api.BotInfo(ctx)
	if err != nil {
		s.problems.set("identity", err)
		return s.self()
	}
	s.book.LearnSelf(info)
	return s.self()
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
func (s *Sidecar) directory() *mention.Directory {
	file, version := s.groups.Current(), s.book.Version()
	if n := s.names.Load(); n != nil && n.file == file && n.book == version {
		return n.dir
	}
	self := s.self()
	var others []mention.Agent
	for _, b := range s.book.Bots() {
		if b.Agent == "" || b.Agent == s.cfg.Agent {
			continue
		}
		if seen, ok := s.book.Agent(b.Agent, b.AppID, b.Name); ok { // with the id that this app sees
			b.OpenID = cmp.Or(b.OpenID, seen.OpenID)
		}
		others = append(others, mention.Agent{ID: string(b.Agent), Names: []string{b.Name}, IDs: []string{b.AppID, string(b.OpenID)}})
	}
	dir := file.DirectoryFor(mention.Agent{ID: string(s.cfg.Agent), Names: []string{self.Name},
		IDs: []string{string(self.OpenID), self.AppID}}, others...)
	s.names.Store(&namesOf{file, version, dir})
	return dir
}

// met learns from a relayed message who its sender is.
func (s *Sidecar) met(m *relay.Message) {
	if m.SenderAgentName == "" || m.SenderAgentName == s.cfg.Agent || m.SenderName == "" && m.SenderAppID == "" {
		return
	}
	s.book.LearnBot(feishu.Bot{Agent: m.SenderAgentName, AppID: m.SenderAppID, Name: m.SenderName})
}

// peer is the sender of m as this bot's app sees it. Its OpenID is empty where
// neither an event nor Feishu's list of a chat's bots told it.
func (s *Sidecar) peer(ctx context.Context, m *relay.Message) feishu.Bot {
	bot := s.seenAs(m)
	if bot.OpenID != "" && bot.Name != "" || !s.api.Ready() || !s.botsAsked.due(string(m.ChatID), askAgain) {
		return bot
	}
	ctx, cancel := context.WithTimeout(ctx, feishuAsked)
	defer cancel()
	bots, err := s.api.ChatBots(ctx, m.ChatID)
	if err != nil {
		s.botsAsked.again(string(m.ChatID), feishuAsked)
		s.problems.set("chat bots", err)
		return bot
	}
	for _, b := range bots {
		s.book.LearnBot(b)
	}
	if bot = s.seenAs(m); bot.OpenID == "" {
		s.botsAsked.again(string(m.ChatID), feishuAsked) // its name may be known by then
	}
	return bot
}

func (s *Sidecar) seenAs(m *relay.Message) feishu.Bot {
	bot := feishu.Bot{AppID: m.SenderAppID, Name: m.SenderName, Agent: m.SenderAgentName}
	if _, native := m.Metadata[metaNative]; native {
		known, _ := s.book.Bot(m.SenderBotOpenID)
		bot.OpenID = m.SenderBotOpenID // Feishu told this app
		bot.Name = cmp.Or(bot.Name, known.Name, string(bot.Agent))
		return bot
	}
	if known, ok := s.book.Agent(m.SenderAgentName, m.SenderAppID, m.SenderName); ok {
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
func (s *Sidecar) askMembership(ctx context.Context, chat relay.ChatID) (bool, error) {
	if known := s.book.Chat(chat); known.In == feishu.No && time.Since(known.Asked) < askAgain {
		return false, nil
	}
	if !s.api.Ready() {
		return false, fmt.Errorf("%w: the bot has made no call to Feishu since the start", errUndecided)
	}
	if !s.asking.Allow() || !s.membersAsked.due(string(chat), feishuAsked) {
		return false, errUndecided
	}
	ctx, cancel := context.WithTimeout(ctx, feishuAsked)
	defer cancel()
	asked := relay.MillisOf(time.Now()) // what is heard meanwhile is newer than the answer
	in, err := s.inChat(ctx, chat)
	if err != nil {
		s.problems.set("membership", err)
		return false, fmt.Errorf("%w: %w", errUndecided, err)
	}
	s.membersAsked.again(string(chat), 0)
	answer := s.book.Chat(chat)
	answer.ID, answer.In, answer.Asked = chat, feishu.No, time.Now()
	if in {
		answer.In = feishu.Yes
		s.members.saw(relay.DefaultChannel, chat, asked)
	}
	s.book.SetChat(answer)
	return in, nil
}

// inChat asks in the three ways there are, since each wants another scope.
func (s *Sidecar) inChat(ctx context.Context, chat relay.ChatID) (bool, error) {
	in, err := s.api.InChat(ctx, chat)
	if err == nil || ctx.Err() != nil {
		return in, err
	}
	self := s.selfAsked(ctx)
	if bots, berr := s.api.ChatBots(ctx, chat); berr == nil && self.OpenID != "" {
		return slices.ContainsFunc(bots, func(b feishu.Bot) bool { return b.OpenID == self.OpenID }), nil
	}
	answer, cerr := s.api.Chat(ctx, chat)
	if cerr == nil && answer.In == feishu.No {
		return false, nil
	}
	return false, errors.Join(err, cerr) // that Feishu shows a chat's basics says nothing
}

// asked remembers when something may be asked again, about a chat or a person.
type asked struct {
	mu   sync.Mutex
	next map[string]time.Time // guarded by mu
}

// due reports whether it may be asked now, and if so, not again for a pause.
func (a *asked) due(about string, pause time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.next[about]) {
		return false
	}
	if a.next == nil || len(a.next) >= maxAsked {
		a.next = map[string]time.Time{}
	}
	a.next[about] = time.Now().Add(pause)
	return true
}

// again allows the next question after another pause.
func (a *asked) again(about string, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next[about] = time.Now().Add(pause)
}
