package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// mailAct is the third act: a bot on Feishu's SDK that a person speaks to in
// private, and a home-made agent that does a job for it.
type mailAct struct {
	*tenant
	researcher *researcher
	coder      *coder
}

// mailCast is who plays. Only the first is in Feishu.
var mailCast = []character{
	{agent: "researcher", name: "Researcher", role: "answers people, and hands on what others do better"},
	{agent: "coder", name: "Coder", role: "writes and tests code"},
}

// maxExchanges is PEER_MAX_EXCHANGES here: two tasks, a thank-you and its answer.
const maxExchanges = 4

// rateLimited is the code of a message that is one too many.
const rateLimited relay.Reason = "RATE_LIMITED"

func newMailAct(s *stage) act {
	s.board = newBoard(s.out, mailCast, nil)
	return &mailAct{tenant: newTenant(s, mailCast[:1])}
}

func (a *mailAct) start(ctx context.Context, env []string) error {
	a.out.title("Two agents and a mailbox: one on Feishu's SDK with an MCP client, one home-made on plain HTTP, which no group knows.")
	ctx, env, err := a.open(ctx, append(slices.Clone(env), fmt.Sprintf("PEER_MAX_EXCHANGES=%d", maxExchanges)))
	if err != nil {
		return err
	}
	if a.coder, err = newCoder(a.stage, env); err != nil {
		return err
	}
	a.running.Go(a.coder.serve)
	mine := newSidecar(a.stage, mailCast[0], env)
	mine.front = true
	a.sidecars = []*sidecar{mine, a.coder.sidecar}
	if err := a.startSidecars(ctx, "two"); err != nil {
		return err
	}
	if a.researcher, err = newResearcher(ctx, a.stage, mine.url()); err != nil {
		return err
	}
	return a.startBot(ctx, 0, mine.gate, a.researcher.answer, a.researcher.received)
}

// says lets the user speak to the Researcher alone, whatever the chat.
func (a *mailAct) says(ctx context.Context, _ relay.ChatID, text string) error {
	return a.post(ctx, feishusim.Utterance{App: a.apps[0].ID, Text: text})
}

func (a *mailAct) leave() {
	if a.coder != nil {
		a.coder.close()
	}
	a.tenant.leave()
	if a.researcher != nil {
		a.researcher.close()
	}
}

// awaitState waits until the giver's sidecar has the n-th task in a state; bare is
// that of a step that says nothing.
func (a *mailAct) awaitState(ctx context.Context, n int, state string, bare bool) error {
	id := a.board.job(n)
	err := until(ctx, settledWithin, fmt.Sprintf("task %d %s", n, state), func(ctx context.Context) (bool, error) {
		got, err := a.states(ctx, a.sidecars[0])
		return got[id] == state, err
	})
	if err == nil {
		a.board.moved(n, state, bare)
	}
	return err
}

// states are the tasks that a sidecar knows, and their states.
func (a *mailAct) states(ctx context.Context, of *sidecar) (map[string]string, error) {
	var answer struct{ Tasks []struct{ ID, State string } }
	if err := a.client.get(ctx, of.url()+"/v1/mailbox/tasks", &answer); err != nil {
		return nil, fmt.Errorf("tasks at %s's sidecar: %w", of.name, err)
	}
	states := map[string]string{}
	for _, t := range answer.Tasks {
		states[t.ID] = t.State
	}
	return states, nil
}

// mailStatus is what a sidecar says of its mailbox.
type mailStatus struct {
	Waiting        int // for the bot
	Unacknowledged int // of what it sent
	OpenTasks      int `json:"open_tasks"`
}

func (a *mailAct) status(ctx context.Context, of *sidecar) (mailStatus, error) {
	var answer struct{ Mailbox mailStatus }
	err := a.client.get(ctx, of.url()+"/v1/status", &answer)
	return answer.Mailbox, err
}

// nothingLeft checks that no mail waits anywhere, that both sides say the same of
// the tasks, and that nothing stands in a transcript.
func (a *mailAct) nothingLeft(ctx context.Context) error {
	for _, sc := range a.sidecars {
		err := until(ctx, settledWithin, "nothing waits at "+sc.name+"'s sidecar", func(ctx context.Context) (bool, error) {
			got, err := a.status(ctx, sc)
			return got == mailStatus{}, err
		})
		if err != nil {
			return err
		}
		got, err := a.states(ctx, sc)
		if err != nil {
			return err
		}
		if want := a.board.states(); !maps.Equal(got, want) {
			return fmt.Errorf("tasks at %s's sidecar: got %v, want %v", sc.name, got, want)
		}
		var left struct {
			Dead        []any `json:"dead_letters"`
			Transcripts []any
		}
		if err := errors.Join(a.client.get(ctx, sc.url()+"/v1/mailbox/dead-letters", &left),
			a.client.get(ctx, sc.url()+"/v1/transcripts", &left)); err != nil {
			return err
		}
		if len(left.Dead)+len(left.Transcripts) > 0 {
			return fmt.Errorf("%s's sidecar has %d dead letters and %d transcripts, want none", sc.name, len(left.Dead),
				len(left.Transcripts))
		}
	}
	a.board.note("no mail waits, everything was acknowledged; both sidecars say the same of the tasks; none of it is in a transcript")
	return nil
}
