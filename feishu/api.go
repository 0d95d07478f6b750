package feishu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"feishu-relay/relay"
)

const (
	// maxChatBots is how many bots of a chat are read.
	maxChatBots = 500
	pageSize    = 100 // Feishu's most
)

// ErrNoToken says that there is nothing to call Feishu with: no app secret, and no
// token of the bot's was seen that is still good.
var ErrNoToken = errors.New("no tenant access token is known")

// Codes of a chat that the bot is not in, or that does not exist (docs/feishu.md 6.2, and the
// error list of GET im/v1/chats/{id}).
var notInChat = []int{
	CodeNotInChat, 232011, // the bot is not in it
	232006, 232009, 230045, // no such chat, or dissolved
	232010, // another tenant's
}

// API makes the few calls to Feishu that a sidecar makes for itself, with the
// app's credentials or with a token that the bot was seen using. A call takes
// at most 10 s and reads at most 4 MiB, but for [API.File]. Errors are [ErrNoToken], an error with a
// [*CodeError] in it, or one about the network; none shows a token, a secret or
// a query. API is safe for concurrent use.
type API struct {
	base   string
	client *http.Client

	fetching chan struct{} // holds one value while a token is fetched

	mu        sync.Mutex
	appID     string    // guarded by mu
	appSecret string    // guarded by mu
	seen      string    // guarded by mu; the bot's own token
	fetched   string    // guarded by mu
	until     time.Time // guarded by mu; fetched is good until then
}

// APIOption changes how an [API] works.
type APIOption func(*API)

// WithHTTPClient makes the calls with client, whose redirects are not followed.
// The default is one of its own with the environment's proxies.
func WithHTTPClient(client *http.Client) APIOption {
	return func(a *API) {
		own := *client
		a.client = &own
	}
}

// ownTransport is that of all APIs without another client.
var ownTransport = FindSilence(http.DefaultTransport.(*http.Transport).Clone())

// NewAPI returns an API for the app at base, such as "https://open.feishu.cn".
// With an empty appSecret it works only with a token that was seen.
func NewAPI(base string, appID, appSecret string, opts ...APIOption) *API {
	a := &API{base: strings.TrimRight(base, "/"), appID: appID, appSecret: appSecret,
		client: &http.Client{Transport: ownTransport}, fetching: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(a)
	}
	a.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return a
}

// SawToken takes a tenant token of this app ("t-…"), which stays in memory only.
func (a *API) SawToken(token string) {
	if !strings.HasPrefix(token, "t-") || len(token) > relay.MaxID || relay.CheckID(token) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = token
}

// SawCredentials takes the app's own credentials, as Feishu has accepted them
// from its bot; they stay in memory only. They replace those given before.
func (a *API) SawCredentials(appID, appSecret string) {
	if appID == "" || appSecret == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.appID, a.appSecret = appID, appSecret
}

// Authenticate reports whether Feishu gives a tenant token for the app's credentials:
// nil if it does.
func (a *API) Authenticate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := a.fetch(ctx)
	return err
}

// Ready reports whether there is anything to call Feishu with, for reading and for writing.
func (a *API) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen != "" || a.appSecret != ""
}

// BotInfo returns the app's own bot: GET bot/v3/info (docs/feishu.md 4.2).
func (a *API) BotInfo(ctx context.Context) (Self, error) {
	answer, err := a.call(ctx, http.MethodGet, "bot/v3/info", nil, nil)
	if err != nil {
		return Self{}, err
	}
	self, err := ParseBotInfo(answer)
	a.mu.Lock()
	defer a.mu.Unlock()
	self.AppID = a.appID
	return self, err
}

func chatPath(id relay.ChatID) string       { return "im/v1/chats/" + url.PathEscape(string(id)) }
func messagePath(id relay.MessageID) string { return "im/v1/messages/" + url.PathEscape(string(id)) }

// Chat returns a chat's kind and name: GET im/v1/chats/{id}. Where Feishu says that
// the bot is not in it, or that there is none, it is a Chat with In: No; else In
// stays Unknown, since Feishu shows the basics of a chat to others too.
func (a *API) Chat(ctx context.Context, id relay.ChatID) (Chat, error) {
	asked := time.Now()
	answer, err := a.call(ctx, http.MethodGet, chatPath(id), nil, nil)
	if slices.Contains(notInChat, CodeOf(err)) {
		return Chat{ID: id, In: No, Asked: asked}, nil
	}
	if err != nil {
		return Chat{}, err
	}
	chat, _, err := ParseChat(answer)
	chat.ID, chat.Asked = id, asked
	return chat, err
}

// ChatBots returns the bots in a chat as this app sees them, at most 500:
// GET im/v1/chats/{id}/members/bots (docs/feishu.md 4.2).
func (a *API) ChatBots(ctx context.Context, id relay.ChatID) ([]Bot, error) {
	var bots []Bot
	for item, err := range pages[chatBot](ctx, a, chatPath(id)+"/members/bots", url.Values{}, maxChatBots) {
		if err != nil {
			return nil, err
		}
		bot := item.bot()
		if bot.OpenID != "" && relay.CheckID(string(bot.OpenID)) == nil {
			bots = append(bots, bot)
		}
	}
	return bots, nil
}

// maxMembers is how many people of a chat are read.
const maxMembers = 500

// ChatMembers returns the names of a chat's people by their ids, at most 500:
// GET im/v1/chats/{id}/members (docs/feishu.md 4.2). idType is open_id, union_id or user_id.
func (a *API) ChatMembers(ctx context.Context, id relay.ChatID, idType string) (map[string]string, error) {
	names := map[string]string{}
	query := url.Values{"member_id_type": {idType}}
	for item, err := range pages[struct {
		ID   string `json:"member_id"`
		Name string `json:"name"`
	}](ctx, a, chatPath(id)+"/members", query, maxMembers) {
		if err != nil {
			return nil, err
		}
		names[item.ID] = item.Name
	}
	return names, nil
}

// pages yields the items of a call that answers by pages, at most limit of them. An
// error ends it.
func pages[T any](ctx context.Context, a *API, path string, query url.Values, limit int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query.Set("page_size", strconv.Itoa(pageSize))
		items := 0
		for range 2 * limit / pageSize { // pages may be shorter than asked for
			page, err := get[struct {
				Items     []T    `json:"items"`
				HasMore   bool   `json:"has_more"`
				PageToken string `json:"page_token"`
			}](ctx, a, path, query)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range page.Items {
				if items++; items > limit || !yield(item, nil) {
					return
				}
			}
			if items >= limit || !page.HasMore || page.PageToken == "" || page.PageToken == query.Get("page_token") {
				return
			}
			query.Set("page_token", page.PageToken)
		}
	}
}

// InChat reports whether the bot is in a chat:
// GET im/v1/chats/{id}/members/is_in_chat.
func (a *API) InChat(ctx context.Context, id relay.ChatID) (bool, error) {
	answer, err := get[struct {
		In bool `json:"is_in_chat"`
	}](ctx, a, chatPath(id)+"/members/is_in_chat", nil)
	if slices.Contains(notInChat, CodeOf(err)) {
		return false, nil
	}
	return answer.In && err == nil, err
}

// User returns a person's display name: GET contact/v3/users/{id} (docs/feishu.md 4.2).
// It wants the scope contact:user.base:readonly.
func (a *API) User(ctx context.Context, id relay.OpenID) (name string, err error) {
	answer, err := get[struct {
		User struct {
			Name string `json:"name"`
		} `json:"user"`
	}](ctx, a, "contact/v3/users/"+url.PathEscape(string(id)), url.Values{"user_id_type": {"open_id"}})
	return answer.User.Name, err
}

// Message returns a message as this app sees it: GET im/v1/messages/{id}
// (docs/feishu.md 5.3), with the open_ids of those it mentions.
func (a *API) Message(ctx context.Context, id relay.MessageID) (Message, error) {
	path := messagePath(id)
	body, err := a.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return Message{}, err
	}
	items, err := ParseHistory(body)
	if err != nil {
		return Message{}, fmt.Errorf("GET %s: %w", path, err)
	}
	i := slices.IndexFunc(items, func(m Message) bool { return m.ID == id })
	if i < 0 {
		return Message{}, fmt.Errorf("GET %s: %w: the answer does not hold the message", path, ErrNotAccepted)
	}
	return items[i], nil
}
