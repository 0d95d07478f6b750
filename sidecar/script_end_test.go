package sidecar_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"feishu-relay/sidecar"
)

// end proves what holds at the end of every story, whatever was in it: all has
// settled, the sidecars stop in order, no bot was given anything that the script
// did not expect, every message has one verdict at each sidecar, logs hold no
// texts and no secrets, and nothing was written outside of the folders.
func (s *story) end() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), storyLimit)
	defer cancel()
	if err := s.settle(ctx); err != nil {
		return err
	}
	running := s.running()
	for _, a := range running {
		if err := a.end(ctx); err != nil {
			return fmt.Errorf("stop %s: %w", a.cfg.Agent, err)
		}
	}
	for _, name := range s.names {
		for _, got := range s.actors[name].given {
			if !got.told {
				return fmt.Errorf("%s was also given %s", name, got.id)
			}
		}
	}
	for _, a := range running {
		if err := s.oneVerdict(a); err != nil {
			return err
		}
	}
	if err := s.discreetLogs(); err != nil {
		return err
	}
	return s.nothingOutside()
}

// oneVerdict proves that each message of the others was either delivered or
// stopped, once; repeats of it are stopped as such.
func (s *story) oneVerdict(a *actor) error {
	for _, m := range s.said {
		if m.agent == string(a.cfg.Agent) {
			continue
		}
		verdicts := []string{}
		for _, e := range a.events {
			switch {
			case e.id != m.id || !strings.HasSuffix(textAt(e.doc, "chat_id"), m.chat):
			case e.kind == "delivery":
				verdicts = append(verdicts, "delivered")
			case e.kind == "stop" && textAt(e.doc, "reason") != "duplicate":
				verdicts = append(verdicts, textAt(e.doc, "reason"))
			}
		}
		if len(verdicts) != 1 {
			return fmt.Errorf("%s has the verdicts %v on %s, want one", a.cfg.Agent, verdicts, m.id)
		}
	}
	return nil
}

// tellingText is how long a text must be to be told from what stands in a log
// anyway.
const tellingText = 12

// discreetLogs proves that logs hold no text and no secret, and have one line with all its keys for each decision.
func (s *story) discreetLogs() error {
	for _, name := range s.names {
		a := s.actors[name]
		log := a.log.String()
		for _, m := range s.said {
			if len(m.content) >= tellingText && strings.Contains(log, m.content) {
				return fmt.Errorf("the log of %s holds the text of %s", name, m.id)
			}
		}
		c := a.cfg
		for _, secret := range []sidecar.Secret{judgeKey, c.RelaySecret, c.APIToken, c.AdminToken, c.AppSecret, c.EncryptKey, "MARKED"} {
			if secret != "" && strings.Contains(log, string(secret)) {
				return fmt.Errorf("the log of %s holds a secret", name)
			}
		}
		if i := strings.Index(log, "panic"); i >= 0 {
			return fmt.Errorf("the log of %s: %.500s", name, log[i:])
		}
		decided := map[string]bool{}
		for line := range strings.Lines(log) {
			entry, err := decodeDocument([]byte(line))
			if err != nil {
				return fmt.Errorf("the log of %s: %w: %s", name, err, line)
			}
			if entry["msg"] != "decision" {
				continue
			}
			for _, key := range []string{"agent", "chat", "sender", "allow", "tier", "reason", "detail", "depth", "judge_ms", "mentioned"} {
				if _, ok := entry[key]; !ok {
					return fmt.Errorf("the log of %s: the decision has no %s: %s", name, key, line)
				}
			}
			id := textAt(entry, "chat") + textAt(entry, "msg_id")
			if decided[id] {
				return fmt.Errorf("the log of %s: decided twice: %s", name, line)
			}
			decided[id] = true
		}
	}
	return nil
}

// nothingOutside proves that home and what lies above it hold what they should.
func (s *story) nothingOutside() error {
	allowed := map[string]bool{"relay": true, "transcripts": true, "mailboxes": true, "groups.json": true}
	for _, name := range s.names {
		allowed[name] = s.own
	}
	for dir := s.home; ; dir = filepath.Dir(dir) {
		list, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, f := range list {
			if !allowed[f.Name()] {
				return fmt.Errorf("%s was written outside of the folders", filepath.Join(dir, f.Name()))
			}
		}
		if filepath.Base(dir) == "a" {
			return nil
		}
		allowed = map[string]bool{filepath.Base(dir): true}
	}
}
