package sidecar_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// fenceChat is where fences stand; no script speaks there.
const fenceChat = "oc_fence"

// story is one run of a script.
type story struct {
	t      *testing.T
	script *script
	redis  string // REDIS_URL; "" on files
	own    bool   // each sidecar has folders of its own
	home   string // all that is written lies below
	queue  queueEnd
	actors map[string]*actor
	names  []string // of actors, in the order of their first start
	judge  fakeJudge
	clock  time.Time // ts of the last message
	said   []saying
	fences int
	before map[string]string // of the command "snapshot"
	talk   chatter
}

// saying is a message that a sidecar accepted and relays.
type saying struct{ agent, chat, id, content string }

// channels gives every story on Redis a channel of its own.
var channels struct {
	sync.Mutex
	n int
}

func newStory(t *testing.T, sc *script, variant, redisURL string) *story {
	s := &story{t: t, script: sc, own: strings.HasSuffix(variant, "/own"), actors: map[string]*actor{},
		// Deep enough below the temporary folder for "../../etc" to be seen in it.
		home: filepath.Join(t.TempDir(), "a", "b", "home"), clock: time.Now().Add(-2 * time.Minute)}
	must(t, os.MkdirAll(s.home, 0o700))
	if strings.HasPrefix(variant, "redis/") {
		s.redis = redisURL
		channels.Lock()
		channels.n++
		s.queue.channel = cmp.Or(sc.channel, fmt.Sprintf("story%d:outbound", channels.n))
		channels.Unlock()
		s.queue.dial(t, redisURL)
	} else {
		s.queue.path = filepath.Join(s.home, "relay", "outbound.jsonl")
	}
	if text, ok := sc.files["groups.json"]; ok {
		must(t, os.WriteFile(s.groupsFile(), []byte(text), 0o600))
	}
	t.Cleanup(s.cleanUp)
	return s
}

func (s *story) groupsFile() string { return filepath.Join(s.home, "groups.json") }

// cleanUp ends what a failed story left running, and shows its logs.
func (s *story) cleanUp() {
	s.judge.close()
	s.talk.wait()
	ctx, cancel := context.WithTimeout(context.Background(), storyLimit)
	defer cancel()
	for _, name := range s.names {
		a := s.actors[name]
		if a.url != "" {
			_ = a.end(ctx) // it has failed already
		}
		if log := a.log.String(); s.t.Failed() {
			fmt.Fprintf(s.t.Output(), "log of %s ends with:\n%s\n", name, log[max(0, len(log)-3000):])
		}
	}
}

// config is what `feishu-relay run` makes of an environment with these settings
// and defaults for the rest. With HEARTBEAT_INTERVAL the agents' cards are in a folder of the story.
// OPENAI_BASE_URL=fake is the judge of this story.
func (s *story) config(agent, bot string, settings []string) (sidecar.Config, error) {
	home := s.home
	if s.own {
		home = filepath.Join(s.home, agent)
	}
	c := sidecar.Config{
		Agent: relay.AgentName(agent), BotName: bot, BotOpenID: relay.OpenID("ou_" + agent), ListenAddr: "127.0.0.1:0",
		Backend: "file", RelayDir: filepath.Join(home, "relay"), TranscriptDir: filepath.Join(home, "transcripts"),
		MaxAge: 10 * time.Minute, UserMessages: true, DedupSize: 5000, GroupsFile: s.groupsFile(), GroupPolicy: "auto",
		MembershipCheck: "auto",
		Limits:          policy.Limits{MaxDepth: 3, Threshold: 1, Check: true, Timeout: 10 * time.Second},
		Steer:           sidecar.SteerConfig{AnswerMode: "all", By: "members", MaxDepth: 10, StopNotice: "off", ContinueWindow: time.Hour},
	}
	if s.redis != "" {
		c.Backend, c.RedisURL, c.RelayChannel = "redis", sidecar.Secret(s.redis), s.queue.channel
	} else {
		c.RelayDir = filepath.Join(s.home, "relay") // the queue is what they share
	}
	for _, setting := range settings {
		if err := s.set(&c, setting); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (s *story) set(c *sidecar.Config, setting string) error {
	name, value, _ := strings.Cut(setting, "=")
	if err := setVariable(reflect.ValueOf(c).Elem(), name, value); err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	if c.Mailbox.Heartbeat > 0 {
		c.Mailbox.Dir, c.Mailbox.HeartbeatTimeout = filepath.Join(s.home, "mailboxes"), time.Minute
	}
	if c.Judge.BaseURL == "fake" {
		c.Judge = sidecar.JudgeConfig{APIKey: judgeKey, BaseURL: s.judge.open(), Model: "fake"}
	}
	return nil
}

var errNoSetting = errors.New("no such setting")

// setVariable sets the field of a configuration that has a variable of the environment.
func setVariable(c reflect.Value, name, value string) (err error) {
	for f := range c.Type().Fields() {
		field := c.FieldByIndex(f.Index)
		if f.Tag.Get("envconfig") != name {
			if field.Kind() == reflect.Struct {
				if err := setVariable(field, name, value); !errors.Is(err, errNoSetting) {
					return err
				}
			}
			continue
		}
		words := strings.Split(f.Tag.Get("oneof"), "|")
		switch field := field.Addr().Interface().(type) {
		case *int:
			*field, err = strconv.Atoi(value)
		case *time.Duration:
			*field, err = time.ParseDuration(value)
		case *bool:
			*field = value == words[len(words)-1] || value == "true"
		case *[]string:
			*field = strings.Split(value, ",")
		default:
			c.FieldByIndex(f.Index).SetString(value)
		}
		return err
	}
	return errNoSetting
}

// cast makes an actor and starts it.
func (s *story) cast(ctx context.Context, agent, bot string, settings []string) error {
	if s.actors[agent] != nil {
		return errors.New("is there already")
	}
	cfg, err := s.config(agent, bot, settings)
	if err != nil {
		return err
	}
	a := newActor(s, cfg)
	if a.cfg.InjectURL != "" {
		hook := httptest.NewServer(a)
		s.t.Cleanup(hook.Close)
		a.cfg.InjectURL = hook.URL
	}
	s.actors[agent] = a
	s.names = append(s.names, agent)
	return a.begin(ctx)
}

func (s *story) actor(name string) (*actor, error) {
	a := s.actors[name]
	if a == nil {
		return nil, fmt.Errorf("there is no %s", name)
	}
	return a, nil
}

func (s *story) running() (actors []*actor) {
	for _, name := range s.names {
		if a := s.actors[name]; a.url != "" {
			actors = append(actors, a)
		}
	}
	return actors
}

// fence waits until all that the running sidecars have accepted so far has been
// read by all of them, and stands in their transcripts. Each says one thing
// more, too old for any bot; since the queue keeps the order of a sender, who
// has dealt with that has read all before it.
func (s *story) fence(ctx context.Context) error {
	s.fences++
	for _, route := range []string{"/v1/outbound", "/v1/inbound"} {
		for _, from := range s.running() {
			id := fmt.Sprintf("fence:%d:%s:%s", s.fences, from.cfg.Agent, route)
			body, err := json.Marshal(document{"chat_id": fenceChat, "content": "fence", "message_id": id, "ts": 1, "sender": "fence"})
			if err != nil {
				return err
			}
			status, answer, err := from.call(ctx, http.MethodPost, route, body)
			if err != nil || status != http.StatusAccepted {
				return fmt.Errorf("fence of %s: %d %v %w", from.cfg.Agent, status, answer, err)
			}
			if textAt(answer, "relayed") != "true" {
				continue // users' messages are not shared
			}
			for _, to := range s.running() {
				if to == from {
					continue
				}
				err := to.await(ctx, func() (bool, error) { return to.hasEvent(id), nil })
				if err != nil {
					return fmt.Errorf("the fence of %s at %s: %w", from.cfg.Agent, to.cfg.Agent, err)
				}
			}
		}
	}
	return nil
}

// hasEvent reports whether watchers were told of a message; the caller holds mu.
func (a *actor) hasEvent(id string) bool {
	for _, e := range a.events {
		if e.id == id {
			return true
		}
	}
	return false
}

// settle is fence, and waits until every verdict is final: nothing unpublished,
// nothing unsettled, no bot about to answer.
func (s *story) settle(ctx context.Context) error {
	for {
		talked := s.talk.count()
		if err := s.fence(ctx); err != nil {
			return err
		}
		for _, a := range s.running() {
			err := s.until(ctx, []string{"get", string(a.cfg.Agent), "/v1/status", "200",
				"queues.outbound.unsettled=0", "queues.inbound.unsettled=0", "queues.outbound.outbox.pending=0", "queues.inbound.outbox.pending=0"})
			if err != nil {
				return fmt.Errorf("%s does not settle: %w", a.cfg.Agent, err)
			}
		}
		s.talk.wait()
		if s.talk.count() == talked {
			return nil
		}
	}
}
