package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// maxMail is the most mail that the Coder has not looked at; what comes then
// fails the demo.
const maxMail = 16

// coder is a home-made agent: its sidecar posts to it, and it answers over HTTP.
// What it does the scenes say.
type coder struct {
	character
	stage   *stage
	sidecar *sidecar
	listen  net.Listener
	server  *http.Server
	inbox   chan letter
}

// letter is mail as the sidecar posts it.
type letter struct {
	Content  string
	Session  string `json:"session_key_override"`
	Metadata struct {
		From string              `json:"sender_agent_name"`
		Type string              `json:"mailbox_type"`
		Task struct{ ID string } `json:"mailbox_task"`
	}
}

func newCoder(s *stage, env []string) (*coder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the Coder's mail: %w", err)
	}
	c := &coder{character: mailCast[1], stage: s, listen: l, inbox: make(chan letter, maxMail)}
	c.server = &http.Server{Handler: c, ReadTimeout: callWithin}
	c.sidecar = newSidecar(s, c.character, append(slices.Clone(env), "INJECT_URL=http://"+l.Addr().String()))
	return c, nil
}

func (c *coder) serve() {
	if err := c.server.Serve(c.listen); !errors.Is(err, http.ErrServerClosed) {
		c.stage.fail(fmt.Errorf("the Coder's mail: %w", err))
	}
}

func (c *coder) close() { _ = c.server.Close() } // it is not needed any more

// ServeHTTP takes mail: with its answer that counts as delivered.
func (c *coder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var l letter
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&l); err != nil {
		c.stage.fail(fmt.Errorf("what the sidecar posts to the Coder: %w", err))
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	c.stage.board.arrived(c.agent, mailID(l.Metadata.From, c.agent, l.Content), l.Content, l.Session)()
	select {
	case c.inbox <- l:
	default:
		c.stage.fail(errors.New("the Coder gets more mail than there is"))
	}
}

// next is the mail that the Coder looks at next, which has to be of a type.
func (c *coder) next(ctx context.Context, kind string) (letter, error) {
	limit := time.NewTimer(settledWithin)
	defer limit.Stop()
	select {
	case l := <-c.inbox:
		if l.Metadata.Type != kind {
			return l, fmt.Errorf("the Coder got a %s, want a %s", l.Metadata.Type, kind)
		}
		return l, nil
	case <-ctx.Done():
		return letter{}, context.Cause(ctx)
	case <-limit.C:
		return letter{}, fmt.Errorf("a %s for the Coder: not within %s", kind, settledWithin)
	}
}

// step tells how a task stands, and with text what comes of it.
func (c *coder) step(ctx context.Context, task, state, text string) error {
	if text != "" {
		c.stage.board.mail(state, &mailCast[1], &mailCast[0], text)
	}
	body := map[string]string{"state": state, "text": text}
	if err := c.stage.client.post(ctx, c.sidecar.url()+"/v1/mailbox/tasks/"+task, body, nil); err != nil {
		return fmt.Errorf("the Coder tells that the task is %s: %w", state, err)
	}
	return nil
}

// tell sends the Researcher a message, which belongs to no task.
func (c *coder) tell(ctx context.Context, text string) (*message, error) {
	m := c.stage.board.mail(messageKind, &mailCast[1], &mailCast[0], text)
	var result peerResult
	if err := c.stage.client.post(ctx, c.sidecar.url()+"/v1/peers/"+mailCast[0].agent+"/messages",
		map[string]string{"message": text}, &result); err != nil {
		return nil, fmt.Errorf("the Coder writes to the Researcher: %w", err)
	}
	return m, result.err()
}

// peerResult is the answer to a message for another agent.
type peerResult struct {
	DeliveredTo        []string `json:"delivered_to"`
	UnreachableReasons []string `json:"unreachable_reasons"`
}

func (r *peerResult) err() error {
	if len(r.DeliveredTo) != 1 || len(r.UnreachableReasons) > 0 {
		return fmt.Errorf("a message for another agent: delivered to %q, not reached: %q", r.DeliveredTo,
			r.UnreachableReasons)
	}
	return nil
}
