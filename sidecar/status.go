package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/safefile"
	"feishu-relay/loop"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// Status is how a sidecar is, for GET /v1/status.
type Status struct {
	Version  string                     `json:"version"`
	Identity Identity                   `json:"identity"`
	Started  string                     `json:"started"`
	Ready    bool                       `json:"ready"`
	NotReady string                     `json:"not_ready,omitempty"`
	Backend  string                     `json:"backend"`
	Door     DoorStatus                 `json:"door"`
	Waiting  WaitingStatus              `json:"waiting"`
	Queues   map[string]QueueStatus     `json:"queues"`
	Gateway  any                        `json:"gateway,omitempty"`   // connections, drafts
	Feishu   *bool                      `json:"connector,omitempty"` // is the connector's connection up?
	Mailbox  *MailboxStatus             `json:"mailbox,omitempty"`
	Members  MembersStatus              `json:"membership"`
	Limits   Limits                     `json:"limits"`
	Steering SteeringStatus             `json:"steering"`
	Judge    any                        `json:"judge"` // "off", "rules", or the state of the LLM judge
	Missing  map[relay.AgentName]uint64 `json:"missing"`
	Groups   string                     `json:"groups_file_error,omitempty"`
	LastHour []httpapi.Minute           `json:"last_hour"` // of this bot
	Errors   []Problem                  `json:"last_errors"`
	Token    bool                       `json:"token_required"`
	Settings map[string]string          `json:"settings,omitempty"` // by variable, without secrets
	Agents   []AgentStatus              `json:"agents"`             // whose cards are in the registry, by name
}

// AgentStatus is whether an agent is there.
type AgentStatus struct {
	Agent  relay.AgentName `json:"agent_name"`
	Name   string          `json:"bot_name,omitempty"` // "": not known
	Online bool            `json:"online"`
	Bot    *mailbox.Bot    `json:"bot,omitempty"` // nil: not known
}

// Limits is the stop policy, where a group has none of its own.
type Limits struct {
	MaxDepth    int          `json:"max_bot_reply_depth"`
	Threshold   int          `json:"bot_reply_llm_threshold"`
	Check       bool         `json:"bot_reply_llm_check"`
	DepthCount  string       `json:"bot_reply_depth_count"`
	GroupPolicy string       `json:"group_policy"`
	MaxAge      relay.Millis `json:"relay_max_age_ms"`
}

// Identity is who the bot is.
type Identity struct {
	Agent  relay.AgentName `json:"agent_name"`
	Name   string          `json:"bot_name,omitempty"`
	OpenID relay.OpenID    `json:"bot_open_id,omitempty"`
	AppID  string          `json:"app_id,omitempty"`
}

// DoorStatus is where the bot gets its messages.
type DoorStatus struct {
	Name      string `json:"name"`                // gateway, webhook or stream
	Connected *bool  `json:"connected,omitempty"` // is the bot there? not known of a webhook
}

// WaitingStatus is the messages that may go to the bot and that it was not given yet, at most one of each chat and
// those that an earlier process left.
type WaitingStatus struct {
	Messages int          `json:"messages"`
	Oldest   relay.Millis `json:"oldest_ms"` // how long it has waited for the bot
}

// QueueStatus is one queue in both directions.
type QueueStatus struct {
	relay.Status
	Outbox  core.LaneStatus    `json:"outbox"`
	Counted map[string]float64 `json:"counted"` // since start, as in feishu_relay_queue_events_total
}

// MailboxStatus is the mailbox of the agent.
type MailboxStatus struct {
	Backend string `json:"backend"`
	agent.Counts
}

// MembersStatus says whether the bot hears only its own groups.
type MembersStatus struct {
	Check    string `json:"check"`
	Enforced bool   `json:"enforced"`
}

// Problem is the newest error of one part.
type Problem struct {
	Part  string `json:"part"`
	Error string `json:"error"`
	At    string `json:"at"`
	Count int    `json:"count"`
}

// SteeringStatus is how people steer the groups of this bot.
type SteeringStatus struct {
	AnswerMode string          `json:"answer_mode"`   // where a group has none of its own
	Commands   []string        `json:"steer_command"` // none: people cannot give commands
	By         string          `json:"steer_by"`
	Notice     string          `json:"stop_notice"`
	Groups     []GroupSteered  `json:"groups"`  // those with a pause or a mute
	Waiting    int             `json:"waiting"` // answers and notices that are not shown yet, as far as this sidecar knows
	Agents     []AgentSettings `json:"agents"`  // of the groups' bots: what their sidecars' environments say
}

// GroupSteered is a group in which somebody paused or muted bots.
type GroupSteered struct {
	Channel string                           `json:"channel"`
	ChatID  relay.ChatID                     `json:"chat_id"`
	Paused  *group.Until                     `json:"paused"`
	Muted   map[relay.AgentName]*group.Until `json:"muted"`
}

// AgentSettings are the settings that should be the same at all sidecars of a group.
type AgentSettings struct {
	Agent  relay.AgentName `json:"agent_name"`
	Answer group.Mode      `json:"answer_mode"`
	Budget int             `json:"group_budget"`
}

// Status tells how the sidecar is.
func (s *Sidecar) Status() Status {
	self, l := s.app.self(), s.cfg.Limits
	st := Status{Version: s.version, Started: relay.Timestamp(s.started), Backend: s.cfg.Backend,
		Identity: Identity{s.cfg.Agent, self.Name, self.OpenID, self.AppID},
		Door:     DoorStatus{Name: s.channels.current()}, Queues: map[string]QueueStatus{}, Missing: s.chats.peers.missing(),
		Members: MembersStatus{s.cfg.MembershipCheck, s.chats.enforced()}, Judge: "off",
		LastHour: s.events.LastHour(), Errors: s.problems.list(),
		Limits: Limits{l.MaxDepth, l.Threshold, l.Check, s.cfg.depthCount(), s.cfg.GroupPolicy,
			relay.Millis(s.cfg.MaxAge.Milliseconds())},
		Steering: s.steering(), Settings: s.settings, Token: s.cfg.APIToken != "", Agents: []AgentStatus{}}
	undelivered, _ := s.deliveryCounts()
	st.Waiting = WaitingStatus{undelivered.Items, age(undelivered)}
	cards := s.presence.seen.Load()
	for _, agent := range slices.Sorted(maps.Keys(cards.online)) {
		is := AgentStatus{agent, cards.names[agent], cards.online[agent], cards.bots[agent]}
		if agent == s.cfg.Agent {
			is.Name, is.Online, is.Bot = self.Name, true, s.botIs()
		}
		st.Agents = append(st.Agents, is)
	}
	if err := s.Ready(); err != nil {
		st.NotReady = err.Error()
	}
	st.Ready = st.NotReady == ""
	if is := s.channels.connected(); st.Door.Name != doorWebhook {
		st.Door.Connected = new(is[st.Door.Name])
	}
	for _, name := range laneNames {
		q := s.lanes[name]
		st.Queues[name] = QueueStatus{q.Status(), s.core.Lane(name), counted(q)}
	}
	if s.front != nil {
		st.Gateway = s.front.gateway.Status()
	}
	if s.mail != nil {
		st.Mailbox = &MailboxStatus{s.cfg.Backend, s.mail.agent.Counts()}
	}
	if s.speak != nil {
		st.Feishu = new(s.speak.connector.Connected())
	}
	switch {
	case !l.Check:
	case s.llm != nil:
		st.Judge = s.llm.State()
	default:
		st.Judge = "rules"
	}
	if err := s.chats.groups.Err(); err != nil {
		st.Groups = err.Error()
	}
	return st
}

// deliveryCounts are what the bot is to get, and what it has not answered.
func (s *Sidecar) deliveryCounts() (undelivered, inProgress deliver.Count) {
	s.core.View(func(c *loop.Core) { undelivered, inProgress = c.Bot().Counts() })
	return undelivered, inProgress
}

// age is how long the oldest of a count has waited.
func age(c deliver.Count) relay.Millis {
	if c.Oldest == 0 {
		return 0
	}
	return max(0, relay.MillisOf(time.Now())-c.Oldest)
}

func (s *Sidecar) steering() SteeringStatus {
	c := &s.cfg.Steer
	st := SteeringStatus{AnswerMode: c.AnswerMode, Commands: append([]string{}, c.Commands...), By: cmp.Or(c.By, "members"),
		Notice: c.StopNotice, Groups: []GroupSteered{}}
	agents := map[relay.AgentName]AgentSettings{}
	s.core.View(func(l *loop.Core) {
		for _, of := range l.Chats() {
			g := l.Group(of)
			if !g.In() {
				continue
			}
			st.Waiting += g.Waiting()
			for _, p := range g.Peers() {
				agents[p.Agent] = AgentSettings{p.Agent, p.Answer, p.Budget}
			}
			if set := g.View(time.Now()).Settings; set.Paused != nil || len(set.Muted) > 0 {
				st.Groups = append(st.Groups, GroupSteered{of.Channel, of.ID, set.Paused, set.Muted})
			}
		}
	})
	st.Agents = slices.AppendSeq([]AgentSettings{}, maps.Values(agents))
	slices.SortFunc(st.Agents, func(a, b AgentSettings) int { return cmp.Compare(a.Agent, b.Agent) })
	return st
}

// Ready returns nil when the backend is connected and being read, and the folders can be written.
func (s *Sidecar) Ready() error {
	var errs []error
	for _, name := range laneNames {
		switch st := s.lanes[name].Status(); {
		case !st.Connected:
			errs = append(errs, fmt.Errorf("%s queue: the %s backend does not answer: %s", name, s.cfg.Backend,
				cmp.Or(st.Error, "not yet connected")))
		case !st.Reading:
			errs = append(errs, fmt.Errorf("%s queue is not being read", name))
		}
	}
	return errors.Join(append(errs, s.probe.check())...)
}

// probeEvery is how long the answer of a write probe holds: each one makes a
// file, which wakes everybody who watches the folder.
const probeEvery = 5 * time.Second

// setFolder is a folder, and the setting by which the operator chose it.
type setFolder struct{ setting, path string }

// folderProbe tells whether folders can be written.
type folderProbe struct {
	dirs []setFolder

	mu  sync.Mutex
	at  time.Time // of the last probe; guarded by mu
	err error     // what it found; guarded by mu
}

func (f *folderProbe) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < probeEvery {
		return f.err
	}
	var errs []error
	for _, dir := range f.dirs {
		if err := writable(dir.path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir.setting, err))
		}
	}
	f.at, f.err = time.Now(), errors.Join(errs...)
	return f.err
}

func writable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("folder cannot be opened: %w", err)
	}
	defer root.Close()
	const probe = ".writable"
	if err := safefile.ReplaceFast(root, probe, []byte{'\n'}); err != nil { // one byte: a full disk takes empty files
		return fmt.Errorf("folder %s cannot be written: %w", dir, err)
	}
	_ = root.Remove(probe) // another sidecar may have been faster
	return nil
}

// problems keeps the newest error of each part.
type problems struct {
	mu    sync.Mutex
	parts map[string]Problem // guarded by mu; as many as there are parts
}

func newProblems() *problems { return &problems{parts: map[string]Problem{}} }

func (p *problems) set(part string, err error) {
	err = cmp.Or(err, errors.New("ended without an error"))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[part] = Problem{part, err.Error(), relay.Timestamp(time.Now()), p.parts[part].Count + 1}
}

func (p *problems) list() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	newestFirst := func(a, b Problem) int { return cmp.Compare(b.At, a.At) }
	return append([]Problem{}, slices.SortedFunc(maps.Values(p.parts), newestFirst)...)
}
