package agent

import (
	"fmt"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// hourly is a message that asks for no acknowledgement and lives for an hour.
func hourly(id string) mailbox.Envelope {
	e := message(id)
	e.Metadata = mailbox.Metadata{}
	return e
}

// A message without an acknowledgement becomes a dead letter when it expires in
// the inbox, over a restart, whether its receiver is online or not.
func TestWatchedMessageExpires(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("away ", away), func(t *testing.T) {
			story(t, func(r *rig) {
				r.set(func() { r.away["coder"] = away })
				r.send(hourly("m"))
				r.reopen()
				r.after(time.Hour - s)
				r.wantLeft(0, 0)
				r.after(s)
				r.wantDied("m", mailbox.AgentOffline, 1, "not taken within its life of 1h0m0s")
				r.wantCalls("0s put m 0 k1")
				r.wantLeft(0, 1)
			})
		})
	}
}

// What the store lost is sent again within seconds, to an agent that is away, too. What a store loses again and again
// becomes a dead letter.
func TestStoreLosesMail(t *testing.T) {
	for _, e := range []func(string) mailbox.Envelope{hourly, message, plain} {
		story(t, func(r *rig) {
			r.set(func() { r.away["coder"] = true })
			r.send(e("m"))
			r.send(e("n"))
			r.after(10 * s)
			r.set(func() { r.place = mailbox.Gone })
			r.after(5 * s)
			r.set(func() { r.place = mailbox.Waiting })
			r.after(10 * time.Minute)
			r.wantCalls("0s put m 0 k1", "0s put n 0 k2", "15s again m 1 k3", "15s again n 1 k4")
			r.set(func() { r.place = mailbox.Gone })
			r.after(time.Minute)
			r.wantDied("n", mailbox.AgentOffline, 4, "the store has lost it, after 4 attempts")
		})
	}
}

// What the receiver set aside is dead, and is not sent again.
func TestMessageIsSetAside(t *testing.T) {
	for _, e := range []func(string) mailbox.Envelope{hourly, message} {
		story(t, func(r *rig) {
			r.set(func() { r.place = mailbox.Aside })
			r.send(e("m"))
			r.after(time.Minute)
			r.wantDied("m", mailbox.InvalidMessage, 1, "coder set it aside")
			r.wantCalls("0s put m 0 k1")
			r.wantLeft(0, 1)
		})
	}
}
