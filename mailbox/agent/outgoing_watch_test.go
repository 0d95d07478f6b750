package agent

import (
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
