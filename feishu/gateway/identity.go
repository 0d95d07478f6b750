package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
)

// maxTokens bounds the tokens that are told apart; the oldest is forgotten, and
// learned again from the next send that was made with it.
const maxTokens = 256

// owner knows which app this gateway serves, and whose token is whose. Tokens
// are held in memory only.
type owner struct {
	fixed string
	book  *feishu.Book
	api   *feishu.API
	log   *slog.Logger
	count func(feishu.Counted)

	tokens *lru.Cache[string, string] // token: app id

	mu     sync.Mutex
	warned map[feishu.Counted]bool // logged once; guarded by mu
	others bool                    // calls of another app pass here too. guarded by mu
}

func newOwner(app string, book *feishu.Book, api *feishu.API, log *slog.Logger, count func(feishu.Counted)) *owner {
	o := &owner{fixed: app, book: book, api: api, log: log, count: count,
		tokens: newLRU[string, string](maxTokens), warned: map[feishu.Counted]bool{}}
	if app != "" && book.Self().AppID != app {
		book.LearnSelf(feishu.Self{AppID: app})
		if known := book.Self().AppID; known != "" && known != app {
			log.Warn("stored data belongs to another app and is ignored", "app", app, "remembered", known)
		}
	}
	return o
}

// app is the app that is served; "" while it is unknown.
func (o *owner) app() string {
	if o.fixed != "" {
		return o.fixed
	}
	return o.book.Self().AppID
}

// is reports whether app is the one served.
func (o *owner) is(app string) bool { return app != "" && app == o.app() }

// learn takes app as the one served when none is known yet.
func (o *owner) learn(app string) {
	if app == "" {
		return
	}
	if o.app() == "" {
		o.book.LearnSelf(feishu.Self{AppID: app})
		o.log.Info("this gateway serves the app", "app", app)
	}
	if !o.is(app) {
		o.foreign(countedForeignApp, app)
	}
}

// proved notes that token belongs to app, as Feishu's own answer shows.
func (o *owner) proved(token, app string) {
	o.learn(app)
	if token == "" {
		return
	}
	o.tokens.Add(token, app)
	if o.is(app) && strings.HasPrefix(token, "t-") {
		o.api.SawToken(token)
	}
}

// watches reports whether a call with this token is read at all: not where it
// is known to be another app's, or a user's.
func (o *owner) watches(token string) bool {
	if strings.HasPrefix(token, "u-") {
		o.foreign(countedForeignUser, "")
		return false
	}
	app, known := o.tokens.Get(token)
	return !known || o.is(app)
}

// trusts reports whether what Feishu tells this token is told to our app: ids
// are another app's otherwise.
func (o *owner) trusts(token string) bool {
	if token == "" {
		return false
	}
	if app, known := o.tokens.Get(token); known {
		return o.is(app)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.others
}

// knows reports whether token was proved to be our app's.
func (o *owner) knows(token string) bool {
	app, known := o.tokens.Get(token)
	return known && o.is(app)
}

// foreign notes a caller that is not served, and says so once.
func (o *owner) foreign(kind feishu.Counted, app string) {
	o.mu.Lock()
	if kind == countedForeignApp {
		o.others = true
	}
	said := o.warned[kind]
	o.warned[kind] = true
	o.mu.Unlock()
	o.count(kind)
	switch {
	case said:
	case kind == countedForeignUser:
		o.log.Warn("calls with a user's token pass unread: only the bot's own messages are relayed")
	default:
		o.log.Warn("calls of another app pass unread, and nothing of that bot is relayed: a gateway serves one app; "+
			"if that is the bot, set FEISHU_APP_ID to it", "serves", o.app(), "other", app)
	}
}

// ours reports whether the answer to a send shows our app as its sender, and
// learns whose the token is.
func (g *Gateway) ours(t *tapped, s feishu.Sender) bool {
	if s.AppID == "" {
		return !strings.HasPrefix(t.token, "u-") && s.Type != feishu.SenderUser && s.OpenID == "" &&
			g.own.app() != "" && g.own.trusts(t.token)
	}
	g.own.proved(t.token, s.AppID)
	if !g.own.is(s.AppID) {
		return false
	}
	g.knowSelf()
	return true
}

// tokenAnswer reads a token call: which app it is, and its token (docs/feishu.md 6.1).
func (g *Gateway) tokenAnswer(t *tapped) {
	var req struct {
		AppID feishu.Once `json:"app_id"`
	}
	var ans struct {
		Code   int    `json:"code"`
		Tenant string `json:"tenant_access_token"`
		App    string `json:"app_access_token"`
	}
	if json.Unmarshal(t.request, &req) != nil || json.Unmarshal(t.answer, &ans) != nil || ans.Code != 0 ||
		req.AppID.Times != 1 || req.AppID.Text == "" || ans.Tenant == "" && ans.App == "" {
		return
	}
	app := req.AppID.Text
	g.own.proved(ans.Tenant, app)
	g.own.proved(ans.App, app)
	if g.own.is(app) {
		g.knowSelf()
	}
}

// selfAnswer reads the bot's own identity (docs/feishu.md 4.2).
func (g *Gateway) selfAnswer(t *tapped) {
	// beyond loopback it may be a stranger's
	first := g.opts.Loopback && g.opts.Book.Self().OpenID == "" && g.own.trusts(t.token)
	if !first && !g.own.knows(t.token) {
		return
	}
	if self, err := feishu.ParseBotInfo(t.answer); err == nil && self.OpenID != "" {
		g.opts.Book.LearnSelf(self)
	}
}

// proven reports whether token is our app's: by what was seen of it, or, after a
// restart of ours, by what Feishu says. Whose bot a token calls is told by its
// open_id, which no other app's bot has under it (docs/feishu.md 4.1). The error is that Feishu does not say.
func (g *Gateway) proven(ctx context.Context, token string) (ours bool, err error) {
	self := g.opts.Book.Self()
	switch {
	case g.own.knows(token):
		return true, nil
	case !strings.HasPrefix(token, "t-") || self.OpenID == "":
		return false, nil
	}
	api := feishu.NewAPI(g.opts.Upstream.String(), "", "", feishu.WithHTTPClient(g.client))
	api.SawToken(token)
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	bot, err := api.BotInfo(ctx)
	if err != nil || bot.OpenID != self.OpenID {
		g.log.Debug("a token is not known to be this app's", "err", err)
		if errors.Is(err, feishu.ErrNoToken) { // which is what an invalid one comes to
			err = nil
		}
		return false, err
	}
	g.own.proved(token, g.own.app())
	return true, nil
}

// askWait bounds a question of ours to Feishu.
const askWait = 10 * time.Second

// knowSelf asks Feishu who the bot is, in the background, as long as that is
// unknown and there is a token to ask with.
func (g *Gateway) knowSelf() {
	if g.opts.Book.Self().OpenID != "" || !g.opts.API.Ready() {
		return
	}
	g.ask("identity", "", func(ctx context.Context) {
		self, err := g.opts.API.BotInfo(ctx)
		if err != nil {
			g.log.Debug("the bot's own identity is not known yet", "err", err)
			return
		}
		g.opts.Book.LearnSelf(self)
	}, func() {})
}

// chatAnswer reads what kind a chat is (docs/feishu.md 3.1). A mode that is not known counts as a group's.
func (g *Gateway) chatAnswer(t *tapped) {
	chat, mode, err := feishu.ParseChat(t.answer)
	if !g.own.trusts(t.token) || t.status != http.StatusOK || err != nil || mode == "" {
		return
	}
	chat.Kind = cmp.Or(chat.Kind, feishu.ChatGroup)
	chat.ID, chat.Asked = t.chat, time.Now()
	g.opts.Book.SetChat(chat)
	g.drafts.poke()
}

// chatBotsAnswer reads a chat's bots (docs/feishu.md 4.2).
func (g *Gateway) chatBotsAnswer(t *tapped) {
	bots, err := feishu.ParseChatBots(t.answer)
	if !g.own.trusts(t.token) || err != nil {
		return
	}
	for _, b := range bots {
		g.opts.Book.LearnBot(b)
	}
}

// bearer is the token of a call; "" when it has none.
func bearer(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
