package feishu

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"feishu-relay/relay"
)

var (
	ErrNotEvent    = errors.New("not an event of Feishu")
	ErrNotAccepted = errors.New("Feishu did not accept the call")
	ErrNoToken     = errors.New("no token of this app is known")
)

type Event struct {
	ID, Type                string
	AppID, TenantKey, Token string
	CreateTime              relay.Millis
	Message                 *Message
	ChatID                  relay.ChatID
	Streaming               bool
}

func ParseEvent(data []byte) (Event, error)       { return Event{}, nil }
func ParseSent(body []byte) (Message, error)      { return Message{}, nil }
func ParseHistory(body []byte) ([]Message, error) { return nil, nil }

type CodeError struct {
	Code int
	Msg  string
}

func (e *CodeError) Error() string { return "" }

func (m *Message) Text() string                               { return "" }
func Text(msgType, content string, mentions []Mention) string { return "" }
func Keys(msgType, content string) []string                   { return nil }
func Placeholder(text string) bool                            { return false }

type Card struct{}

func NewCard(data []byte) (*Card, error)                                { return &Card{}, nil }
func (c *Card) SetContent(element, text string)                         {}
func (c *Card) ReplaceElement(element string, data []byte) error        { return nil }
func (c *Card) PatchElement(element string, partial []byte) error       { return nil }
func (c *Card) AddElements(where, target string, elements []byte) error { return nil }
func (c *Card) DeleteElement(element string)                            {}
func (c *Card) Batch(actions []byte) error                              { return nil }
func (c *Card) Settings(data []byte) (err error)                        { return nil }
func (c *Card) Replace(data []byte) error                               { return nil }
func (c *Card) Streaming() bool                                         { return false }
func (c *Card) Text() string                                            { return "" }
func (c *Card) Mentions() []Mention                                     { return nil }

type Injected struct {
	EventID, AppID, TenantKey, Token string
	SenderType                       string
	Sender                           Bot
	Self                             Bot
	MentionsSelf                     bool
	Mentions                         []Mention
	Message                          relay.MessageID
	ChatID                           relay.ChatID
	ThreadID                         string
	RootID, ParentID                 relay.MessageID
	Text                             string
	CreateTime                       relay.Millis
	Prefix                           string
}

func (in *Injected) JSON() ([]byte, error) { return nil, nil }

func Sign(timestamp, nonce, key string, body []byte) string     { return "" }
func Encrypt(key string, plain []byte) (body []byte, err error) { return nil, nil }
func Decrypt(key string, body []byte) (plain []byte, err error) { return nil, nil }
func IsOpenHost(host string) bool                               { return false }

type Self struct {
	AppID  string       `json:"app_id,omitempty"`
	Name   string       `json:"name,omitempty"`
	OpenID relay.OpenID `json:"open_id,omitempty"`
}

type Membership int

const (
	Unknown Membership = iota
	Yes
	No
)

type Chat struct {
	ID    relay.ChatID
	Kind  string
	Topic bool
	Name  string
	In    Membership
	Asked time.Time
}

type Book struct{}

func OpenBook(root *os.Root, name string, log *slog.Logger) *Book             { return &Book{} }
func (b *Book) Self() Self                                                    { return Self{} }
func (b *Book) LearnSelf(Self) (changed bool)                                 { return false }
func (b *Book) LearnBot(Bot)                                                  {}
func (b *Book) Bot(id relay.OpenID) (Bot, bool)                               { return Bot{}, false }
func (b *Book) Agent(name relay.AgentName, appID, botName string) (Bot, bool) { return Bot{}, false }
func (b *Book) Bots() []Bot                                                   { return nil }
func (b *Book) Chat(id relay.ChatID) Chat                                     { return Chat{} }
func (b *Book) SawChat(id relay.ChatID, kind string)                          {}
func (b *Book) LeftChat(id relay.ChatID)                                      {}
func (b *Book) SetChat(Chat)                                                  {}
func (b *Book) Version() uint64                                               { return 0 }
func (b *Book) Flush() error                                                  { return nil }
func (b *Book) Close() error                                                  { return nil }

type API struct{}

type APIOption func(*API)

func NewAPI(base string, appID, appSecret string, opts ...APIOption) *API   { return &API{} }
func (a *API) SawToken(token string)                                        {}
func (a *API) Ready() bool                                                  { return false }
func (a *API) BotInfo(ctx context.Context) (Self, error)                    { return Self{}, nil }
func (a *API) Chat(ctx context.Context, id relay.ChatID) (Chat, error)      { return Chat{}, nil }
func (a *API) ChatBots(ctx context.Context, id relay.ChatID) ([]Bot, error) { return nil, nil }
func (a *API) InChat(ctx context.Context, id relay.ChatID) (bool, error)    { return false, nil }
func (a *API) Message(ctx context.Context, id relay.MessageID) (Message, error) {
	return Message{}, nil
}
