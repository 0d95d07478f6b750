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
	"slices"
	"strings"
	"time"
)

// command is one word of the scripts.
type command struct {
	usage string
	args  int // at least
	run   func(s *story, ctx context.Context, args []string) error
}

// storyCommands are the words of the scripts. Conditions are those of
// [story.check], texts those of [story.value]. `on VARIANT…` says where a script
// runs, and `until COMMAND…` repeats one.
func storyCommands() map[string]command {
	return map[string]command{
		"sidecar":    {"AGENT BOT [SETTING=…]…: start it for the first time", 2, (*story).sidecar},
		"refuses":    {"TEXT AGENT BOT [SETTING=…]…: it does not start, for this reason", 3, (*story).refuses},
		"stop":       {"AGENT: end it in order", 1, (*story).stopActor},
		"start":      {"AGENT [SETTING=…]…: start it again", 1, (*story).startActor},
		"away":       {"AGENT: the bot leaves its stream", 1, (*story).away},
		"back":       {"AGENT: the bot reads its stream again", 1, (*story).back},
		"user":       {"AGENT CHAT ID NAME TEXT [FIELD=…]…: the bot hears a person", 5, (*story).user},
		"say":        {"AGENT CHAT ID TEXT [FIELD=…]…: the bot says something", 4, (*story).say},
		"hears":      {"AGENT ID [CONDITION…]: the bot is given the message", 2, (*story).hears},
		"stops":      {"AGENT ID REASON [CONDITION…]: the sidecar stops the message", 3, (*story).stops},
		"transcript": {"AGENT CHAT [ID…]: these stand there, in the order of their ts", 2, (*story).transcript},
		"entry":      {"AGENT CHAT ID CONDITION…: of a message in the transcript", 4, (*story).entry},
		"post":       {"AGENT ROUTE STATUS BODY [CONDITION…]: of the answer", 4, (*story).post},
		"get":        {"AGENT ROUTE STATUS [CONDITION…]: of the answer", 3, (*story).get},
		"foreign":    {"QUEUE TEXT: a foreign program writes to the queue", 2, (*story).foreign},
		"wire":       {"ID [CONDITION…|-]: what a foreign program reads in the queue", 1, (*story).wire},
		"judge":      {"WORD: what the language model says from now on", 1, (*story).judgeSays},
		"judged":     {"CONDITION…: on asked and prompt", 1, (*story).judged},
		"webhook":    {"AGENT STATUS: what the bot's webhook answers from now on", 2, (*story).webhook},
		"edit":       {"TEXT: write it to the groups file", 1, (*story).edit},
		"chatter":    {"CHAT PARENT AGENT…: bots that answer everything they are given", 3, (*story).chatter},
		"said":       {"AT_LEAST AT_MOST: how much the chattering bots said", 2, (*story).saidBetween},
		"settle":     {": all that was said has its verdict", 0, func(s *story, ctx context.Context, _ []string) error { return s.settle(ctx) }},
		"snapshot":   {": of all files", 0, (*story).snapshot},
		"unchanged":  {": nothing was written since", 0, (*story).unchanged},
		"folder":     {"PATTERN FILE…: the files below home that match it", 1, (*story).folder},
	}
}

func (s *story) sidecar(ctx context.Context, args []string) error {
	return s.cast(ctx, args[0], args[1], args[2:])
}

func (s *story) refuses(ctx context.Context, args []string) error {
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

func (s *story) stopActor(ctx context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	return a.end(ctx)
}

func (s *story) startActor(ctx context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	for _, setting := range args[1:] {
		if err := s.set(&a.cfg, setting); err != nil {
			return err
		}
	}
	return a.begin(ctx)
}

func (s *story) away(ctx context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	a.away()
	return s.until(ctx, []string{"get", args[0], "/v1/status", "200", "door.connected=false"})
}

func (s *story) back(_ context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	return a.listen()
}

func (s *story) user(ctx context.Context, args []string) error {
	fields := document{"chat_id": args[1], "message_id": args[2], "sender": args[3], "content": args[4], "chat_type": "group"}
	_, err := s.report(ctx, args[0], "/v1/inbound", fields, args[5:])
	return err
}

func (s *story) say(ctx context.Context, args []string) error {
	fields := document{"chat_id": args[1], "message_id": args[2], "content": args[3]}
	answer, err := s.report(ctx, args[0], "/v1/outbound", fields, append([]string{"relayed=true"}, args[4:]...))
	if err != nil {
		return err
	}
	if id := textAt(answer, "relay_msg_id"); id != args[2] {
		return fmt.Errorf("got relay_msg_id %q, want the message's own id", id)
	}
	if textAt(answer, "relayed") == "true" {
		s.said = append(s.said, saying{args[0], args[2], fields["content"].(string)})
	}
	return nil
}

// report posts what a bot has heard or said. Messages are a second apart;
// `at=+30s` is another pause, `at=now-1h` a time of its own, `at=-` none.
// chat_type goes into the metadata of what it said; `fields={…}` adds JSON;
// `relayed=` is what the answer has to say.
func (s *story) report(ctx context.Context, agent, route string, fields document, more []string) (document, error) {
	a, err := s.actor(agent)
	if err != nil {
		return nil, err
	}
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
			if err := json.Unmarshal([]byte(v), &add); err != nil {
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

func (s *story) hears(ctx context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	err = a.await(ctx, func() (bool, error) {
		if got := untold(a.given, args[1], "message"); got != nil {
			got.told = true
			return true, s.check(got.doc, args[2:], "metadata", "metadata.decision")
		}
		if e := untold(a.events, args[1], "stop"); e != nil && textAt(e.doc, "reason") != "duplicate" {
			return false, fmt.Errorf("it was stopped: %s", textAt(e.doc, "reason"))
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	// Watchers are told a moment later.
	return a.await(ctx, func() (bool, error) {
		e := untold(a.events, args[1], "delivery")
		if e != nil {
			e.told = true
		}
		return e != nil, nil
	})
}

func (s *story) stops(ctx context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	return a.await(ctx, func() (bool, error) {
		if e := untold(a.events, args[1], "stop"); e != nil {
			e.told = true
			return true, s.check(e.doc, append([]string{"reason=" + args[2]}, args[3:]...))
		}
		if untold(a.given, args[1], "message") != nil && args[2] != "duplicate" {
			return false, errors.New("the bot was given it")
		}
		return false, nil
	})
}

// entries are those of a transcript once all that was sent is in it.
func (s *story) entries(ctx context.Context, agent, chat string) ([]any, error) {
	a, err := s.actor(agent)
	if err != nil {
		return nil, err
	}
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

func (s *story) transcript(ctx context.Context, args []string) error {
	list, err := s.entries(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	got := []string{}
	for _, e := range list {
		got = append(got, textAt(e, "message_id"))
	}
	if want := args[2:]; !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

func (s *story) entry(ctx context.Context, args []string) error {
	list, err := s.entries(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	for _, e := range list {
		if textAt(e, "message_id") == args[2] {
			return s.check(e.(document), args[3:])
		}
	}
	return errors.New("it is not there")
}

func (s *story) post(ctx context.Context, args []string) error {
	body, err := s.value(args[3])
	if err != nil {
		return err
	}
	return s.ask(ctx, http.MethodPost, args[0], args[1], args[2], body, args[4:])
}

func (s *story) get(ctx context.Context, args []string) error {
	return s.ask(ctx, http.MethodGet, args[0], args[1], args[2], "", args[3:])
}

// ask makes a request and checks the answer. "header:NAME=…" among the
// conditions is sent.
func (s *story) ask(ctx context.Context, method, agent, route, want, body string, conditions []string) error {
	a, err := s.actor(agent)
	if err != nil {
		return err
	}
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

func (s *story) foreign(ctx context.Context, args []string) error {
	text, err := s.value(args[1])
	if err != nil {
		return err
	}
	if !strings.HasPrefix(args[1], "torn:") {
		return s.queue.put(ctx, args[0], text+"\n")
	}
	return s.queue.put(ctx, args[0], strings.TrimPrefix(text, "torn:"))
}

func (s *story) wire(ctx context.Context, args []string) error {
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
