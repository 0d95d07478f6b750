package sidecar_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// command is one word of the scripts. If its usage begins with AGENT, that is the actor a and not among args.
type command struct {
	usage string
	args  int // at least
	run   func(s *story, ctx context.Context, a *actor, args []string) error
}

// storyCommands are the words of the scripts. Conditions are those of
// [story.check], texts those of [story.value]. `on VARIANT…` says where a script
// runs, and `until COMMAND…` repeats one.
func storyCommands() map[string]command {
	return map[string]command{
		"sidecar":    {"NEW_AGENT BOT [SETTING=…]…: start it for the first time", 2, (*story).sidecar},
		"refuses":    {"TEXT AGENT BOT [SETTING=…]…: it does not start, for this reason", 3, (*story).refuses},
		"stop":       {"AGENT: end it in order", 1, func(_ *story, ctx context.Context, a *actor, _ []string) error { return a.end(ctx) }},
		"start":      {"AGENT [SETTING=…]…: start it again", 1, (*story).startActor},
		"away":       {"AGENT: the bot leaves its stream", 1, (*story).away},
		"back":       {"AGENT: the bot reads its stream again", 1, func(_ *story, _ context.Context, a *actor, _ []string) error { return a.listen() }},
		"user":       {"AGENT CHAT ID NAME TEXT [FIELD=…]…: the bot hears a person", 5, (*story).user},
		"say":        {"AGENT CHAT ID TEXT [FIELD=…]…: the bot says something", 4, (*story).say},
		"hears":      {"AGENT ID [CONDITION…]: the bot is given the message", 2, (*story).hears},
		"stops":      {"AGENT ID REASON [CONDITION…]: the sidecar stops the message", 3, (*story).stops},
		"transcript": {"AGENT CHAT [ID…]: these stand there, in the order of their ts", 2, (*story).transcript},
		"entry":      {"AGENT CHAT ID CONDITION…: of a message in the transcript", 4, (*story).entry},
		"post":       {"AGENT ROUTE STATUS BODY [CONDITION…]: of the answer", 4, requests(http.MethodPost)},
		"patch":      {"AGENT ROUTE STATUS BODY [CONDITION…]: of the answer", 4, requests(http.MethodPatch)},
		"delete":     {"AGENT ROUTE STATUS BODY [CONDITION…]: of the answer", 4, requests(http.MethodDelete)},
		"get":        {"AGENT ROUTE STATUS [CONDITION…]: of the answer", 3, (*story).get},
		"log":        {"AGENT CONDITION…: on text, all that it logged", 2, (*story).logged},
		"foreign":    {"QUEUE TEXT: a foreign program writes to the queue", 2, (*story).foreign},
		"emptied":    {": Redis loses all that was in the queues", 0, func(s *story, ctx context.Context, _ *actor, _ []string) error { return s.queue.empty(ctx) }},
		"wire":       {"ID [CONDITION…|-]: what a foreign program reads in the queue", 1, (*story).wire},
		"judge":      {"WORD: what the language model says from now on", 1, (*story).judgeSays},
		"judged":     {"CONDITION…: on asked and prompt", 1, (*story).judged},
		"webhook":    {"AGENT STATUS: what the bot's webhook answers from now on; 0: it keeps who asks waiting", 2, (*story).webhook},
		"accepts":    {"AGENT ID: the bot's webhook has answered 202 and may settle the message later", 2, (*story).accepts},
		"edit":       {"TEXT: write it to the groups file", 1, (*story).edit},
		"chatter":    {"CHAT PARENT AGENT…: bots that answer everything they are given", 3, (*story).chatter},
		"said":       {"AT_LEAST AT_MOST: how much the chattering bots said", 2, (*story).saidBetween},
		"settle":     {": all that was said has its verdict", 0, func(s *story, ctx context.Context, _ *actor, _ []string) error { return s.settle(ctx) }},
		"snapshot":   {": of all files", 0, (*story).snapshot},
		"unchanged":  {": nothing was written since", 0, (*story).unchanged},
		"folder":     {"PATTERN FILE…: the files below home that match it", 1, (*story).folder},
	}
}

func (s *story) sidecar(ctx context.Context, _ *actor, args []string) error {
	return s.cast(ctx, args[0], args[1], args[2:])
}

func (s *story) refuses(ctx context.Context, _ *actor, args []string) error {
	cfg, err := s.config(args[1], args[2], args[3:])
	if err != nil {
		return err
	}
	a := newActor(s, cfg)
	err = a.begin(ctx)
	if err == nil {
		return errors.Join(errors.New("it starts"), a.end(ctx))
	}
	if !strings.Contains(err.Error(), args[0]) {
		return fmt.Errorf("got %w, want %q in it", err, args[0])
	}
	return nil
}

func (s *story) startActor(ctx context.Context, a *actor, args []string) error {
	for _, setting := range args {
		if err := s.set(&a.cfg, setting); err != nil {
			return err
		}
	}
	return a.begin(ctx)
}

func (s *story) away(ctx context.Context, a *actor, _ []string) error {
	a.away()
	return s.until(ctx, []string{"get", string(a.cfg.Agent), "/v1/status", "200", "door.connected=false"})
}

func (s *story) user(ctx context.Context, a *actor, args []string) error {
	fields := document{"chat_id": args[0], "message_id": args[1], "sender": args[2], "content": args[3], "chat_type": "group"}
	_, err := s.report(ctx, a, "/v1/inbound", fields, args[4:])
	return err
}

func (s *story) say(ctx context.Context, a *actor, args []string) error {
	fields := document{"chat_id": args[0], "message_id": args[1], "content": args[2]}
	answer, err := s.report(ctx, a, "/v1/outbound", fields, append([]string{"relayed=true"}, args[3:]...))
	if err != nil {
		return err
	}
	if id := textAt(answer, "relay_msg_id"); id != args[1] {
		return fmt.Errorf("got relay_msg_id %q, want the message's own id", id)
	}
	if textAt(answer, "relayed") == "true" {
		s.said = append(s.said, saying{string(a.cfg.Agent), args[0], args[1], fields["content"].(string)})
	}
	return nil
}

// report posts what a bot has heard or said. Messages are a second apart;
// `at=+30s` is another pause, `at=now-1h` a time of its own, `at=-` none.
// chat_type goes into the metadata of what it said; `fields={…}` adds JSON;
// `relayed=` is what the answer has to say.
func (s *story) report(ctx context.Context, a *actor, route string, fields document, more []string) (answer document, err error) {
	if fields["content"], err = s.value(fields["content"].(string)); err != nil {
		return nil, err
	}
	pause, at, relayed := time.Second, time.Time{}, ""
	for _, f := range more {
		name, v, _ := strings.Cut(f, "=")
		switch {
		case name == "relayed":
			relayed = v
		case name == "at" && v == "-":
			pause = 0
		case name == "at" && strings.HasPrefix(v, "+"):
			if pause, err = time.ParseDuration(v); err != nil {
				return nil, err
			}
		case name == "at":
			at = momentOf(v)
		case name == "chat_type" && route == "/v1/outbound":
			fields["metadata"] = document{"chat_type": v}
		case name == "fields":
			var add document
			if err := json.Unmarshal([]byte(s.times(v)), &add); err != nil {
				return nil, err
			}
			maps.Copy(fields, add)
		default:
			fields[name] = v
		}
	}
	switch {
	case !at.IsZero():
		fields["ts"] = at.UnixMilli()
	case pause > 0:
		s.clock = s.clock.Add(pause)
		fields["ts"] = s.clock.UnixMilli()
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	status, answer, err := a.call(ctx, http.MethodPost, route, body)
	if err != nil || status != http.StatusAccepted {
		return nil, fmt.Errorf("got %d %v %w, want 202", status, answer, err)
	}
	if got := textAt(answer, "relayed"); relayed != "" && got != relayed {
		return nil, fmt.Errorf("got relayed %s, want %s", got, relayed)
	}
	return answer, nil
}

func (s *story) hears(ctx context.Context, a *actor, args []string) error {
	err := a.await(ctx, func() (bool, error) {
		if got := untold(a.given, args[0], "message"); got != nil {
			got.told = true
			return true, s.check(got.doc, args[1:], "metadata", "metadata.decision")
		}
		if e := untold(a.events, args[0], "stop"); e != nil && textAt(e.doc, "reason") != "duplicate" {
			return false, fmt.Errorf("it was stopped: %s", textAt(e.doc, "reason"))
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	// Watchers are told a moment later.
	return a.await(ctx, func() (bool, error) {
		e := untold(a.events, args[0], "delivery")
		if e != nil {
			e.told = true
		}
		return e != nil, nil
	})
}

func (s *story) stops(ctx context.Context, a *actor, args []string) error {
	return a.await(ctx, func() (bool, error) {
		if e := untold(a.events, args[0], "stop"); e != nil {
			e.told = true
			return true, s.check(e.doc, append([]string{"reason=" + args[1]}, args[2:]...))
		}
		if untold(a.given, args[0], "message") != nil && args[1] != "duplicate" {
			return false, errors.New("the bot was given it")
		}
		return false, nil
	})
}

// entries are those of a transcript once all that was sent is in it.
func (s *story) entries(ctx context.Context, a *actor, chat string) ([]any, error) {
	if err := s.fence(ctx); err != nil {
		return nil, err
	}
	status, doc, err := a.call(ctx, http.MethodGet, "/v1/transcripts/feishu/"+url.PathEscape(chat)+"?limit=1000", nil)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound && textAt(doc, "error.code") == "not_found":
		return nil, nil
	case status != http.StatusOK:
		return nil, fmt.Errorf("got %d %v", status, doc)
	}
	list, _ := doc["entries"].([]any)
	list = messagesOf(list)
	// People's messages and bots' come by two queues: which of two was there
	// first is chance, and the depth goes by ts.
	slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(millisAt(a, "ts"), millisAt(b, "ts")) })
	return list, nil
}

// messagesOf are the entries that are messages: what the sidecars showed stands among them.
func messagesOf(entries []any) []any {
	return slices.DeleteFunc(entries, func(e any) bool { return textAt(e, "role") == "notice" })
}

func (s *story) transcript(ctx context.Context, a *actor, args []string) error {
	list, err := s.entries(ctx, a, args[0])
	if err != nil {
		return err
	}
	got := []string{}
	for _, e := range list {
		got = append(got, textAt(e, "message_id"))
	}
	if want := args[1:]; !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

func (s *story) entry(ctx context.Context, a *actor, args []string) error {
	list, err := s.entries(ctx, a, args[0])
	if err != nil {
		return err
	}
	for _, e := range list {
		if textAt(e, "message_id") == args[1] {
			return s.check(e.(document), args[2:])
		}
	}
	return errors.New("it is not there")
}

func requests(method string) func(*story, context.Context, *actor, []string) error {
	return func(s *story, ctx context.Context, a *actor, args []string) error {
		body, err := s.value(args[2])
		if err != nil {
			return err
		}
		return s.ask(ctx, a, method, args[0], args[1], body, args[3:])
	}
}

func (s *story) logged(_ context.Context, a *actor, conditions []string) error {
	return s.check(document{"text": a.log.String()}, conditions)
}

func (s *story) get(ctx context.Context, a *actor, args []string) error {
	return s.ask(ctx, a, http.MethodGet, args[0], args[1], "", args[2:])
}

// ask makes a request and checks the answer. "header:NAME=…" among the
// conditions is sent.
func (s *story) ask(ctx context.Context, a *actor, method, route, want, body string, conditions []string) error {
	req, err := a.request(ctx, method, route, []byte(body))
	if err != nil {
		return err
	}
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c string) bool {
		header, ok := strings.CutPrefix(c, "header:")
		switch name, v, _ := strings.Cut(header, "="); {
		case !ok:
		case name == "Host":
			req.Host = v
		default:
			req.Header.Set(name, v)
		}
		return ok
	})
	status, doc, err := a.answerTo(req)
	if err != nil {
		return err
	}
	if fmt.Sprint(status) != want {
		return fmt.Errorf("got %d %v, want %s", status, doc, want)
	}
	return s.check(doc, conditions)
}

func (s *story) foreign(ctx context.Context, _ *actor, args []string) error {
	text, err := s.value(args[1])
	if err != nil {
		return err
	}
	if !strings.HasPrefix(args[1], "torn:") {
		return s.queue.put(ctx, args[0], text+"\n")
	}
	return s.queue.put(ctx, args[0], strings.TrimPrefix(text, "torn:"))
}

func (s *story) wire(ctx context.Context, _ *actor, args []string) error {
	if len(args) == 2 && args[1] == "-" {
		if err := s.fence(ctx); err != nil {
			return err
		}
		if _, err := s.queue.message(args[0]); !errors.Is(err, errNotThere) {
			return fmt.Errorf("got %v, want nothing of it in the queue", err)
		}
		return nil
	}
	doc, err := s.queue.message(args[0])
	if err != nil {
		return err
	}
	return s.check(doc, args[1:], "metadata")
}

func (s *story) judgeSays(_ context.Context, _ *actor, args []string) error {
	s.judge.set(args[0])
	return nil
}

func (s *story) judged(_ context.Context, _ *actor, args []string) error {
	return s.check(s.judge.seen(), args)
}

func (s *story) webhook(_ context.Context, a *actor, args []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.wake()
	_, err := fmt.Sscan(args[0], &a.hooked)
	return err
}

func (s *story) accepts(ctx context.Context, a *actor, args []string) error {
	return a.await(ctx, func() (bool, error) {
		got := untold(a.given, args[0], "message")
		if got != nil {
			got.told = true
		}
		return got != nil, nil
	})
}

// edit replaces the groups file as editors do.
func (s *story) edit(_ context.Context, _ *actor, args []string) error {
	text, err := s.value(args[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.groupsFile()+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.groupsFile()+".new", s.groupsFile())
}

func (s *story) chatter(_ context.Context, _ *actor, args []string) error {
	var begin []func()
	for _, name := range args[2:] {
		a, err := s.actor(name)
		if err != nil {
			return err
		}
		answer := s.answers(a, args[0], strings.TrimPrefix(args[1], "-"))
		a.mu.Lock()
		a.answer = answer
		a.mu.Unlock()
		begin = append(begin, answer)
	}
	for _, answer := range begin { // to the person, whom each has heard from Feishu
		answer()
	}
	return nil
}

func (s *story) saidBetween(_ context.Context, _ *actor, args []string) error {
	var low, high int
	if _, err := fmt.Sscan(args[0]+" "+args[1], &low, &high); err != nil {
		return err
	}
	if n := s.talk.count(); n < low || n > high {
		return fmt.Errorf("got %d messages, want %d to %d", n, low, high)
	}
	return nil
}

// snapshot waits until all outcomes are written, which no message waits for.
func (s *story) snapshot(ctx context.Context, _ *actor, _ []string) (err error) {
	for _, a := range s.running() {
		none := fmt.Sprintf("text~feishu_relay_outbox_pending_messages{agent=%q,queue=\"side\"} 0\n", a.cfg.Agent)
		written := []string{"get", string(a.cfg.Agent), "/metrics", "200", none}
		if err := s.until(ctx, written); err != nil {
			return err
		}
	}
	s.before, err = s.written()
	return err
}

func (s *story) unchanged(context.Context, *actor, []string) error {
	after, err := s.written()
	if err != nil {
		return err
	}
	for path, text := range after {
		if old, ok := s.before[path]; !ok || old != text {
			return fmt.Errorf("%s was written: %q", path, strings.TrimPrefix(text, old))
		}
	}
	return nil
}

// ticks are lines of a book that say what was done before.
var ticks = regexp.MustCompile(`(?m)^.*"kind":"tick".*\n`)

// written is what the promises are about: queue, transcripts, outboxes, what was
// handled and delivered.
func (s *story) written() (map[string]string, error) {
	lines, err := s.queue.lines()
	if err != nil {
		return nil, err
	}
	out := map[string]string{"the queue": strings.Join(lines, "\n")}
	err = filepath.WalkDir(s.home, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".jsonl" || strings.Contains(path, "relay/feishu/") {
			return err // relay/feishu has who was met before, and is saved later
		}
		data, err := os.ReadFile(path)
		out[path] = ticks.ReplaceAllString(string(data), "")
		return err
	})
	return out, err
}

func (s *story) folder(_ context.Context, _ *actor, args []string) error {
	paths, err := filepath.Glob(filepath.Join(s.home, args[0]))
	if err != nil {
		return err
	}
	got := []string{}
	for _, path := range paths {
		got = append(got, filepath.Base(path))
	}
	if !slices.Equal(got, args[1:]) {
		return fmt.Errorf("got %q, want %q", got, args[1:])
	}
	return nil
}
