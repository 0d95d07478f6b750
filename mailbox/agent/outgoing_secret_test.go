package agent

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"feishu-relay/book"
	"feishu-relay/mailbox"
)

// What waited without a signature of the secret of now, since the secret is new or another,
// or since somebody else put it there, is a dead letter when it would be sent, and is never
// sent; what the receiver has is watched on.
func TestMailOfAnotherSecret(t *testing.T) {
	for _, before := range []string{"", "0ld"} {
		for _, key := range []string{"", "k"} {
			t.Run(before+" "+key, func(t *testing.T) {
				story(t, func(r *rig) {
					r.set(func() { r.place = mailbox.Gone })
					waits := hourly("w")
					waits.Metadata.RequiresAck = key == "k"
					for _, e := range []mailbox.Envelope{waits, message("d")} {
						raw, err := mailbox.Signing{Secret: before}.Encode(e)
						if err != nil {
							t.Fatal(err)
						}
						if e.ID == "w" {
							err = r.state.commit(book.Record{Kind: kindMail, Key: "1", Value: json.RawMessage(raw)},
								book.Record{Kind: kindSent, Key: "1", Value: sentMail{ID: "w", To: "coder", Key: key,
									Ack: waits.Metadata.RequiresAck, Watch: !waits.Metadata.RequiresAck, Retries: 3}})
						} else {
							err = r.state.commit(book.Record{Kind: kindDead, Key: "2",
								Value: deadRecord{DeadLetter{ID: "d"}, raw}})
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					r.opts.Signing = mailbox.Signing{Secret: "s3cret"}
					r.reopen()
					r.after(time.Minute)
					r.wantDied("w", mailbox.BadSignature, len(key), "not signed")
					r.reopen()
					r.wantCalls()
					r.wantLeft(0, 2)
					for _, id := range []string{"w", "d"} {
						err := r.Replay(id)
						if no, ok := errors.AsType[*mailbox.Error](err); !ok || no.Field != "id" {
							t.Errorf("sent again: %v", err)
						}
					}
					r.wantCalls()
					r.wantLeft(0, 2)
				})
			})
		}
	}
	t.Run("taken meanwhile", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(hourly("a"))
			r.send(message("b"))
			r.opts.Signing = mailbox.Signing{Secret: "s3cret"}
			r.set(func() { r.place = mailbox.Processed })
			r.reopen()
			r.after(time.Minute)
			r.wantLeft(0, 0)
			if n := len(r.deaths()); n != 0 {
				t.Errorf("%d died", n)
			}
		})
	})
}
