package redisbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
)

const (
	peerPrefix   = "agent.inbox."
	peerChannels = peerPrefix + "*"

	// maxPayload is the most bytes of what is published: a body of 64 KiB with
	// every byte escaped, and the rest. More is dropped.
	maxPayload = 6*mailbox.MaxBody + 16<<10
)

var (
	errSilent = &redislink.Fault{Says: "redis does not answer on the connection of the peer channels"}
	errNoSub  = errors.New("unexpected reply to PSUBSCRIBE")
)

// announcement is what readers of peer inboxes are told of e, or nothing: they
// know messages with a text for a goal.
func (s *Store) announcement(e mailbox.Envelope) (channel string, payload []byte, err error) {
	if e.Type != mailbox.TypeMessage || !goodGoal(e.Metadata.Goal) {
		return "", nil, nil
	}
	p := mailbox.PeerOf(e)
	if strings.TrimSpace(p.Body) == "" {
		return "", nil, nil
	}
	if payload, err = s.signing.EncodePeer(p); err != nil {
		return "", nil, fmt.Errorf("encode peer message: %w", err)
	}
	return peerPrefix + e.Metadata.Goal, payload, nil
}

func goodGoal(goal string) bool {
	return goal != "" && len(goal) <= mailbox.MaxID && utf8.ValidString(goal) &&
		!strings.ContainsFunc(goal, unicode.IsControl)
}

func subscribe(ctx context.Context, channels *redis.PubSub) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if err := channels.PSubscribe(ctx, peerChannels); err != nil {
		return err
	}
	reply, err := channels.ReceiveTimeout(ctx, ioLimit)
	if err != nil {
		return err
	}
	if _, ok := reply.(*redis.Subscription); !ok {
		return errNoSub
	}
	return nil
}

// listen reads the channels. It has no deadline: one that struck in the middle
// of a message would leave its rest to be read as a reply. [reader.watch]
// ends it when the link is dead.
func (r *reader) listen(ctx context.Context, channels *redis.PubSub) error {
	for {
		got, err := channels.ReceiveTimeout(ctx, 0)
		if err != nil {
			return err
		}
		r.heard.Store(int64(time.Since(r.began)))
		if m, ok := got.(*redis.Message); ok {
			r.hear(ctx, m)
		}
	}
}

// keep puts a peer message into the agent's inbox.
func (r *reader) keep(ctx context.Context, payload []byte, p mailbox.Peer, goal string) error {
	e, raw, err := r.store.signing.FromPeer(payload, p, goal)
	if err != nil {
		return err
	}
	_, err = r.store.put(ctx, e, raw, "", "", nil)
	return err
}

// hear puts a foreign program's message to the agent into its inbox: there it
// waits, and is shown like any other. Who takes it from there judges its signature.
func (r *reader) hear(ctx context.Context, m *redis.Message) {
	goal := strings.TrimPrefix(m.Channel, peerPrefix)
	err := errors.New("longer than any peer message")
	var p mailbox.Peer
	if len(m.Payload) <= maxPayload {
		p, err = mailbox.DecodePeer([]byte(m.Payload))
	}
	switch {
	case err == nil && (p.ID != "" || p.ToAgentID != r.agent):
		return // it comes by a stream, or is for somebody else
	case err == nil && !goodGoal(goal):
		err = errors.New("no goal in the channel's name")
	case err == nil:
		err = r.keep(ctx, []byte(m.Payload), p, goal)
	}
	if err != nil && ctx.Err() == nil {
		r.store.dropped.Add(1)
		r.store.log.Debug("dropped a peer message", "bytes", len(m.Payload), "err", err)
	}
}

// watch asks for a sign of life when the channels were silent for a block, and
// returns when there was none for as long as a read may take.
func (r *reader) watch(ctx context.Context, channels *redis.PubSub) error {
	tick := time.NewTicker(block)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		silent := time.Since(r.began) - time.Duration(r.heard.Load())
		if silent > readLimit {
			return errSilent
		}
		if silent < block/2 {
			continue
		}
		if err := channels.Ping(ctx); err != nil {
			return err
		}
	}
}
