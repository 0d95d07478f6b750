//go:build linux

package sidecar_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

const (
	// earlierState is what two sidecars of the earlier version left when they were
	// killed: agent_a, which sent, and agent_b, whose bot has a webhook. Its scene is
	// writeEarlierState.
	earlierState = "testdata/earlier"
	// earlierStateEnv, when it is set, writes that folder again.
	earlierStateEnv = "WRITE_EARLIER_STATE"
)

// The messages of the scene, all of agent_a, by what had become of them at agent_b.
const (
	earlierDelivered  = "om_earlier_1" // and answered with 200
	earlierDelivered2 = "om_earlier_2"
	earlierInProgress = "om_earlier_3" // the bot had not answered
	earlierBehind     = "om_earlier_4" // waited behind that
	earlierBeside     = "om_earlier_5" // delivered before that: only the dedup journal knows
	earlierAccepted   = "om_earlier_6" // answered with 202, to be settled later
	earlierUnread     = "om_earlier_7" // in the queue
	earlierUnsent     = "om_earlier_8" // accepted by agent_a's sidecar, and not in the queue yet
	earlierPerson     = "om_earlier_person"

	earlierMail       = "m-earlier-1" // delivered
	earlierMailUnread = "m-earlier-2" // in the inbox
)

// earlierMessages are they in the order of the sends.
var earlierMessages = []struct {
	id   relay.MessageID
	chat string
}{
	{earlierDelivered, "oc_1"}, {earlierDelivered2, "oc_2"}, {earlierInProgress, "oc_1"}, {earlierBehind, "oc_1"},
	{earlierBeside, "oc_4"}, {earlierAccepted, "oc_2"}, {earlierUnread, "oc_3"}, {earlierUnsent, "oc_3"},
}

func earlierContent(id relay.MessageID) string { return "text of " + string(id) }

// earlierCluster is the two sidecars of the scene; none is started.
func earlierCluster(t *testing.T, life time.Duration) *cluster {
	return prepare(t, setup{bots: 2, webhooks: []int{1}, change: func(_ int, cfg *sidecar.Config) {
		withMailboxIn(cfg, filepath.Join(filepath.Dir(cfg.RelayDir), "mailboxes"))
		cfg.MaxAge, cfg.DeliveryTimeout = life, life
	}})
}

// stateFolder is the parent of all folders of c.
func (c *cluster) stateFolder() string { return filepath.Dir(c.relays[0]) }

// Today's version reads the state that the earlier one left: what was accepted and
// not delivered comes, once and in order; what was delivered does not come again; the
// transcripts are completed; and the group goes on.
func TestStateOfEarlierVersion(t *testing.T) {
	t.Parallel()
	if os.Getenv(earlierStateEnv) != "" {
		writeEarlierState(t)
	}
	// The state is as old as the test data: nothing of it may expire.
	c := earlierCluster(t, 20*365*24*time.Hour)
	copyFolder(t, c.stateFolder(), earlierState)
	a, b := c.bots[0], c.bots[1]
	c.h.reported(earlierPerson, "Ann", "oc_1", earlierContent(earlierPerson))
	for _, m := range earlierMessages {
		c.h.sending(m.id, a.name, m.chat, earlierContent(m.id))
		c.h.accepted(m.id)
		switch m.id {
		case earlierDelivered, earlierDelivered2, earlierBeside, earlierAccepted:
			c.h.got(b.name, 0, &relay.Inbound{ChatID: relay.ChatID(m.chat), Content: earlierContent(m.id),
				Metadata: map[string]any{"relay_msg_id": string(m.id), "sender_agent_name": a.name}})
		}
	}
	for _, b := range c.bots {
		b.side.start("")
	}
	c.connect()
	ctx := limited(t)
	c.ready(ctx)
	b.receives(ctx, t, "question", "text of "+earlierMailUnread)
	c.h.complete(ctx, t)
	b.settles(ctx, t, earlierAccepted, `{"state":"delivered"}`, http.StatusOK)
	for _, chat := range []string{"oc_1", "oc_2", "oc_3"} {
		_, err := a.say(ctx, chat)
		must(t, err)
		_, err = b.say(ctx, chat)
		must(t, err)
	}
	correspond(ctx, t, a, b, "today")
	c.verify(ctx)
	c.h.eachMailOnce(t)
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if n := c.h.mailTimes(b.name, "question", "text of "+earlierMail); n > 0 {
		t.Errorf("mail that was delivered before came %d times again", n)
	}
}

// writeEarlierState plays the scene with the earlier version and keeps what it left.
func writeEarlierState(t *testing.T) {
	t.Helper()
	program := earlierProgram(t)
	c := earlierCluster(t, 10*time.Minute)
	a, b := c.bots[0], c.bots[1]
	posted := make(chan string, 100)
	over := make(chan struct{})
	defer close(over)
	b.answer(func(in *relay.Inbound) int {
		id, _ := in.Metadata["relay_msg_id"].(string)
		posted <- id
		switch id {
		case earlierInProgress:
			<-over
			return http.StatusServiceUnavailable
		case earlierAccepted:
			return http.StatusAccepted
		}
		return http.StatusOK
	})
	for _, b := range c.bots {
		b.side.asEarlier(t, program)
		b.side.start("")
	}
	c.connect()
	ctx := limited(t)
	c.ready(ctx)
	left := earlierMessages
	send := func(n int) {
		for _, m := range left[:n] {
			must(t, a.sayThis(ctx, m.chat, m.id, earlierContent(m.id), nil))
		}
		left = left[n:]
	}
	published := func() {
		eventually(ctx, t, "all is published", func() bool {
			st, err := a.status(ctx)
			return err == nil && st.Queues["outbound"].Outbox.Pending == 0
		})
	}
	send(2)
	must(t, c.h.await(ctx, func() bool { return len(c.h.times[b.name]) == 2 }))
	must(t, b.insist(ctx, "/v1/inbound", map[string]any{"chat_id": "oc_1", "content": earlierContent(earlierPerson),
		"sender": "Ann", "message_id": earlierPerson, "ts": time.Now().UnixMilli(), "chat_type": "group"}))
	a.mails(ctx, t, b, earlierMail)
	send(4)
	for seen := map[string]bool{}; !seen[earlierInProgress] || !seen[earlierAccepted]; {
		select {
		case id := <-posted:
			seen[id] = true
		case <-ctx.Done():
			t.Fatal("the bot is not posted its messages")
		}
	}
	must(t, c.h.await(ctx, func() bool { return c.h.times[b.name][earlierBeside] == 1 }))
	eventually(ctx, t, "both messages in progress are on disk", func() bool {
		files, err := filepath.Glob(filepath.Join(c.relays[1], "deliveries", b.name, "*.json"))
		return err == nil && len(files) == 2
	})
	published()
	b.side.kill()

	waiting := question(b, earlierMailUnread)
	waiting["metadata"] = map[string]any{"ttl": 0} // for ever
	a.sends(ctx, t, "/v1/mailbox/messages", waiting)
	send(1)
	published()
	queue, err := os.OpenFile(filepath.Join(c.relays[0], "outbound.jsonl"), os.O_RDWR, 0)
	must(t, err)
	defer queue.Close()
	must(t, safefile.Lock(queue))
	send(1)
	a.side.kill()

	must(t, os.RemoveAll(earlierState))
	for _, part := range []string{"relay", "transcripts", "mailboxes"} {
		copyFolder(t, filepath.Join(earlierState, part), filepath.Join(c.stateFolder(), part))
	}
}

// copyFolder copies the files of a folder that are not empty. Git keeps neither their
// modes nor empty folders.
func copyFolder(t *testing.T, to, from string) {
	t.Helper()
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	}))
}
