package feishu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

const (
	maxListed = 500 // bots of a chat, or people, that are read
	pageSize  = 100 // Feishu's most
)

// ErrNoToken is returned if there are no credentials to call Feishu with: no app secret, and no
// valid token of the bot was seen.
var ErrNoToken = errors.New("no tenant access token is known")

// Codes of a chat that the bot is not in, or that does not exist (docs/feishu.md 6.2, and the
// error list of GET im/v1/chats/{id}).
var notInChat = []int{
	CodeNotInChat, 232011, // the bot is not in it
	232006, 232009, 230045, // no such chat, or dissolved
	232010, // another tenant's
}

// API makes the few calls to Feishu that a sidecar makes for itself, with the
// app's credentials or with a token that the bot used. A call takes
// at most 10 s and reads at most 4 MiB, except [API.File]. Errors are [ErrNoToken], an error that wraps a
// [*CodeError], or one of the network; none contains a token, a secret or
// a query. API is safe for concurrent use.
type API struct {
	base   string
	client *http.Client

	fetches singleflight.Group

	mu        sync.Mutex
	appID     string    // guarded by mu
	appSecret string    // guarded by mu
	token     string    // guarded by mu; the bot's own, or one that was fetched
	until     time.Time // guarded by mu; of a fetched token: it is used until then
}

// APIOption changes how an [API] works.
type APIOption func(*API)

// WithHTTPClient makes the calls with client, without following redirects.
// The default is a client with the environment's proxies.
func WithHTTPClient(client *http.Client) APIOption {
	return func(a *API) { a.client = client }
}

// ownTransport is the transport of all APIs without [WithHTTPClient].
var ownTransport = FindSilence(http.DefaultTransport.(*http.Transport).Clone())

// NewAPI returns an API for the app at base, such as "https://open.feishu.cn".
// With an empty appSecret it needs a token ([API.SawToken]).
func NewAPI(base string, appID, appSecret string, opts ...APIOption) *API {
	a := &API{base: strings.TrimRight(base, "/"), appID: appID, appSecret: appSecret,
		client: &http.Client{Transport: ownTransport}}
	for _, opt := range opts {
		opt(a)
	}
	a.client = WithoutRedirects(a.client)
	return a
}

// SawToken sets a tenant token of this app ("t-…") to be used; it stays in memory only.
func (a *API) SawToken(token string) {
	if !strings.HasPrefix(token, "t-") || len(token) > relay.MaxID || relay.CheckID(token) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token, a.until = token, time.Time{}
}

// SawCredentials sets the app's own credentials, which Feishu has accepted
// from its bot; they stay in memory only. They replace earlier ones.
func (a *API) SawCredentials(appID, appSecret string) {
	if appID == "" || appSecret == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.appID, a.appSecret = appID, appSecret
}

// Authenticate returns nil if Feishu gives a tenant token for the app's credentials.
func (a *API) Authenticate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := a.fetch(ctx)
	return err
}

// Ready reports whether there are credentials to call Feishu with.
func (a *API) Ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token != "" || a.appSecret != ""
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

// Chat returns a chat's kind and name: GET im/v1/chats/{id}. If Feishu answers that
// the bot is not in it, or that it does not exist, it is a Chat with In: No; else In
// is Unknown, since Feishu shows the basics of a chat to others too.
func (a *API) Chat(ctx context.Context, id relay.ChatID) (Chat, error) {
	answer, err := a.call(ctx, http.MethodGet, chatPath(id), nil, nil)
	if slices.Contains(notInChat, CodeOf(err)) {
		return Chat{ID: id, In: No}, nil
	}
	if err != nil {
		return Chat{}, err
	}
	chat, err := ParseChat(answer)
	chat.ID = id
	return chat, err
}

// ChatBots returns the bots in a chat as this app sees them, at most 500:
// GET im/v1/chats/{id}/members/bots (docs/feishu.md 4.2).
func (a *API) ChatBots(ctx context.Context, id relay.ChatID) (bots []Bot, err error) {
	items, err := Pages[chatBot](ctx, a, chatPath(id)+"/members/bots", url.Values{}, maxListed)
	for _, item := range items {
		if bot := item.bot(); bot.OpenID != "" && relay.CheckID(string(bot.OpenID)) == nil {
			bots = append(bots, bot)
		}
	}
	return bots, err
}

// ChatMembers returns the names of a chat's people by their ids, at most 500:
// GET im/v1/chats/{id}/members (docs/feishu.md 4.2). idType is open_id, union_id or user_id.
func (a *API) ChatMembers(ctx context.Context, id relay.ChatID, idType string) (map[string]string, error) {
	items, err := Pages[struct {
		ID   string `json:"member_id"`
		Name string `json:"name"`
	}](ctx, a, chatPath(id)+"/members", url.Values{"member_id_type": {idType}}, maxListed)
	names := map[string]string{}
	for _, item := range items {
		names[item.ID] = item.Name
	}
	return names, err
}

// Pages returns the items of a call with pages, at most limit of them; with an error those before it.
func Pages[T any](ctx context.Context, a *API, path string, query url.Values, limit int) (items []T, err error) {
	query.Set("page_size", strconv.Itoa(pageSize))
	for range 2 * limit / pageSize { // pages may be shorter than pageSize
		page, err := Get[struct {
			Items     []T    `json:"items"`
			HasMore   bool   `json:"has_more"`
			PageToken string `json:"page_token"`
		}](ctx, a, path, query)
		items = append(items, page.Items...)
		if err != nil {
			return items, err
		}
		if len(items) >= limit || !page.HasMore || page.PageToken == "" || page.PageToken == query.Get("page_token") {
			break
		}
		query.Set("page_token", page.PageToken)
	}
	return items[:min(len(items), limit)], nil
}

// InChat reports whether the bot is in a chat:
// GET im/v1/chats/{id}/members/is_in_chat.
func (a *API) InChat(ctx context.Context, id relay.ChatID) (bool, error) {
	answer, err := Get[struct {
		In bool `json:"is_in_chat"`
	}](ctx, a, chatPath(id)+"/members/is_in_chat", nil)
	if slices.Contains(notInChat, CodeOf(err)) {
		return false, nil
	}
	return answer.In && err == nil, err
}

// User returns a person's display name: GET contact/v3/users/{id} (docs/feishu.md 4.2).
// It needs the scope contact:user.base:readonly.
func (a *API) User(ctx context.Context, id relay.OpenID) (name string, err error) {
	answer, err := Get[struct {
		User struct {
			Name string `json:"name"`
		} `json:"user"`
	}](ctx, a, "contact/v3/users/"+url.PathEscape(string(id)), url.Values{"user_id_type": {"open_id"}})
	return answer.User.Name, err
}

// Connections returns how many long connections the app has: GET event/v1/connection (docs/feishu.md 1.8).
func (a *API) Connections(ctx context.Context) (int, error) {
	answer, err := Get[struct {
		N int `json:"online_instance_cnt"`
	}](ctx, a, "event/v1/connection", nil)
	return answer.N, err
}

// Message returns a message as this app sees it: GET im/v1/messages/{id}
// (docs/feishu.md 5.3), with the open_ids of its mentions; and the messages of a merged forward.
func (a *API) Message(ctx context.Context, id relay.MessageID) (m Message, forwarded []Message, err error) {
	path := messagePath(id)
	body, err := a.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return m, nil, err
	}
	items, err := ParseHistory(body)
	if err != nil {
		return m, nil, fmt.Errorf("GET %s: %w", path, err)
	}
	i := slices.IndexFunc(items, func(m Message) bool { return m.ID == id })
	if i < 0 {
		return m, nil, fmt.Errorf("GET %s: %w: the answer does not contain the message", path, ErrNotAccepted)
	}
	return items[i], slices.Delete(slices.Clone(items), i, i+1), nil
}

// codeReactionBusy says that an equal reaction is being set (docs/feishu.md 6.2).
const codeReactionBusy = 231015

// Outgoing is a message to be sent.
type Outgoing struct {
	Chat     relay.ChatID
	ReplyTo  relay.MessageID // the message that is answered; "" for none
	InThread bool            // answer in its topic, and open one if there is none
	Type     string          // "text", "post", …
	Content  string          // JSON, as docs/feishu.md 5.1 has it
	// UUID has at most 50 characters: calls with the same one within an hour send one message. It may be "".
	UUID string
}

// SendMessage sends a message and returns it as Feishu accepted it: POST im/v1/messages, or
// POST im/v1/messages/{id}/reply (docs/feishu.md 5).
func (a *API) SendMessage(ctx context.Context, m Outgoing) (Message, error) {
	body := struct {
		ReceiveID     string `json:"receive_id,omitempty"`
		MsgType       string `json:"msg_type"`
		Content       string `json:"content"`
		ReplyInThread *bool  `json:"reply_in_thread,omitempty"`
		UUID          string `json:"uuid,omitempty"`
	}{MsgType: m.Type, Content: m.Content, UUID: m.UUID}
	path, query := "im/v1/messages", url.Values{"receive_id_type": {"chat_id"}}
	if m.ReplyTo != "" {
		path, query = messagePath(m.ReplyTo)+"/reply", nil
		body.ReplyInThread = &m.InThread // also where it is false
	} else {
		body.ReceiveID = string(m.Chat)
	}
	answer, err := a.call(ctx, http.MethodPost, path, query, compact(body))
	if err != nil {
		return Message{}, err
	}
	sent, err := ParseSent(answer)
	if err == nil && sent.ID == "" {
		err = fmt.Errorf("%w: the answer names no message", ErrNotAccepted)
	}
	if err != nil {
		return Message{}, fmt.Errorf("POST %s: %w", path, err)
	}
	return sent, nil
}

// Reply sends a text as a reply to a message and returns its id, as [API.SendMessage]. at-tags in text are mentions.
func (a *API) Reply(ctx context.Context, to relay.MessageID, text, uuid string) (relay.MessageID, error) {
	sent, err := a.SendMessage(ctx, Outgoing{ReplyTo: to, UUID: uuid, Type: "text", Content: TextContent(text)})
	return sent.ID, err
}

// TextContent is the content of a text message.
func TextContent(text string) string { return string(compact(map[string]string{"text": text})) }

// MarkdownContent is the content of a post with one paragraph of markdown.
func MarkdownContent(text string) string {
	paragraphs := [][]map[string]string{{{"tag": "md", "text": text}}}
	return string(compact(map[string]any{"zh_cn": map[string]any{"content": paragraphs}}))
}

// React adds a reaction, such as "OK", to a message: POST im/v1/messages/{id}/reactions
// (docs/feishu.md 5). An existing one, or one that another call is adding, is a success.
func (a *API) React(ctx context.Context, message relay.MessageID, emoji string) error {
	body := compact(map[string]any{"reaction_type": map[string]string{"emoji_type": emoji}})
	_, err := a.call(ctx, http.MethodPost, messagePath(message)+"/reactions", nil, body)
	if CodeOf(err) == codeReactionBusy {
		return nil
	}
	return err
}

// Managers returns the people who own and manage a chat, by their open_ids:
// GET im/v1/chats/{id} (docs/feishu.md 4.2). owner is "" if a bot owns the chat. If
// the bot is not in the chat, the error wraps a [*CodeError].
func (a *API) Managers(ctx context.Context, chat relay.ChatID) (owner relay.OpenID, managers []relay.OpenID,
	err error) {
	answer, err := Get[struct {
		Owner    relay.OpenID   `json:"owner_id"`
		Managers []relay.OpenID `json:"user_manager_id_list"`
	}](ctx, a, chatPath(chat), url.Values{"user_id_type": {"open_id"}})
	return answer.Owner, answer.Managers, err
}

// fileTime is how long all of a file may take.
const fileTime = 10 * time.Minute

var errSlow = fmt.Errorf("Feishu did not answer within %v", callTimeout)

// File opens a file of a message: GET im/v1/messages/{id}/resources/{key}
// (docs/feishu.md 5.4). Its bytes are read from Feishu as the caller reads them; it fails
// when ctx ends, or after ten minutes. The caller closes the Body.
func (a *API) File(ctx context.Context, id relay.MessageID, f relay.File) (file relay.FileContent, err error) {
	path := messagePath(id) + "/resources/" + url.PathEscape(f.Key)
	ctx, late := context.WithTimeout(ctx, fileTime)
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil); late() }
	err = a.withToken(ctx, func(token string) error {
		defer time.AfterFunc(callTimeout, func() { end(errSlow) }).Stop()
		req, err := a.request(ctx, http.MethodGet, path, url.Values{"type": {f.Type}}, token, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept-Encoding", "identity") // so that the size is known
		res, err := a.client.Do(req)
		if err != nil {
			return WithoutURL(err)
		}
		if res.StatusCode != http.StatusOK {
			defer res.Body.Close()
			_, err := readBody(res)
			return cmp.Or(err, fmt.Errorf("HTTP %d", res.StatusCode))
		}
		_, header, _ := mime.ParseMediaType(res.Header.Get("Content-Disposition")) // without one it has no name
		f.Name = cmp.Or(f.Name, content.FileName(header["filename"]))
		file = relay.FileContent{File: f, MediaType: res.Header.Get("Content-Type"), Size: res.ContentLength,
			Body: fileBody{res.Body, cancel}}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("GET %s: %w", path, cmp.Or(context.Cause(ctx), err))
		cancel()
	}
	return file, err
}

// fileBody is the body of a file. Its end ends the call.
type fileBody struct {
	io.ReadCloser
	cancel func()
}

func (b fileBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

const (
	// callTimeout is how long one call may take.
	callTimeout = 10 * time.Second
	// tokenMargin is how long before its expiry a token is no longer used.
	tokenMargin = 3 * time.Minute
)

// Codes of an expired or invalid token (docs/feishu.md 6.2).
var badToken = []int{99991663, 99991671, 99991668}

// Get calls path below /open-apis and returns the data of the answer.
func Get[T any](ctx context.Context, a *API, path string, query url.Values) (data T, err error) {
	body, err := a.call(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return data, err
	}
	if data, err = ReadAnswer[T](body); err != nil {
		return data, fmt.Errorf("GET %s: %w", path, err)
	}
	return data, nil
}

// call calls path and returns the answer, which has code 0. If Feishu does not accept the
// token it tries again with another.
func (a *API) call(ctx context.Context, method, path string, query url.Values, body []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = a.withToken(ctx, func(token string) (err error) {
		answer, err = a.do(ctx, method, path, query, token, body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// withToken makes a call with a token, and makes it again with another if Feishu does not accept the first.
func (a *API) withToken(ctx context.Context, call func(token string) error) error {
	token, err := a.anyToken(ctx)
	if err == nil {
		err = call(token)
	}
	if e, ok := errors.AsType[*CallError](err); !ok || !e.BadToken() {
		return err
	}
	a.forget(token)
	token, none := a.anyToken(ctx)
	if none != nil {
		return fmt.Errorf("%w: %w", none, err)
	}
	return call(token)
}

// do makes one call and returns the body of an answer with code 0.
func (a *API) do(ctx context.Context, method, path string, query url.Values, token string, body []byte) ([]byte,
	error) {
	req, err := a.request(ctx, method, path, query, token, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	res, err := a.client.Do(req)
	if err != nil {
		return nil, WithoutURL(err)
	}
	defer res.Body.Close()
	return readBody(res)
}

// request returns a request for path below /open-apis.
func (a *API) request(ctx context.Context, method, path string, query url.Values, token string, body []byte) (
	*http.Request, error) {
	target := a.base + "/open-apis/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the base URL is not a URL")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// CallError is an answer of Feishu that refuses a call.
type CallError struct {
	Status int           // of HTTP
	Later  time.Duration // until Feishu takes calls again; 0: unknown, or more than an hour
	Err    error         // wraps a [*CodeError] if Feishu gave a reason
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// BadToken reports whether Feishu did not accept the token.
func (e *CallError) BadToken() bool { return slices.Contains(badToken, CodeOf(e.Err)) }

// readBody returns the body of an answer with code 0; any other answer is a [*CallError].
func readBody(res *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if _, err = ReadAnswer[struct{}](data); err == nil {
		return data, nil
	}
	refused := &CallError{Status: res.StatusCode, Err: err}
	if CodeOf(err) == 0 && res.StatusCode != http.StatusOK {
		refused.Err = fmt.Errorf("HTTP %d", res.StatusCode)
	}
	// docs/feishu.md 6.3
	seconds, err := strconv.ParseFloat(res.Header.Get("X-Ogw-Ratelimit-Reset"), 64)
	if err == nil && seconds > 0 && seconds < 3600 {
		refused.Later = time.Duration(seconds * float64(time.Second))
	}
	return nil, refused
}

// anyToken returns the bot's token, else one fetched with the app's credentials.
func (a *API) anyToken(ctx context.Context) (string, error) {
	a.mu.Lock()
	token, valid := a.token, a.token != "" && (a.until.IsZero() || time.Now().Before(a.until))
	a.mu.Unlock()
	if valid {
		return token, nil
	}
	fetched := a.fetches.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		return caught(slog.New(slog.DiscardHandler), func() (string, error) { return a.fetch(ctx) })
	})
	select {
	case r := <-fetched:
		return r.Val.(string), r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// forget forgets a token that Feishu does not accept.
func (a *API) forget(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		a.token = ""
	}
}

// fetch gets a token for the app's credentials (docs/feishu.md 6.1), which is valid for at
// least half an hour.
func (a *API) fetch(ctx context.Context) (string, error) {
	a.mu.Lock()
	appID, appSecret := a.appID, a.appSecret
	a.mu.Unlock()
	if appSecret == "" {
		return "", ErrNoToken
	}
	body, err := a.do(ctx, http.MethodPost, "auth/v3/tenant_access_token/internal", nil, "",
		compact(map[string]string{"app_id": appID, "app_secret": appSecret}))
	if err != nil {
		return "", fmt.Errorf("fetch a token: %w", err)
	}
	issued, err := ParseTokens(body)
	if err != nil || issued.Tenant == "" {
		return "", errors.New("fetch a token: the answer contains none")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token, a.until = issued.Tenant, time.Now().Add(time.Duration(issued.Expire)*time.Second-tokenMargin)
	return issued.Tenant, nil
}
