package agent

import (
	"testing"
	"time"

	"feishu-relay/mailbox"
)

const s = time.Second

func TestAcknowledgement(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(*rig)
		want []string
	}{
		{"in time", func(r *rig) {
			r.after(29 * s)
			if !r.Acked("m", "coder") {
				r.t.Error("unknown")
			}
			r.wantLeft(0, 0)
			r.after(time.Hour)
		}, []string{"0s put m 0 k1"}},
		{"of a retry", func(r *rig) {
			r.after(40 * s)
			r.Acked("m", "coder")
			r.after(time.Hour)
		}, []string{"0s put m 0 k1", "31s again m 1 k1"}},
		{"in the pause before a retry", func(r *rig) {
			r.after(30*s + s/2)
			r.Acked("m", "coder")
			r.after(time.Hour)
		}, []string{"0s put m 0 k1"}},
		{"twice", func(r *rig) {
			r.Acked("m", "coder")
			if r.Acked("m", "coder") {
				r.t.Error("known still")
			}
		}, []string{"0s put m 0 k1"}},
		{"forged", func(r *rig) {
			if r.Acked("m", "mallory") || r.Nacked("m", "mallory", mailbox.InvalidMessage, "") || r.Acked("n", "coder") {
				r.t.Error("believed")
			}
			r.after(32 * s)
			r.wantLeft(1, 0)
			r.Acked("m", "coder")
		}, []string{"0s put m 0 k1", "31s again m 1 k1"}},
		{"by a program that only moves the file", func(r *rig) {
			r.set(func() { r.place = mailbox.Processed })
			r.after(30 * s)
			r.wantLeft(0, 0)
			r.after(time.Hour)
		}, []string{"0s put m 0 k1"}},
		{"by such a program, in the pause", func(r *rig) {
			r.after(30 * s)
			r.set(func() { r.place = mailbox.Processed })
			r.after(time.Hour)
		}, []string{"0s put m 0 k1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			story(t, func(r *rig) {
				r.send(message("m"))
				tt.play(r)
				r.wantCalls(tt.want...)
				r.wantLeft(0, 0)
			})
		})
	}
}

func TestNoAcknowledgement(t *testing.T) {
	story(t, func(r *rig) {
		r.send(message("m"))
		r.after(127*s - 1)
		r.wantCalls("0s put m 0 k1", "31s again m 1 k1", "63s again m 2 k1", "97s again m 3 k1")
		r.wantLeft(1, 0)
		r.after(1)
		r.wantLeft(0, 1)
		r.wantDied("m", mailbox.AgentOffline, 4, "no acknowledgement after 4 attempts")
		r.after(time.Hour)
		r.wantLeft(0, 1)

		if r.Acked("m", "mallory") || !r.Acked("m", "coder") { // it comes late
			r.t.Error("the late acknowledgement")
		}
		r.wantLeft(0, 0)
	})
}

func TestMaxRetries(t *testing.T) {
	for _, tt := range []struct{ says, want int }{{0, 0}, {1, 1}, {5, 5}, {10, 10}} {
		story(t, func(r *rig) {
			e := message("m")
			e.Metadata.MaxRetries = &tt.says
			r.send(e)
			r.after(time.Hour)
			r.wantDied("m", mailbox.AgentOffline, tt.want+1, "no acknowledgement")
			if len(r.calls) != tt.want+1 {
				r.t.Errorf("says %d: sent %d times", tt.says, len(r.calls))
			}
		})
	}
}

func TestNack(t *testing.T) {
	t.Run("for good", func(t *testing.T) {
		for _, code := range []mailbox.Code{mailbox.InvalidMessage, mailbox.Unauthorized, mailbox.TaskNotFound, "NEW_CODE"} {
			story(t, func(r *rig) {
				r.send(message("m"))
				if !r.Nacked("m", "coder", code, "no <text>") {
					r.t.Error("unknown")
				}
				r.wantDied("m", code, 1, "coder refused it: no <text>")
				r.wantLeft(0, 1)
				if r.Nacked("m", "coder", code, "") {
					r.t.Error("known still")
				}
				r.after(time.Hour)
				r.wantCalls("0s put m 0 k1")
			})
		}
	})
	t.Run("for now", func(t *testing.T) {
		for _, code := range []mailbox.Code{mailbox.AgentBusy, mailbox.AgentOffline, mailbox.RateLimited} {
			story(t, func(r *rig) {
				r.set(func() { r.place = mailbox.Processed }) // who refuses has taken it, which is no acknowledgement
				r.send(message("m"))
				for range 3 {
					r.Nacked("m", "coder", code, "wait")
					r.Nacked("m", "coder", code, "wait") // a repeat does not count
					r.after(7 * s)
				}
				r.wantCalls("0s put m 0 k1", "1s again m 1 k2", "9s again m 2 k3", "18s again m 3 k4")
				r.Nacked("m", "coder", code, "wait")
				r.wantDied("m", code, 4, "wait")
				r.wantLeft(0, 1)
			})
		}
	})
	t.Run("for now, then acknowledged", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("m"))
			r.Nacked("m", "coder", mailbox.AgentBusy, "")
			r.after(2 * s)
			r.Acked("m", "coder")
			r.after(time.Hour)
			r.wantCalls("0s put m 0 k1", "1s again m 1 k1")
			r.wantLeft(0, 0)
		})
	})
}

// The time-out begins when the receiver comes online.
func TestOffline(t *testing.T) {
	t.Run("from the beginning", func(t *testing.T) {
		story(t, func(r *rig) {
			r.gone(true)
			r.send(message("m"))
			r.after(24 * time.Hour)
			r.wantLeft(1, 0)
			r.gone(false)
			r.after(31 * s)
			r.wantCalls("0s put m 0 k1", "86431s again m 1 k1")
		})
	})
	t.Run("in between", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("m"))
			r.after(20 * s)
			r.gone(true)
			r.after(100 * s)
			r.gone(false)
			r.after(31 * s)
			r.wantCalls("0s put m 0 k1", "151s again m 1 k1")
		})
	})
	t.Run("others do not wait", func(t *testing.T) {
		story(t, func(r *rig) {
			r.gone(true)
			r.send(message("m"))
			e := message("n")
			e.To = "tester"
			r.send(e)
			r.after(32 * s)
			r.wantCalls("0s put m 0 k1", "0s put n 0 k2", "31s again n 1 k2")
		})
	})
}

// A message's life in seconds runs always.
func TestLife(t *testing.T) {
	for _, away := range []bool{false, true} {
		story(t, func(r *rig) {
			r.gone(away)
			e := message("m")
			e.Metadata.TTL = new(10)
			r.send(e)
			r.after(10*s - 1)
			r.wantLeft(1, 0)
			r.after(1)
			r.wantDied("m", mailbox.AgentOffline, 1, "not taken within its life of 10s")
			r.wantLeft(0, 1)
		})
	}
	t.Run("taken in time by a program that does not acknowledge", func(t *testing.T) {
		story(t, func(r *rig) {
			e := message("m")
			e.Metadata.TTL = new(10)
			r.send(e)
			r.set(func() { r.place = mailbox.Processed })
			r.after(time.Minute)
			r.wantLeft(0, 0)
		})
	})
	t.Run("cleared away at its end by who did not take it", func(t *testing.T) {
		for _, code := range []mailbox.Code{mailbox.AgentOffline, mailbox.InvalidMessage} {
			story(t, func(r *rig) {
				e := message("m")
				e.Metadata.TTL = new(10)
				r.send(e)
				r.set(func() { r.place = mailbox.Processed })
				r.after(11 * s)
				r.wantLeft(1, 0)
				if !r.Nacked("m", "coder", code, "too late") { // which comes a little later than the file moves
					r.t.Error("unknown")
				}
				r.after(lookEvery)
				r.wantDied("m", code, 1, map[bool]string{true: "within its life", false: "too late"}[code.Retriable()])
				r.wantLeft(0, 1)
				r.wantCalls("0s put m 0 k1")
			})
		}
	})
	t.Run("the default", func(t *testing.T) {
		story(t, func(r *rig) {
			r.gone(true)
			e := message("m")
			e.Metadata.TTL = nil
			r.send(e)
			r.after(time.Hour - 1)
			r.wantLeft(1, 0)
			r.after(1)
			r.wantLeft(0, 1)
		})
	})
}

// What waits goes on after a restart where it was.
func TestRestart(t *testing.T) {
	story(t, func(r *rig) {
		r.send(message("m"))
		r.after(64 * s) // sent twice more
		r.reopen()
		r.after(31 * s) // the time-out begins anew, the retries do not
		r.reopen()      // in the pause of 4 s
		r.wantLeft(1, 0)
		r.after(34 * s)
		r.wantCalls("0s put m 0 k1", "31s again m 1 k1", "63s again m 2 k1", "98s again m 3 k1")
		r.reopen()
		r.wantDied("m", mailbox.AgentOffline, 4, "no acknowledgement")
		r.wantLeft(0, 1)

		r.send(message("busy"))
		r.set(func() { r.place = mailbox.Processed })
		r.Nacked("busy", "coder", mailbox.AgentBusy, "")
		r.reopen() // that it was refused is not forgotten
		r.after(s)
		r.wantCalls(append(r.calls[:4:4], "129s put busy 0 k2", "130s again busy 1 k3")...)
		if !r.Acked("busy", "coder") || !r.Acked("m", "coder") {
			r.t.Error("forgotten")
		}
		r.wantLeft(0, 0)
	})
}

// A pause that another clock wrote down does not hold a message up.
func TestClockWasSetBack(t *testing.T) {
	story(t, func(r *rig) {
		r.send(message("m"))
		r.Nacked("m", "coder", mailbox.AgentBusy, "")
		r.change("m", func(n *letter) { n.Due = n.Due.Add(24 * time.Hour) })
		r.reopen()
		r.after(maxPause + lookEvery)
		r.wantCalls("0s put m 0 k1", "60s again m 1 k1")
	})
}
