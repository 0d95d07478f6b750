package main

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

const (
	outboxPause = time.Second // between two looks at the outbox, to see whether it grows
	freshError  = time.Hour   // how long an error is reported; it may be mended since
)

// runningSidecar is what a running sidecar reports of itself.
type runningSidecar struct {
	Version  string
	Identity struct {
		Agent relay.AgentName `json:"agent_name"`
	}
	Ready    bool
	NotReady string `json:"not_ready"`
	Gateway  struct{ Connected bool }
	Door     sidecar.DoorStatus
	Steering sidecar.SteeringStatus
	Settings map[string]string
	Queues   map[string]struct {
		Outbox struct {
			Pending int64
			Error   string
		}
	}
	Errors []struct {
		Part  string
		Error string
		At    time.Time
		Count int
	} `json:"last_errors"`
}

// askSidecar asks the sidecar at LISTEN_ADDR, if it is this agent's.
func askSidecar(ctx context.Context, c *config) (*runningSidecar, error) {
	var running runningSidecar
	code, err := askLocal(ctx, c, "/v1/status", &running)
	if err == nil && (code != http.StatusOK || running.Identity.Agent != c.Agent) {
		err = say("no sidecar of this agent answers", "这个智能体的边车没有应答")
	}
	return &running, err
}

// ofRunning makes a probe of one that needs the running sidecar. Without one it finds
// nothing: that is reported with the local API.
func ofRunning(run func(context.Context, *subject, *runningSidecar) []finding) probing {
	return func(ctx context.Context, s *subject) []finding {
		running, err := s.sidecar()
		if err != nil {
			return nil
		}
		return run(ctx, s, running)
	}
}

func checkReady(_ context.Context, _ *subject, running *runningSidecar) []finding {
	if !running.Ready {
		return failure(say("fix what else is found here; its log names a queue that is not read",
			"先解决这里的其他问题；日志里有读不了的队列"),
			"not ready: %s", "没有就绪：%s", running.NotReady)
	}
	return well("ready, version %s", "就绪，版本 %s", cmp.Or(alike(running.Version), unknown))
}

func checkVersion(_ context.Context, _ *subject, running *runningSidecar) []finding {
	if running.Version == versionText() {
		return nil
	}
	return warning(say("restart the sidecar, or check with the program that it runs", "重启边车，或用它运行的那个程序检查"),
		"the running sidecar is %s, this program is %s",
		"运行中的边车是 %s，这个程序是 %s", cmp.Or(alike(running.Version), unknown), versionText())
}

// checkOutbox looks a second time at what waits there.
func checkOutbox(ctx context.Context, s *subject, running *runningSidecar) (out []finding) {
	pending := func(queue string) int64 { return running.Queues[queue].Outbox.Pending }
	waits := slices.DeleteFunc(slices.Sorted(maps.Keys(running.Queues)), func(q string) bool { return pending(q) == 0 })
	if len(waits) == 0 {
		return nil
	}
	if wait.Sleep(ctx, outboxPause) != nil {
		return nil
	}
	later, err := askSidecar(ctx, s.config)
	if err != nil {
		return nil // it was ended meanwhile
	}
	for _, q := range waits {
		now := later.Queues[q].Outbox
		if now.Pending < pending(q) {
			continue // it is being sent
		}
		more := text{}
		if now.Pending > pending(q) {
			more = say(", and they grow", "，而且在增加")
		}
		if now.Error != "" {
			more = say("%s: %s", "%s：%s", more, now.Error)
		}
		out = append(out, warning(say("nothing is lost, and it is sent when the backend answers: fix what is found there",
			"没有丢失，后端恢复后会发出；先解决那里的问题"),
			"the %s queue has %s that the backend has not taken%s",
			"%s 队列里有 %s后端没有接收%s", q, amount(int(now.Pending), "message", "messages", "条消息"), more)...)
	}
	return out
}

// checkEnvironments compares settings that hold for a whole group and that each sidecar has its own of.
func checkEnvironments(_ context.Context, _ *subject, running *runningSidecar) (out []finding) {
	all := running.Steering.Agents
	for _, s := range []struct {
		name string
		of   func(sidecar.AgentSettings) string
		key  string
	}{
		{"ANSWER_MODE", func(a sidecar.AgentSettings) string { return string(a.Answer) }, "answer_mode"},
		{"GROUP_BUDGET", func(a sidecar.AgentSettings) string { return strconv.Itoa(a.Budget) }, "group_budget"},
	} {
		if !slices.ContainsFunc(all, func(a sidecar.AgentSettings) bool { return s.of(a) != s.of(all[0]) }) {
			continue
		}
		var has []string
		for _, a := range all {
			has = append(has, string(a.Agent)+" "+s.of(a))
		}
		out = append(out, warning(say("set it alike at all sidecars, or %s in the groups file",
			"在所有边车上设成一样，或在 groups 文件里设 %s", s.key),
			"%s differs: %s; in a group, that of the first agent by name holds",
			"%s 不一致：%s；在群里以名字排在最前的智能体为准", s.name, some(has))...)
	}
	return out
}

// checkErrors reports the errors of the last hour.
func checkErrors(_ context.Context, _ *subject, running *runningSidecar) (out []finding) {
	for _, e := range running.Errors {
		if since := time.Since(e.At); since < freshError {
			out = append(out, warning(say("if it goes on: look at its log, near %s",
				"如果一直出现，查看 %s 前后的日志", e.At.UTC().Format(time.RFC3339)),
				"%s: %s (%s, last %s ago)", "%s：%s（%s，最近在 %s前）",
				e.Part, strings.TrimSpace(e.Error), amount(e.Count, "time", "times", "次"), age(since))...)
		}
	}
	return out
}

// checkDeadLetters counts the direct messages that could not be delivered.
func checkDeadLetters(ctx context.Context, s *subject, _ *runningSidecar) []finding {
	var dead struct {
		Letters []struct{} `json:"dead_letters"`
	}
	code, err := askLocal(ctx, s.config, "/v1/mailbox/dead-letters", &dead)
	if err != nil || code != http.StatusOK || len(dead.Letters) == 0 {
		return nil // without a mailbox there is no such route
	}
	return warning(say("feishu-relay mailbox dead-letters; then: feishu-relay mailbox dead-letters replay ID",
		"先用 feishu-relay mailbox dead-letters 查看，再用 feishu-relay mailbox dead-letters replay ID 重发"),
		"%s could not be delivered", "%s没有送达",
		amount(len(dead.Letters), "direct message", "direct messages", "条私信"))
}
