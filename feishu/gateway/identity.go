package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// maxTokens is how many tokens are remembered. The oldest is forgotten, and learned again from the next send with it.
const maxTokens = 256

// owner is the app that this gateway serves, and the apps of the tokens that were seen. Tokens are in memory only.
type owner struct {
	opts   *Options
	tokens *lru.Cache[string, string] // token: app id
	// Whether there were calls of other apps, and of users. The first of each is logged.
	others, users atomic.Bool
}

func newOwner(o *Options) *owner {
	if o.AppID != "" && o.Book.Self().AppID != o.AppID {
		o.Book.LearnSelf(feishu.Self{AppID: o.AppID})
		if known := o.Book.Self().AppID; known != "" && known != o.AppID {
			o.Logger.Warn("stored data belongs to another app and is ignored", "app", o.AppID, "remembered", known)
		}
	}
	return &owner{opts: o, tokens: newLRU[string, string](maxTokens)}
}

// app is the app that is served; "" while it is unknown.
func (o *owner) app() string { return cmp.Or(o.opts.AppID, o.opts.Book.Self().AppID) }

// is reports whether app is the one served.
func (o *owner) is(app string) bool { return app != "" && app == o.app() }

// learn makes app the one that is served, unless one is known.
func (o *owner) learn(app string) {
	if app == "" {
		return
	}
	if o.app() == "" {
		o.opts.Book.LearnSelf(feishu.Self{AppID: app})
		o.opts.Logger.Info("this gateway serves the app", "app", app)
	}
	if o.is(app) {
		return
	}
	o.opts.Counter("foreign_app")
	if !o.others.Swap(true) {
		o.opts.Logger.Warn("calls of another app pass unread, and nothing of that bot is relayed: a gateway serves one app; "+
			"if that is the bot, set FEISHU_APP_ID to it", "serves", o.app(), "other", app)
	}
}

// proved records that token is app's, as an answer of Feishu shows.
func (o *owner) proved(token, app string) {
	o.learn(app)
	if token == "" {
		return
	}
	o.tokens.Add(token, app)
	if o.is(app) && strings.HasPrefix(token, "t-") {
		o.opts.API.SawToken(token)
	}
}

// watches reports whether calls with a token are read: not if it is known to be another app's or a user's.
func (o *owner) watches(token string) bool {
	if strings.HasPrefix(token, "u-") {
		o.opts.Counter("foreign_user")
		if !o.users.Swap(true) {
			o.opts.Logger.Warn("calls with a user's token pass unread: only the bot's own messages are relayed")
		}
		return false
	}
	app, known := o.tokens.Get(token)
	return !known || o.is(app)
}

// knows reports whether token is known to be this app's.
func (o *owner) knows(token string) bool {
	app, known := o.tokens.Get(token)
	return known && o.is(app)
}

// ours reports whether the answer to a send shows this app as its sender, and records the app of the token.
func (g *Gateway) ours(t *call, s feishu.Sender) bool {
	if s.AppID == "" {
		return g.own.knows(t.token)
	}
	g.own.proved(t.token, s.AppID)
	if !g.own.is(s.AppID) {
		return false
	}
	g.knowSelf()
	return true
}

// tokenAnswer reads a token call: which app it is, and its token (docs/feishu.md 6.1).
func (g *Gateway) tokenAnswer(t *call) {
	var req struct {
		AppID feishu.Once `json:"app_id"`
	}
	issued, err := feishu.ParseTokens(t.answer)
	if err != nil || issued.Tenant == "" && issued.App == "" || json.Unmarshal(t.request, &req) != nil ||
		req.AppID.Times != 1 || req.AppID.Text == "" {
		return
	}
	app := req.AppID.Text
	g.own.proved(issued.Tenant, app)
	g.own.proved(issued.App, app)
	if g.own.is(app) {
		g.knowSelf()
	}
}

// selfAnswer reads the bot's own identity (docs/feishu.md 4.2).
func (g *Gateway) selfAnswer(t *call) {
	if self, err := feishu.ParseBotInfo(t.answer); err == nil && self.OpenID != "" && g.own.knows(t.token) {
		g.opts.Book.LearnSelf(self)
	}
}

// chatAnswer reads what kind a chat is (docs/feishu.md 3.1). An unknown mode counts as a group.
func (g *Gateway) chatAnswer(t *call) {
	chat, mode, err := feishu.ParseChat(t.answer)
	if t.status != http.StatusOK || err != nil || mode == "" {
		return
	}
	chat.Kind = cmp.Or(chat.Kind, feishu.ChatGroup)
	chat.ID = relay.ChatID(t.path.PathValue("chat"))
	g.opts.Book.SetChat(chat)
}

// chatBotsAnswer reads a chat's bots (docs/feishu.md 4.2).
func (g *Gateway) chatBotsAnswer(t *call) {
	bots, err := feishu.ParseChatBots(t.answer)
	if err != nil || !g.own.knows(t.token) {
		return
	}
	for _, b := range bots {
		g.opts.Book.LearnBot(b)
	}
}

// proven reports whether token is this app's. An unknown one, as after a restart, is checked at Feishu: the answer has
// the open_id of the token's bot, which no other app's bot has (docs/feishu.md 4.1). An error means that Feishu did not
// answer.
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
		if errors.Is(err, feishu.ErrNoToken) { // Feishu did not accept the token
			err = nil
		}
		return false, err
	}
	g.own.proved(token, g.own.app())
	return true, nil
}

// askWait is how long a call of the gateway itself to Feishu may take, and how often it is made again.
const askWait = 10 * time.Second

// knowSelf asks Feishu on another goroutine who the bot is, if that is unknown.
func (g *Gateway) knowSelf() {
	if g.opts.Book.Self().OpenID == "" {
		go func() { _ = g.opts.Book.AskSelf(g.ctx, askWait) }() // asked again by the next send
	}
}
