package demo

import (
	"context"
	"fmt"
)

func (a *mailAct) scenes() []scene {
	const (
		inMailbox = " mailbox:researcher delivered"
		inChat    = " " + askedIn + " delivered"
		words     = "" // for the user, who reads them in the chat; no bot has to hear them
	)
	return []scene{
		{
			title: "a job handed over to an agent that is away, and then has no time", asks: "帮我写个排序函数", play: a.handOver,
			want: []outcome{
				{"researcher", taskKind + inMailbox}, {"researcher", words}, {"coder", "rejected" + inChat},
				{"researcher", taskKind + inMailbox}, {"researcher", words},
			},
			ends: "Feishu has not brought the refusal: the mailbox did, into the private chat that asked",
		},
		{
			title: "its sidecar is killed while it works", play: a.crash,
			want: []outcome{{"coder", "completed" + inChat}, {"researcher", words}},
			ends: "no task lost, none given twice; the answer is where the question was",
		},
		{
			title: "courtesies between agents come to an end", asks: "替我谢谢它", play: a.courtesies,
			want: []outcome{
				{"researcher", messageKind + inMailbox}, {"researcher", words}, {"coder", messageKind + " read_inbox delivered"},
				{"researcher", messageKind + " " + string(rateLimited)}, {"researcher", words},
			},
		},
	}
}

// handOver lets the user ask while the Coder is away. When that comes back it
// refuses, and is asked again.
func (a *mailAct) handOver(ctx context.Context, sc scene) error {
	if err := a.coder.sidecar.stop(); err != nil {
		return err
	}
	a.board.note("the Coder goes home: its sidecar is stopped")
	if err := a.says(ctx, sc.chat, sc.asks); err != nil {
		return err
	}
	if err := a.idle(ctx, "the task is given", 1); err != nil {
		return err
	}
	if err := a.coder.sidecar.start(ctx); err != nil {
		return err
	}
	a.board.note("the Coder is back")
	if err := a.takes(ctx, 1); err != nil {
		return err
	}
	if err := a.coder.step(ctx, a.board.job(1), "rejected", "现在不行，手上还有别的活。"); err != nil {
		return err
	}
	if err := a.awaitState(ctx, 1, "rejected", false); err != nil {
		return err
	}
	if err := a.idle(ctx, "the task is given again", 2); err != nil {
		return err
	}
	return a.takes(ctx, 2)
}

// takes waits until the Coder has the n-th task, and its giver knows that.
func (a *mailAct) takes(ctx context.Context, n int) error {
	l, err := a.coder.next(ctx, taskKind)
	if err != nil {
		return err
	}
	if id := a.board.job(n); l.Metadata.Task.ID != id {
		return fmt.Errorf("the Coder got the task %s, want %s", l.Metadata.Task.ID, id)
	}
	return a.awaitState(ctx, n, "accepted", true)
}

// idle waits until so many tasks are given and no bot is at work.
func (a *mailAct) idle(ctx context.Context, what string, tasks int) error {
	return a.board.await(ctx, what, func() bool { return len(a.board.jobs) == tasks && a.board.busy == 0 })
}

// crash kills the Coder's sidecar between two steps of the task.
func (a *mailAct) crash(ctx context.Context, _ scene) error {
	id := a.board.job(2)
	if err := a.coder.step(ctx, id, "working", ""); err != nil {
		return err
	}
	if err := a.awaitState(ctx, 2, "working", true); err != nil {
		return err
	}
	a.coder.sidecar.kill()
	a.board.note("the sidecar of the Coder is killed (SIGKILL)")
	if err := a.coder.sidecar.start(ctx); err != nil {
		return err
	}
	states, err := a.states(ctx, a.coder.sidecar)
	if err != nil {
		return err
	}
	a.board.note("… and is back, and knows that task 2 is %s", states[id])
	if states[id] != "working" {
		return fmt.Errorf("the task is %q after the restart, want working", states[id])
	}
	if err := a.coder.step(ctx, id, "completed", "```go\nfunc Sort(s []int) { slices.Sort(s) }\n```"); err != nil {
		return err
	}
	return a.awaitState(ctx, 2, "completed", false)
}

// courtesies go back and forth until the Researcher's sidecar sends no more.
func (a *mailAct) courtesies(ctx context.Context, sc scene) error {
	if err := a.says(ctx, sc.chat, sc.asks); err != nil {
		return err
	}
	if _, err := a.coder.next(ctx, messageKind); err != nil {
		return err
	}
	if err := a.idle(ctx, "the thanks are passed on", 2); err != nil {
		return err
	}
	thanks, err := a.coder.tell(ctx, "不客气，随时找我！")
	if err != nil {
		return err
	}
	err = until(ctx, settledWithin, "the answer waits for the Researcher", func(ctx context.Context) (bool, error) {
		got, err := a.status(ctx, a.sidecars[0])
		return got.Waiting == 1, err
	})
	if err != nil {
		return err
	}
	a.board.note("what belongs in no chat waits for the Researcher's next turn")
	a.board.waiting(thanks)
	if err := a.says(ctx, sc.chat, "它有回话吗？"); err != nil {
		return err
	}
	if err := a.board.await(ctx, allEnded, a.board.quiet); err != nil {
		return err
	}
	return a.nothingLeft(ctx)
}
