package redisbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
)

const (
	// block is how long a read waits for mail before the link and the stream
	// are looked at; it is answered within readLimit, or the link is dead.
	block     = time.Second
	readLimit = block + ioLimit
	// readCount is how many entries one read takes at most. A reply is in
	// memory as a whole: 32 MiB where every envelope has the most it may have.
	readCount = 32

	readPool = 2 // connections of a Receive, beside the channels'
)

// reader is one run of Receive.
type reader struct {
	store *Store
	agent mailbox.AgentID
	inbox string
	take  func(mailbox.Item)
	// caughtUp is called, and then nil, when all that was there at the start was shown.
	caughtUp func()

	client   redis.UniversalClient
	channels *redis.PubSub
	goals    []string // those that it listens for
	cursor   redislink.EntryID
	first    redislink.EntryID // of the entries there up to cursor, at the last look; zero: there were none
	looked   time.Time
}

// Receive shows the inbox over connections of its own, and puts into it what
// other programs publish for the agent; see [mailbox.Store]. It returns at
// the first fault. Two Receives for one agent would each put a foreign message in.
func (s *Store) Receive(ctx context.Context, agent mailbox.AgentID, take func(mailbox.Item), looked func()) error {
	if err := mailbox.CheckAgent(agent); err != nil {
		return err
	}
	r := &reader{
		store: s, agent: agent, inbox: inboxKey(agent), take: take, caughtUp: looked,
		client: s.client(readPool),
	}
	err := r.run(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("receive for %s: %w", agent, s.explain(err, usesStream(r.inbox)))
}

// run reads until something fails. A fault ends all connections: a dead link
// is seldom dead for one of them alone.
func (r *reader) run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	r.channels = r.client.Subscribe(ctx) // to nothing yet: no I/O
	parts.Go(func() error {
		<-ctx.Done() // a blocked read ends only with its connection
		return errors.Join(r.channels.Close(), r.client.Close())
	})
	parts.Go(func() error {
		if err := r.look(ctx); err != nil {
			return err
		}
		if err := redislink.Subscribed(ctx, r.channels, ioLimit); err != nil {
			return err
		}
		parts.Go(func() error {
			return redislink.Listen(ctx, r.channels, block, readLimit, func(m *redis.Message) { r.heard(ctx, m) })
		})
		return r.read(ctx)
	})
	return parts.Wait() // the first fault, not what followed from it
}

// read shows what the stream has behind the cursor.
func (r *reader) read(ctx context.Context) error {
	for {
		if time.Since(r.looked) >= block {
			if err := r.look(ctx); err != nil {
				return err
			}
		}
		wait := block
		if r.caughtUp != nil { // all that was there at the start is shown without waiting
			wait = -1
		}
		entries, err := redislink.Read(ctx, r.client, r.inbox, r.cursor, readCount, wait, readLimit)
		if err != nil {
			return err
		}
		if len(entries) == 0 && r.caughtUp != nil {
			r.caughtUp()
			r.caughtUp = nil
		}
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			id, ok := redislink.ParseEntry(entry.ID)
			if !ok {
				return errors.New("unexpected id of an entry")
			}
			if r.cursor = id; r.first == (redislink.EntryID{}) {
				r.first = id
			}
			r.take(item(entry))
		}
	}
}

// look begins again at the start of a stream that was replaced: in one stream the first entry only moves
// towards the end, so one before it was not shown. What a new stream has behind the cursor comes anyway.
// It also listens for the goals of now.
func (r *reader) look(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if err := r.listen(ctx); err != nil {
		return err
	}
	entries, err := r.client.XRangeN(ctx, r.inbox, "-", r.cursor.String(), 1).Result()
	if err != nil {
		return err
	}
	first := redislink.EntryID{}
	if len(entries) > 0 {
		first, _ = redislink.ParseEntry(entries[0].ID)
		if r.first == (redislink.EntryID{}) || first.Compare(r.first) < 0 {
			r.store.log.Warn("the inbox on redis was replaced; reading it from its beginning")
			r.cursor, first = redislink.EntryID{}, redislink.EntryID{}
		}
	}
	r.first, r.looked = first, time.Now()
	return nil
}

const (
	peerPrefix   = "agent.inbox."
	peerChannels = peerPrefix + "*"

	// maxPayload is the most bytes of what is published: a body of 64 KiB with
	// every byte escaped, and the rest. More is dropped.
	maxPayload = 6*mailbox.MaxBody + 16<<10
)

// announcement is what is published of e for readers of peer inboxes, or nothing: they
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

// listen subscribes to the channels of the agent's goals as its card has them now: without goals it has one, its
// own name.
func (r *reader) listen(ctx context.Context) error {
	r.store.mu.Lock()
	goals := r.store.goals[r.agent]
	r.store.mu.Unlock()
	if len(goals) == 0 {
		goals = []string{string(r.agent)}
	}
	goals = slices.DeleteFunc(slices.Clone(goals), func(goal string) bool { return !goodGoal(goal) })
	added, gone := channelsOf(goals, r.goals), channelsOf(r.goals, goals)
	r.goals = goals
	var err error
	if len(added) > 0 {
		err = r.channels.Subscribe(ctx, added...)
	}
	if len(gone) > 0 {
		err = errors.Join(err, r.channels.Unsubscribe(ctx, gone...))
	}
	return err
}

// channelsOf are the channels of goals, but for those of others.
func channelsOf(goals, others []string) (channels []string) {
	for _, goal := range goals {
		if !slices.Contains(others, goal) {
			channels = append(channels, peerPrefix+goal)
		}
	}
	return channels
}

// heard puts another program's message to the agent into its inbox: there it
// waits, and is shown like any other. Who takes it from there judges its signature.
func (r *reader) heard(ctx context.Context, m *redis.Message) {
	goal := strings.TrimPrefix(m.Channel, peerPrefix)
	err := errors.New("longer than any peer message, or no goal in the channel's name")
	if len(m.Payload) <= maxPayload && goodGoal(goal) {
		var mail mailbox.Sealed
		var ours bool
		mail, ours, err = r.store.signing.FromPeer([]byte(m.Payload), goal)
		if err == nil && !ours && mail.To == r.agent {
			_, err = r.store.put(ctx, mail, "", "", nil)
		}
	}
	if err != nil && ctx.Err() == nil {
		r.store.dropped.Add(1)
		r.store.log.Debug("dropped a peer message", "bytes", len(m.Payload), "err", err)
	}
}
