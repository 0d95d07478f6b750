package mailbox_test

import (
	"regexp"
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

func TestCheckAgent(t *testing.T) {
	for _, id := range []mailbox.AgentID{
		"coder", "a", "agent_a", "A-1.2", "审查员", "a=b", "a.", mailbox.AgentID(strings.Repeat("x", 64)),
	} {
		if err := mailbox.CheckAgent(id); err != nil {
			t.Errorf("%q is refused: %v", id, err)
		}
	}
	for id, says := range map[mailbox.AgentID]string{
		"": "want an agent's name", mailbox.AgentID(strings.Repeat("x", 65)): "at most 64 bytes",
		mailbox.AgentID(strings.Repeat("字", 22)): "at most 64 bytes, this one 66",
		"a\xff": "UTF-8", "a\x00": "control", "a\nb": "control", "a\u0085b": "control", "a\u202eb": "invisible", "a\u200b": "invisible",
		"a b": "spaces", "a\u3000b": "spaces", "a/b": "none of", `a\b`: "none of", "@a": "none of", "<a": "none of", "a>": "none of",
		`a"`: "none of", "a'": "none of", "*": "none of", "a:b": "none of", "a|b": "none of", "a?": "none of",
		".": "begin", "..": "begin", ".hidden": "begin", "_registry.json": "begin", "self": "itself",
	} {
		refused(t, mailbox.CheckAgent(id), "", says)
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"m", "../x", "任务 1", strings.Repeat("x", 200)} {
		if err := mailbox.CheckID(id); err != nil {
			t.Errorf("%q is refused: %v", id, err)
		}
	}
	for id, says := range map[string]string{"": "empty", strings.Repeat("x", 201): "201 bytes", "a\xff": "UTF-8", "a\x00": "control"} {
		refused(t, mailbox.CheckID(id), "", says)
	}
}

func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^msg_1777197600000_coder_[a-z2-7]{10}$`)
	seen := map[string]bool{}
	for range 1000 {
		id := mailbox.NewID("coder", ten)
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("id %q: not of the form, or not the first", id)
		}
		seen[id] = true
	}
	e := hello()
	e.From = mailbox.AgentID(strings.Repeat("x", 64))
	e.ID = mailbox.NewID(e.From, ten)
	if err := validate(e); err != nil {
		t.Errorf("the id of an agent with a long name: %v", err)
	}
}

func TestTypes(t *testing.T) {
	for typ, want := range map[mailbox.Type]struct {
		known, result, answers, gives bool
		priority                      mailbox.Priority
	}{
		"message": {true, false, false, false, 3}, "question": {true, false, false, false, 3},
		"answer": {true, true, true, false, 3}, "notification": {true, false, false, false, 3},
		"task": {true, false, false, true, 2}, "task_assign": {true, false, false, true, 2},
		"task_update": {true, true, true, false, 3}, "task_complete": {true, true, true, false, 2},
		"task_failed": {true, true, true, false, 2}, "code_review_request": {true, false, false, false, 3},
		"code_review_result": {true, false, true, false, 3}, "test_request": {true, false, false, false, 3},
		"test_result": {true, false, true, false, 3}, "status_report": {true, false, false, false, 4},
		"heartbeat": {true, false, false, false, 5}, "error": {true, false, false, false, 1},
		"ack": {true, false, true, false, 3}, "nack": {true, false, true, false, 3},
		"ping": {true, false, false, false, 5}, "pong": {true, false, true, false, 5},
		"handshake.register": {true, false, false, false, 3}, "handshake.ack": {true, false, true, false, 3},
		"shout": {false, false, false, false, 3},
	} {
		if typ.Known() != want.known || typ.Result() != want.result || typ.Answers() != want.answers ||
			typ.GivesTask() != want.gives || typ.DefaultPriority() != want.priority {
			t.Errorf("%s: known %v, result %v, answers %v, gives a task %v, priority %d; want %+v",
				typ, typ.Known(), typ.Result(), typ.Answers(), typ.GivesTask(), typ.DefaultPriority(), want)
		}
	}
}
