package feishusim

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// App is a self-built app with a bot.
type App struct {
	ID                string   `json:"app_id"`     // "cli_" and 16 hex digits; "": generated
	Secret            string   `json:"app_secret"` // "": generated
	Name              string   `json:"name"`       // of the bot; "": "Bot 1" and so on
	Scopes            []string `json:"scopes"`     // nil: [DefaultScopes]
	Events            []string `json:"events"`     // subscribed; nil: [DefaultEvents]
	EncryptKey        string   `json:"encrypt_key,omitempty"`
	VerificationToken string   `json:"verification_token"`    // "": generated
	WebhookURL        string   `json:"webhook_url,omitempty"` // "": events go to the long connections
}

// User is a person of the tenant.
type User struct {
	ID      string `json:"user_id"`
	UnionID string `json:"union_id"`
	Name    string `json:"name"`
}

// Group is a chat of people and bots.
type Group struct {
	ID      string   `json:"chat_id"` // "": generated
	Name    string   `json:"name"`
	Topic   bool     `json:"topic"`   // chat_mode topic: every message begins a thread
	Members []string `json:"members"` // ids of apps and users
	// Owner is a member; "": the first person, or without people the first bot.
	Owner    string   `json:"owner,omitempty"`
	Managers []string `json:"managers,omitempty"` // members, besides the owner
}

// Chat modes.
const (
	modeGroup = "group"
	modeTopic = "topic"
	modeP2P   = "p2p"
)

type app struct {
	App
	conns   []*conn
	pending []*pending // not acknowledged yet, in order
	added   int        // how often its open_ids were replaced
}

func (a *app) may(scopes ...string) bool {
	return slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(a.Scopes, s) })
}

// chat is a group, or a private chat, which has no name.
type chat struct {
	Group
	mode   string
	recent []time.Time // messages of bots within the last second
	newest int64       // time of the newest message in ms
	status string      // of a dissolved group that is still listed, such as dissolved_save
}

func (c *chat) has(entity string) bool { return slices.Contains(c.Members, entity) }

// managedBy reports whether an entity is the group's owner or one of its managers.
func (c *chat) managedBy(entity string) bool {
	return c.has(entity) && (c.Owner == entity || slices.Contains(c.Managers, entity))
}

type thread struct{ id, chat, root string }

var appID = regexp.MustCompile(`^cli_[0-9a-f]{16}$`)

// AddApp adds an app and returns it with its empty fields filled in. It panics if
// the SDKs do not accept the id (docs/feishu.md 1.7) or it exists already.
func (s *Server) AddApp(a App) App { return must(s.addApp(a)) }

func (s *Server) addApp(a App) (App, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.ID == "" {
		a.ID = newID("cli_", 8)
	}
	if !appID.MatchString(a.ID) {
		return App{}, fmt.Errorf("app id %.60q: want cli_ and 16 hex digits", a.ID)
	}
	if s.apps[a.ID] != nil {
		return App{}, fmt.Errorf("app %s exists already", a.ID)
	}
	a.Name = cmp.Or(a.Name, fmt.Sprintf("Bot %d", len(s.apps)+1))
	a.Secret = cmp.Or(a.Secret, rand.Text())
	a.VerificationToken = cmp.Or(a.VerificationToken, rand.Text())
	if a.Scopes == nil {
		a.Scopes = DefaultScopes()
	}
	if a.Events == nil {
		a.Events = DefaultEvents()
	}
	a.Scopes, a.Events = slices.Clone(a.Scopes), slices.Clone(a.Events)
	s.apps[a.ID] = &app{App: a}
	s.order = append(s.order, a.ID)
	return a, nil
}

// NoWebhook as WebhookURL in [Server.UpdateApp] switches back to long
// connections.
const NoWebhook = "none"

// UpdateApp changes an app: fields that are empty in a remain unchanged. Set
// Scopes to an empty slice, not nil, to remove them all.
func (s *Server) UpdateApp(a App) (App, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.apps[a.ID]
	if old == nil {
		return App{}, fmt.Errorf("no app %.60q", a.ID)
	}
	old.Secret, old.Name = cmp.Or(a.Secret, old.Secret), cmp.Or(a.Name, old.Name)
	old.EncryptKey = cmp.Or(a.EncryptKey, old.EncryptKey)
	old.VerificationToken = cmp.Or(a.VerificationToken, old.VerificationToken)
	if old.WebhookURL = cmp.Or(a.WebhookURL, old.WebhookURL); a.WebhookURL == NoWebhook {
		old.WebhookURL = ""
	}
	if a.Scopes != nil {
		old.Scopes = slices.Clone(a.Scopes)
	}
	if a.Events != nil {
		old.Events = slices.Clone(a.Events)
	}
	return old.App, nil
}

// AddUser adds a person, and panics without a name.
func (s *Server) AddUser(name string) User { return must(s.addUser(name)) }

func (s *Server) addUser(name string) (User, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		return User{}, errors.New("a user needs a name")
	}
	u := User{ID: newID("", 4), Name: name}
	u.UnionID = s.unionID(u.ID)
	s.users[u.ID] = &u
	s.order = append(s.order, u.ID)
	return u, nil
}

// AddGroup adds a group with apps and users, given by id or by a unique name.
// It causes no events. It panics if a member is unknown.
func (s *Server) AddGroup(name string, members ...string) Group {
	return must(s.addGroup(Group{Name: name, Members: members}))
}

func (s *Server) addGroup(g Group) (Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.ID = cmp.Or(g.ID, newID("oc_", 16))
	if !strings.HasPrefix(g.ID, "oc_") || s.chats[g.ID] != nil {
		return Group{}, fmt.Errorf("chat id %.60q: want oc_ and an unused rest", g.ID)
	}
	c := &chat{Group: Group{ID: g.ID, Name: g.Name, Topic: g.Topic}, mode: modeGroup}
	if g.Topic {
		c.mode = modeTopic
	}
	for _, m := range g.Members {
		entity, err := s.entity(m)
		if err != nil {
			return Group{}, err
		}
		if !c.has(entity) {
			c.Members = append(c.Members, entity)
		}
	}
	if err := s.manage(c, g.Owner, g.Managers); err != nil {
		return Group{}, err
	}
	s.chats[c.ID] = c
	return c.group(), nil
}

// group returns a copy.
func (c *chat) group() Group {
	g := c.Group
	g.Members, g.Managers = slices.Clone(g.Members), slices.Clone(g.Managers)
	return g
}

// UpdateGroup changes the owner and managers of the group with g's id, or without one
// with g's name. Owner "" and Managers nil change nothing. It causes no events.
func (s *Server) UpdateGroup(g Group) (Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.chat(cmp.Or(g.ID, g.Name))
	if err != nil {
		return Group{}, err
	}
	if g.Topic || g.Members != nil {
		return Group{}, errors.New("only the owner and the managers of a group can be changed here; see join and leave")
	}
	if err := s.manage(c, g.Owner, g.Managers); err != nil {
		return Group{}, err
	}
	return c.group(), nil
}

// manage sets a group's owner and managers; "" and nil change nothing. The caller holds s.mu.
func (s *Server) manage(c *chat, owner string, managers []string) error {
	var named []string
	for _, ref := range slices.Concat(managers, []string{cmp.Or(owner, s.ownerOf(c))}) {
		entity, err := s.entity(ref)
		if err == nil && !c.has(entity) {
			err = fmt.Errorf("%s is not in that chat", s.name(entity))
		}
		if err != nil && ref != "" { // "" in a group without members
			return err
		}
		named = append(named, entity)
	}
	if c.Owner = named[len(managers)]; managers != nil {
		c.Managers = named[:len(managers)]
	}
	return nil
}

// ownerOf is the member who was made a group's owner, else the first person, without people the first bot.
func (s *Server) ownerOf(c *chat) string {
	if c.has(c.Owner) {
		return c.Owner
	}
	people, bots := s.split(c)
	return append(slices.Concat(people, bots), "")[0]
}

// p2p returns the private chat of a user and an app, creating it on first use.
func (s *Server) p2p(user, app string) *chat {
	id := "oc_" + digest("p2p", user, app)
	if s.chats[id] == nil {
		s.chats[id] = &chat{Group: Group{ID: id, Members: []string{user, app}}, mode: modeP2P}
	}
	return s.chats[id]
}

// Join makes an app or a user a member of a group. An app gets
// im.chat.member.bot.added_v1.
func (s *Server) Join(group, member string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, entity, err := s.place(group, member)
	if err != nil {
		return err
	}
	if c.has(entity) {
		return nil
	}
	c.Members = append(c.Members, entity)
	c.Owner = s.ownerOf(c)
	s.memberEvent(c, entity, true)
	return nil
}

// Leave ends a membership. An app gets im.chat.member.bot.deleted_v1.
func (s *Server) Leave(group, member string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, entity, err := s.place(group, member)
	if err != nil {
		return err
	}
	at := slices.Index(c.Members, entity)
	if at < 0 {
		return nil
	}
	c.Members = slices.Delete(c.Members, at, at+1)
	c.Managers = slices.DeleteFunc(c.Managers, func(m string) bool { return m == entity })
	c.Owner = s.ownerOf(c)
	s.memberEvent(c, entity, false)
	return nil
}

// Disband ends a group: its bots get im.chat.disbanded_v1, and it has no
// members any more. With a status, such as dissolved_save, it keeps them and is listed with it, but what asks for its
// members or sends to it is refused.
func (s *Server) Disband(group, status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.chat(group)
	if err != nil {
		return err
	}
	members := c.Members
	if c.status = status; status == "" {
		c.Members = nil
	}
	for _, m := range members {
		if a := s.apps[m]; a != nil {
			s.emit(a, "im.chat.disbanded_v1", "", map[string]any{
				"chat_id": c.ID, "name": c.Name, "external": false, "operator_tenant_key": tenant,
			})
		}
	}
	return nil
}

func (s *Server) place(group, member string) (*chat, string, error) {
	c, err := s.chat(group)
	if err != nil {
		return nil, "", err
	}
	entity, err := s.entity(member)
	return c, entity, err
}

// chat finds a chat by its id or a unique name.
func (s *Server) chat(ref string) (*chat, error) {
	if c := s.chats[ref]; c != nil {
		return c, nil
	}
	var found *chat
	for _, c := range s.chats {
		if c.Name == ref && ref != "" {
			if found != nil {
				return nil, fmt.Errorf("several chats are called %.60q", ref)
			}
			found = c
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no chat %.60q", ref)
	}
	return found, nil
}

// entity finds an app or a user by id, union id, or a unique name.
func (s *Server) entity(ref string) (string, error) {
	if s.apps[ref] != nil || s.users[ref] != nil {
		return ref, nil
	}
	var found string
	for _, id := range s.order {
		if s.unionID(id) == ref {
			return id, nil
		}
		if s.name(id) == ref {
			if found != "" {
				return "", fmt.Errorf("several are called %.60q: give an id", ref)
			}
			found = id
		}
	}
	if found == "" {
		return "", fmt.Errorf("no app or user %.60q", ref)
	}
	return found, nil
}

func (s *Server) name(entity string) string {
	if a := s.apps[entity]; a != nil {
		return a.Name
	}
	if u := s.users[entity]; u != nil {
		return u.Name
	}
	return ""
}

// OpenID returns the id by which an app sees a bot or a person: it differs for
// each app (docs/feishu.md 4.1).
func (s *Server) OpenID(app, entity string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openID(app, entity)
}

func (s *Server) openID(app, entity string) string {
	if a := s.apps[entity]; a != nil && a.added > 0 {
		return "ou_" + digest(app, entity, strconv.Itoa(a.added))
	}
	return "ou_" + digest(app, entity)
}

// seen is the bot or person that an app sees by an open_id; "": none.
func (s *Server) seen(app, openID string) string {
	i := slices.IndexFunc(s.order, func(entity string) bool { return s.openID(app, entity) == openID })
	if i < 0 {
		return ""
	}
	return s.order[i]
}

// Reid gives an app other open_ids, as after it was removed and added. The earlier ones name nobody.
func (s *Server) Reid(app string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entity, err := s.entity(app)
	if err != nil {
		return err
	}
	a := s.apps[entity]
	if a == nil {
		return fmt.Errorf("%.60q is not an app", app)
	}
	a.added++
	return nil
}

func (s *Server) unionID(entity string) string { return "on_" + digest(tenant, entity) }

// digest returns 32 hex digits that depend on all parts.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// newID returns prefix and n random bytes in hex.
func newID(prefix string, n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return prefix + hex.EncodeToString(b)
}

// must panics on an error: in set-up by Go code a mistake is one of the
// program.
func must[T any](v T, err error) T {
	if err != nil {
		panic("feishusim: " + err.Error())
	}
	return v
}

// Scenario is apps, users and groups, as JSON:
//
//	{"apps":[{"name":"BotA"}],"users":["Ann"],"groups":[{"name":"Lab","members":["BotA","Ann"]}]}
type Scenario struct {
	Apps   []App    `json:"apps"`
	Users  []string `json:"users"`
	Groups []Group  `json:"groups"`
}

// ParseScenario reads a scenario; unknown fields are an error.
func ParseScenario(data []byte) (sc Scenario, err error) {
	if err = decode(data, &sc); err != nil {
		err = fmt.Errorf("scenario: %w", err)
	}
	return sc, err
}

// Build adds the scenario's apps, users and groups.
func (s *Server) Build(sc Scenario) error {
	for _, a := range sc.Apps {
		if _, err := s.addApp(a); err != nil {
			return err
		}
	}
	for _, name := range sc.Users {
		if _, err := s.addUser(name); err != nil {
			return err
		}
	}
	for _, g := range sc.Groups {
		if _, err := s.addGroup(g); err != nil {
			return err
		}
	}
	return nil
}
