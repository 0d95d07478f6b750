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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/sidecar"
)

const judgeKey = "sk-secret-of-the-judge"

// fakeJudge is an OpenAI endpoint that says what it is told to: a word, a status such as 500 (and quotes what it was
// asked), or nothing at all while it is told to "hang", or "hang TEXT" for prompts with that text.
type fakeJudge struct {
	server *httptest.Server

	mu      sync.Mutex
	says    string        // guarded by mu
	changed chan struct{} // closed when it is to say something else; guarded by mu
	asked   int           // guarded by mu
	prompt  string        // the last one; guarded by mu
}

// open starts the endpoint at its first use and returns its URL.
func (j *fakeJudge) open() string {
	if j.server == nil {
		j.changed, j.says = make(chan struct{}), "YES"
		j.server = httptest.NewServer(j)
	}
	return j.server.URL
}

func (j *fakeJudge) close() {
	if j.server != nil {
		j.set("YES")
		j.server.Close()
	}
}

func (j *fakeJudge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Messages []struct{ Content string } }
	if json.NewDecoder(r.Body).Decode(&ask) != nil || r.URL.Path != "/chat/completions" ||
		r.Header.Get("Authorization") != "Bearer "+judgeKey {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var prompt strings.Builder
	for _, m := range ask.Messages {
		prompt.WriteString(m.Content + "\n")
	}
	j.mu.Lock()
	j.asked++
	j.prompt = prompt.String()
	for {
		text, hangs := strings.CutPrefix(j.says, "hang")
		if !hangs || !strings.Contains(prompt.String(), strings.TrimSpace(text)) {
			break
		}
		changed := j.changed
		j.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		j.mu.Lock()
	}
	says := j.says
	j.mu.Unlock()
	var status int
	switch n, _ := fmt.Sscanf(says, "%d", &status); {
	case n == 1:
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(document{"error": document{"message": prompt.String() + r.Header.Get("Authorization")}})
	default:
		if strings.HasPrefix(says, "hang") { // another prompt
			says = "YES"
		}
		_ = json.NewEncoder(w).Encode(document{"choices": []document{
			{"message": document{"role": "assistant", "content": says}, "finish_reason": "stop"}}})
	}
}

func (j *fakeJudge) set(says string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.says = says
	if j.changed != nil {
		close(j.changed)
		j.changed = make(chan struct{})
	}
}

// seen is how often it was asked, and the last prompt.
func (j *fakeJudge) seen() document {
	j.mu.Lock()
	defer j.mu.Unlock()
	return document{"asked": json.Number(fmt.Sprint(j.asked)), "prompt": j.prompt}
}

// queueEnd is the queue as a program sees it that knows nothing of ours: a
// file to append to and to read, or a channel to publish on and to subscribe to.
type queueEnd struct {
	path string // of the bots' file; "" on Redis

	channel string
	client  *redis.Client
	mu      sync.Mutex
	heard   []string // on the channel; guarded by mu
}

func (q *queueEnd) dial(t *testing.T, url string) {
	opts, err := redis.ParseURL(url)
	must(t, err)
	q.client = redis.NewClient(opts)
	sub := q.client.Subscribe(t.Context(), q.channel)
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for m := range sub.Channel() {
			q.mu.Lock()
			q.heard = append(q.heard, m.Payload)
			q.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = sub.Close()
		_ = q.client.Close()
		reading.Wait()
	})
}

// lines is all that the queue held so far.
func (q *queueEnd) lines() ([]string, error) {
	if q.path == "" {
		q.mu.Lock()
		defer q.mu.Unlock()
		return append([]string(nil), q.heard...), nil
	}
	data, err := os.ReadFile(q.path)
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), err
}

// put gives text to the readers as it is: on a file its bytes, on Redis a
// message for each line.
func (q *queueEnd) put(ctx context.Context, queue, text string) error {
	if q.path != "" {
		path := filepath.Join(filepath.Dir(q.path), queue+".jsonl")
		if queue == "side" {
			path = filepath.Join(filepath.Dir(q.path), "side", "side.jsonl")
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		err := error(nil)
		if queue == "side" {
			err = q.client.XAdd(ctx, &redis.XAddArgs{Stream: sidecar.SideKey(q.channel), Values: []any{"payload", line}}).Err()
		} else {
			err = q.client.Publish(ctx, strings.Replace(q.channel, "outbound", queue, 1), line).Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// empty has Redis lose what it stores of the queues.
func (q *queueEnd) empty(ctx context.Context) error {
	keys, err := q.client.Keys(ctx, strings.TrimSuffix(q.channel, "outbound")+"*").Result()
	if err != nil || len(keys) == 0 {
		return cmp.Or(err, errNotThere)
	}
	return q.client.Del(ctx, keys...).Err()
}

// sevenFields are what a reader of the original contract knows, and their types.
type sevenFields struct {
	RelayMsgID      string         `json:"relay_msg_id"`
	Channel         string         `json:"channel"`
	ChatID          string         `json:"chat_id"`
	Content         string         `json:"content"`
	SenderBotOpenID string         `json:"sender_bot_open_id"`
	SenderAgentName string         `json:"sender_agent_name"`
	Metadata        map[string]any `json:"metadata"`
}

// message finds a message as that reader sees it.
func (q *queueEnd) message(id string) (document, error) {
	lines, err := q.lines()
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		var m sevenFields
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.RelayMsgID != id {
			continue
		}
		if m.Metadata == nil {
			return nil, errors.New("metadata is missing")
		}
		data, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		return decodeDocument(data)
	}
	return nil, errNotThere
}

var errNotThere = errors.New("is not in the queue")

// chatter is bots that answer whatever they are given.
type chatter struct {
	under sync.WaitGroup
	mu    sync.Mutex
	said  int // guarded by mu
}

func (c *chatter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

func (c *chatter) wait() { c.under.Wait() }

// maxChatter ends a talk that nothing else ends, as a failure.
const maxChatter = 200

// answers lets a bot answer every message in chat, with a question that no
// judge of courtesies stops.
func (s *story) answers(a *actor, chat, parent string) func() {
	return func() {
		s.talk.mu.Lock()
		s.talk.said++
		n := s.talk.said
		s.talk.mu.Unlock()
		if n > maxChatter {
			return
		}
		s.talk.under.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), storyLimit)
			defer cancel()
			body, err := json.Marshal(document{"chat_id": chat, "message_id": fmt.Sprintf("om_chatter_%d", n),
				"content": fmt.Sprintf("那第 %d 步怎么做？", n), "parent_id": parent, "ts": time.Now().UnixMilli()})
			if err == nil {
				_, _, err = a.call(ctx, http.MethodPost, "/v1/outbound", body)
			}
			if err != nil {
				s.t.Errorf("%s answers: %v", a.cfg.Agent, err)
			}
		})
	}
}
