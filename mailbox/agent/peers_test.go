package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// The gates of send_to_peer, in their order.
func TestSendToPeerRefuses(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		for _, c := range []struct {
			m    agent.PeerMessage
			says string
		}{
			{agent.PeerMessage{}, "to: must not be empty"},
			{agent.PeerMessage{To: "a"}, "to: cannot send a message to oneself"},
			{agent.PeerMessage{To: "ghost", Message: " "}, "message: must not be empty"},
			{agent.PeerMessage{To: "ghost", Message: strings.Repeat("x", 65_537)}, "message: has 65537 bytes; the limit is 65536"},
		} {
			_, err := a.SendToPeer(t.Context(), c.m)
			refusedAs(t, err, mailbox.InvalidMessage, c.says)
		}
	})
}

// Who cannot be reached stands in the answer; that is no error.
func TestUnreachable(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a", func(o *agent.Options) { o.Delegates = []mailbox.AgentID{"b", "closed", "gone", "ghost", "../x"} })
		b, gone := w.agent("b"), w.agent("gone")
		w.agent("closed", func(o *agent.Options) { o.AllowFrom = []mailbox.AgentID{"b"} })
		w.agent("other")
		gone.stop()
		for to, want := range map[mailbox.AgentID]string{
			"ghost":  "unknown agent_id `ghost`",
			"../x":   "unknown agent_id `../x`",
			"gone":   "no live goals for agent_id `gone`: it is offline",
			"closed": "agent_id `closed` takes no messages from `a`",
			"other":  "agent_id `other` is not among ALLOWED_DELEGATES",
		} {
			r, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: to, Message: "hi"})
			must(t, err)
			same(t, string(to), r.UnreachableReasons, []string{want})
			same(t, string(to), r.DeliveredTo, []string{})
		}
		r, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: "*", Message: "hi"})
		must(t, err)
		same(t, "all", r.DeliveredTo, []string{"b"})
		if len(r.UnreachableReasons) != 3 {
			t.Errorf("reasons %q", r.UnreachableReasons)
		}
		same(t, "given", b.texts(), []string{"hi"})

		p, err := a.ListPeers(t.Context())
		must(t, err)
		var names []string
		for _, peer := range p.Peers {
			names = append(names, fmt.Sprint(peer.AgentID, " ", peer.Reachable, " ", peer.Status))
		}
		same(t, "peers", names, []string{"b true idle", "closed false idle", "gone false offline", "other false idle"})
	})
}

func TestNobodyThere(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		p, err := w.agent("a").ListPeers(t.Context())
		must(t, err)
		if p.Peers == nil || len(p.Peers) > 0 || p.Note == "" {
			t.Errorf("%+v", p)
		}
	})
}

// An agent that shows no heartbeat for the time-out is offline.
func TestHeartbeat(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		time.Sleep(10 * time.Minute)
		status := func() mailbox.Status {
			p, err := a.ListPeers(t.Context())
			must(t, err)
			return p.Peers[0].Status
		}
		if got := status(); got != mailbox.Idle {
			t.Errorf("it is %s while it runs", got)
		}
		b.dead.Store(true)
		b.stop()
		time.Sleep(91 * time.Second)
		if got := status(); got != mailbox.Offline {
			t.Errorf("it is %s after its crash", got)
		}
	})
}

const correlation = "7a3b2f00-0c1d-4e2f-8a9b-0c1d2e3f4a5b"

// A model writes names with spaces around them, and correlation ids that are not UUIDs.
func TestSendToPeerReadsLeniently(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		for given, want := range map[string]string{correlation: correlation, strings.ToUpper(correlation): correlation,
			"{" + correlation + "}": correlation, strings.ReplaceAll(correlation, "-", ""): correlation, "c1": "", "": "", correlation + "0": ""} {
			r, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: " b\n", Message: "hi", CorrelationID: given})
			must(t, err)
			same(t, "delivered", r.DeliveredTo, []string{"b"})
			if got := b.deliveries(); len(got) != 1 || got[0].Metadata.CorrelationID != want {
				t.Errorf("%q: given %+v, want %q", given, got, want)
			}
		}
		_, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: " a ", Message: "hi"})
		refusedAs(t, err, mailbox.InvalidMessage, "oneself")
		_, err = a.SendToPeer(t.Context(), agent.PeerMessage{To: " \t", Message: "hi"})
		refusedAs(t, err, mailbox.InvalidMessage, "to: must not be empty")
	})
}

// An entry such as res* is every agent whose name begins so.
func TestPrefixes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a", func(o *agent.Options) { o.Delegates = []mailbox.AgentID{"res*", "c"} })
		var open []*actor
		for _, id := range []mailbox.AgentID{"res", "researcher", "c", "re", "coder"} {
			open = append(open, w.agent(id))
		}
		closed := w.agent("rest", func(o *agent.Options) { o.AllowFrom = []mailbox.AgentID{"b*"} })
		p, err := a.ListPeers(t.Context())
		must(t, err)
		var reachable []string
		for _, peer := range p.Peers {
			if peer.Reachable {
				reachable = append(reachable, string(peer.AgentID))
			}
		}
		same(t, "reachable", reachable, []string{"c", "res", "researcher"})
		for _, to := range open[:3] {
			a.say(to, "hi")
			same(t, string(to.id), to.texts(), []string{"hi"})
		}
		_, err = a.Send(t.Context(), agent.Draft{Envelope: letterTo("coder", "hi")})
		refusedAs(t, err, mailbox.Unauthorized, "ALLOWED_DELEGATES")
		w.foreign(closed, mailbox.Envelope{From: "bob", Content: textOf("from bob"), Hops: 3})
		w.foreign(closed, mailbox.Envelope{From: "carl", Content: textOf("from carl"), Hops: 3})
		same(t, "given", closed.texts(), []string{"from bob"})
	})
}

// Each goal gets it; one that fails does not stop the others.
func TestGoals(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		same(t, "goals", b.Goals(), []string{"b"})
		g1, err := b.AddGoal(t.Context(), "g1")
		must(t, err)
		g2, err := b.AddGoal(t.Context(), "")
		must(t, err)
		_, err = b.AddGoal(t.Context(), "g1")
		must(t, err)
		same(t, "goals", b.Goals(), []string{g1, g2})
		r, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: "b", Message: "hi", CorrelationID: correlation})
		must(t, err)
		same(t, "delivered", r.DeliveredTo, []string{g1, g2})
		got := b.deliveries()
		if len(got) != 2 || got[0].Metadata.Goal != g1 || got[1].Metadata.Goal != g2 || got[1].Metadata.CorrelationID != correlation {
			t.Errorf("given %+v", got)
		}
		must(t, b.RemoveGoal(t.Context(), g1))
		refusedAs(t, b.RemoveGoal(t.Context(), g1), mailbox.InvalidMessage, "goal_id")
		must(t, b.RemoveGoal(t.Context(), g2))
		r, err = a.SendToPeer(t.Context(), agent.PeerMessage{To: "b", Message: "hi"})
		must(t, err)
		same(t, "delivered", r.DeliveredTo, []string{"b"})
	})
}

func TestGoalsAreBounded(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		for i := range 64 {
			_, err := b.AddGoal(t.Context(), fmt.Sprint("g", i))
			must(t, err)
		}
		_, err := b.AddGoal(t.Context(), "one more")
		refusedAs(t, err, mailbox.InvalidMessage, "goal_id")
		_, err = b.AddGoal(t.Context(), "more")
		refusedAs(t, err, mailbox.AgentBusy, "64 goals are live")

		c := w.hub.cards["b"] // another make's card may name any number
		c.AgentID, c.Goals = "many", nil
		for i := range 100 {
			c.Goals = append(c.Goals, fmt.Sprint("g", i))
		}
		w.hub.mu.Lock()
		w.hub.cards["many"] = c
		w.hub.mu.Unlock()
		r, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: "many", Message: "hi"})
		must(t, err)
		if len(r.DeliveredTo) != 64 || len(r.UnreachableReasons) != 1 {
			t.Errorf("%d goals, reasons %q", len(r.DeliveredTo), r.UnreachableReasons)
		}
	})
}

func TestBroadcastIsBounded(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		for i := range 23 {
			w.agent(mailbox.AgentID(fmt.Sprintf("b%02d", i)))
		}
		r, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: "*", Message: "hi"})
		must(t, err)
		if len(r.DeliveredTo) != 20 || len(r.UnreachableReasons) != 3 || !strings.Contains(r.UnreachableReasons[0], "at most 20 agents; send to `b20` itself") {
			t.Errorf("reached %d, reasons %q", len(r.DeliveredTo), r.UnreachableReasons)
		}
	})
}

// A goal that was added stays in the registry, whatever is written at that
// moment, and an agent that has left stays offline.
func TestCardsInOrder(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a, b := w.agent("a"), w.agent("b")
		w.hub.failing(func(op string, id mailbox.AgentID) error {
			if op == "card" && id == "b" {
				time.Sleep(time.Second)
			}
			return nil
		})
		a.task(b, "t1", nil) // has the card written
		synctest.Wait()
		_, err := b.AddGoal(t.Context(), "g1")
		must(t, err)
		if c := w.hub.cards["b"]; !slices.Contains(c.Goals, "g1") || len(c.CurrentTasks) != 1 {
			t.Errorf("card %+v", c)
		}
		w.hub.failing(nil)
		b.cancel()
		<-b.done
		_, err = b.AddGoal(t.Context(), "g2")
		must(t, err)
		if c := w.hub.cards["b"]; c.Status != mailbox.Offline {
			t.Errorf("it is %s after it left", c.Status)
		}
	})
}

func TestRegistryAway(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		a := w.agent("a")
		away := errors.New("away")
		w.hub.failing(func(op string, _ mailbox.AgentID) error {
			if op == "cards" || op == "card" {
				return away
			}
			return nil
		})
		if _, err := a.ListPeers(t.Context()); !errors.Is(err, away) {
			t.Errorf("list_peers: %v", err)
		}
		if _, err := a.SendToPeer(t.Context(), agent.PeerMessage{To: "*", Message: "hi"}); !errors.Is(err, away) {
			t.Errorf("send_to_peer: %v", err)
		}
		time.Sleep(time.Hour)
		w.hub.failing(nil)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if c := w.hub.cards["a"]; time.Since(c.LastHeartbeat) > 30*time.Second {
			t.Errorf("the last heartbeat is %s old", time.Since(c.LastHeartbeat))
		}
	})
}

// A registry that cannot be read when it is asked about a receiver is a line of the log, until it can be read again.
func TestUnreadableRegistryIsLogged(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var log strings.Builder
		a, b := w.idle("a"), w.agent("b")
		a.logTo(&log)
		a.start()
		for spell := range 2 {
			w.hub.refusing("cards", "", errors.New("away"))
			time.Sleep(2 * time.Second) // what was read before does not count any more
			a.say(b, "one", wanted)
			a.say(b, "two", wanted)
			synctest.Wait()
			if got := strings.Count(log.String(), "cannot be read"); got != spell+1 {
				t.Errorf("spell %d: %d lines in all\n%s", spell, got, log.String())
			}
			w.hub.failing(nil)
			time.Sleep(2 * time.Second)
			a.say(b, "three", wanted)
		}
	})
}
