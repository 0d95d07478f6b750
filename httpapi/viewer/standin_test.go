package viewer_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/httpapi/viewer"
)

// standIn serves the page and answers its calls as a sidecar would, so that a test
// can let happen what with a real one happens seldom.
type standIn struct {
	url string

	mu       sync.Mutex
	chats    []string
	entries  map[string][]object // by chat
	outcomes map[string][]object // by chat
	asked    []string            // paths with their queries
	away     string              // calls whose path begins so get 503; "": none
	held     map[string]chan struct{}
	gone     bool     // records were cut: no cursor fits any more
	kept     []object // events
	kept1st  int      // number of the first of kept that is repeated
	changed  chan struct{}
	group    object   // of each chat
	cards    []object // of the agents
	tasks    []object
	changes  []string // of it that were asked for, as "PATCH {…}"
}

type object = map[string]any

const began = 1_700_000_000_000 // Unix milliseconds

func newStandIn(t *testing.T, chats ...string) *standIn {
	s := &standIn{chats: chats, entries: map[string][]object{}, outcomes: map[string][]object{}, held: map[string]chan struct{}{}, changed: make(chan struct{}), group: newGroup()}
	mux := http.NewServeMux()
	answer := func(path string, make func(r *http.Request) any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if !s.answers(w, r) {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			if s.gone && r.FormValue("before") != "" {
				w.WriteHeader(http.StatusGone)
				_, _ = w.Write([]byte(`{"error":{"code":"gone","message":"begin anew"}}`))
				return
			}
			_ = json.NewEncoder(w).Encode(make(r))
		})
	}
	answer("/v1/status", func(*http.Request) any {
		minute := time.Now().Truncate(time.Minute).UnixMilli()
		return object{"identity": object{"agent_name": "agent_a", "bot_name": "BotA"}, "ready": true, "queues": object{}, "door": object{"name": "stream"}, "judge": "off",
			"last_hour": []object{{"at": minute - 5*60_000, "delivered": 6, "stopped": 3}, {"at": minute, "delivered": 1, "stopped": 0}}}
	})
	answer("/v1/transcripts", func(*http.Request) any { return object{"transcripts": s.list()} })
	answer("/v1/transcripts/feishu/{chat}", s.page)
	answer("/v1/transcripts/mailbox/{chat}", s.page)
	answer("/v1/outcomes", func(r *http.Request) any {
		all := s.outcomes[r.FormValue("chat_id")]
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		return object{"outcomes": append([]object{}, all[max(0, len(all)-limit):]...), "complete": true}
	})
	answer("/v1/groups", func(*http.Request) any { return object{"groups": []any{s.group}} })
	answer("/v1/mailbox/agents", func(*http.Request) any { return object{"agents": append([]object{}, s.cards...)} })
	answer("/v1/mailbox/tasks", func(*http.Request) any { return object{"tasks": append([]object{}, s.tasks...)} })
	answer("/v1/mailbox/inbox", func(*http.Request) any { return object{"messages": []object{}, "total": 0} })
	answer("/v1/mailbox/dead-letters", func(*http.Request) any { return object{"dead_letters": []object{}} })
	answer("/v1/groups/{chat}", func(*http.Request) any { return s.group })
	for _, change := range []string{"PATCH /v1/groups/{chat}", "DELETE /v1/groups/{chat}/settings", "POST /v1/groups/{chat}/{act}"} {
		mux.HandleFunc(change, s.changeGroup)
	}
	mux.HandleFunc("GET /v1/events", s.events)
	mux.Handle("/", viewer.Handler())
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}

// newGroup is how a group is that nobody has changed.
func newGroup() object {
	sources := object{}
	for _, key := range []string{"answer", "default_bot", "limit", "threshold", "judge", "budget", "paused", "muted"} {
		sources[key] = "env"
	}
	return object{"channel": "feishu", "chat_id": "oc_x", "locked": false, "version": "v1", "depth": 2, "sources": sources,
		"settings": object{"answer": "all", "default_bot": "", "limit": 3, "threshold": 1, "judge": true, "budget": 0, "paused": nil,
			"muted": object{}},
		"bots":      []object{{"agent": "agent_b", "name": "BotB", "online": true}, {"agent": "agent_c", "name": "小C", "online": false}},
		"last_stop": object{"message_id": "om_1", "sender": "agent_b", "bots": []string{"agent_c"}, "reason": "max_depth", "at": began}}
}

// changeGroup takes a change of a group as a sidecar does: a version that is not its own is refused.
func (s *standIn) changeGroup(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	name := r.Method
	if act := path.Base(r.URL.Path); r.Method != http.MethodPatch {
		name += " " + act
	}
	s.changes = append(s.changes, strings.TrimSpace(name+" "+string(body)))
	change := object{}
	_ = json.Unmarshal(body, &change)
	w.Header().Set("Content-Type", "application/json")
	if version, ok := change["version"]; ok && version != s.group["version"] {
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"error":{"code":"conflict","message":"read it again"}}`))
		return
	}
	delete(change, "version")
	group := maps.Clone(s.group)
	settings := maps.Clone(group["settings"].(object))
	for key, value := range change {
		switch key {
		case "paused":
			if settings[key] = nil; value != false {
				settings[key] = object{"until": nil}
			}
		case "muted":
			muted := maps.Clone(settings[key].(object))
			for bot, on := range value.(object) {
				if delete(muted, bot); on != false {
					muted[bot] = object{"until": nil}
				}
			}
			settings[key] = muted
		default:
			settings[key] = value
		}
	}
	group["settings"], group["version"] = settings, fmt.Sprintf("v%d", len(s.changes)+1)
	s.group = group
	_ = json.NewEncoder(w).Encode(group)
}

// answers reports whether the sidecar is there, after what is held.
func (s *standIn) answers(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.String())
	held := s.held[r.URL.Path]
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != "" && strings.HasPrefix(r.URL.Path, s.away) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"error":{"code":"not_ready","message":"try later"}}`))
		return false
	}
	return true
}

func (s *standIn) list() []object {
	list := []object{}
	for _, chat := range s.chats {
		channel := "feishu"
		if strings.HasPrefix(chat, "oc_relaypeer") {
			channel = "mailbox"
		}
		row := object{"channel": channel, "chat_id": chat, "modified": began, "limits": object{"max_depth": 3, "threshold": 1, "check": true}}
		if channel == "mailbox" {
			row["name"] = "agent_b ↔ agent_c"
		}
		if all := s.entries[chat]; len(all) > 0 {
			row["last"] = all[len(all)-1]
		}
		list = append(list, row)
	}
	return list
}

// page is a page of a record; its cursor is a place in it.
func (s *standIn) page(r *http.Request) any {
	all := s.entries[r.PathValue("chat")]
	end := len(all)
	if before := r.FormValue("before"); before != "" {
		end, _ = strconv.Atoi(before)
	}
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	from := max(0, end-limit)
	entries := slices.DeleteFunc(slices.Clone(all[from:end]), func(e object) bool { return !strings.Contains(fmt.Sprint(e["content"]), r.FormValue("q")) })
	page := object{"entries": entries}
	if from > 0 {
		page["earlier"] = strconv.Itoa(from)
	}
	return page
}

// events repeats to a reader that comes back what is kept, and goes on.
func (s *standIn) events(w http.ResponseWriter, r *http.Request) {
	if !s.answers(w, r) {
		return
	}
	s.mu.Lock()
	next := len(s.kept)
	if last, err := strconv.Atoi(r.Header.Get("Last-Event-ID")); err == nil {
		next = max(last+1, s.kept1st)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write([]byte("retry: 100\n\n"))
	for {
		s.mu.Lock()
		list, changed, away := s.kept[next:], s.changed, s.away != "" && strings.HasPrefix("/v1/events", s.away)
		s.mu.Unlock()
		if away {
			return
		}
		for _, e := range list {
			data, _ := json.Marshal(e)
			fmt.Fprintf(w, "event: %s\nid: %d\ndata: %s\n\n", e["type"], next, data)
			next++
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// change does something to s, and lets the watchers see it.
func (s *standIn) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *standIn) goAway(path string) { s.change(func() { s.away = path }) }
func (s *standIn) comeBack()          { s.goAway("") }

// hold lets calls of a path wait until release.
func (s *standIn) hold(path string) (release func()) {
	held := make(chan struct{})
	s.change(func() { s.held[path] = held })
	return func() {
		s.change(func() { delete(s.held, path) })
		close(held)
	}
}

// record writes entries om_<from> … into a chat, every second a bot's.
func (s *standIn) record(chat string, from, n int) (list []object) {
	for i := from; i < from+n; i++ {
		e := object{"role": "user", "sender": "Tom", "content": fmt.Sprintf("message %d", i), "message_id": fmt.Sprintf("om_%d", i), "ts": began + 1000*i}
		if i%2 == 1 {
			e["role"], e["sender"], e["depth"] = "assistant", "agent_b", 1
		}
		list = append(list, e)
	}
	s.change(func() { s.entries[chat] = append(s.entries[chat], list...) })
	return list
}

// say records entries and tells the watchers.
func (s *standIn) say(chat string, from, n int) {
	list := s.record(chat, from, n)
	s.change(func() {
		for _, entry := range list {
			e := object{"type": "message", "channel": "feishu", "chat_id": chat, "relay_msg_id": entry["message_id"], "time": entry["ts"]}
			for _, name := range []string{"role", "sender", "content", "ts", "depth"} {
				e[name] = entry[name]
			}
			s.kept = append(s.kept, e)
		}
	})
}

// calls are the calls so far whose path with query contains part.
func (s *standIn) calls(part string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if strings.Contains(a, part) {
			found = append(found, a)
		}
	}
	return found
}
