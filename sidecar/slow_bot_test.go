//go:build unix

package sidecar_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"feishu-relay/httpapi"
	"feishu-relay/internal/sse"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

func (b *bot) inProgress(ctx context.Context, t *testing.T) []httpapi.Delivery {
	t.Helper()
	var list struct{ Deliveries []httpapi.Delivery }
	must(t, b.get(ctx, "/v1/deliveries", &list))
	return list.Deliveries
}

// settles posts to /v1/deliveries and checks the answer.
func (b *bot) settles(ctx context.Context, t *testing.T, id relay.MessageID, body string, status int) {
	t.Helper()
	url, err := b.side.url(ctx)
	must(t, err)
	resp, err := b.http.Post(url+"/v1/deliveries/"+string(id), "application/json", strings.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(resp.Body)
	if resp.StatusCode != status {
		t.Errorf("%s settled with %s: %d %s, want %d", id, body, resp.StatusCode, text.Bytes(), status)
	}
	if status != http.StatusOK {
		return
	}
	var answer struct {
		RelayMsgID relay.MessageID `json:"relay_msg_id"`
		State      string
	}
	if err := json.Unmarshal(text.Bytes(), &answer); err != nil || answer.RelayMsgID != id || !strings.Contains(cmp.Or(body, `"delivered"`), `"`+answer.State+`"`) {
		t.Errorf("%s settled with %q: %s", id, body, text.Bytes())
	}
}

// What a bot that acknowledges did not acknowledge comes again on its next
// connection, also over a kill of the sidecar, and in order.
func TestUnacknowledgedOnTheStream(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{bots: 2})
	ctx := limited(t)
	c.listening(ctx)
	a, b := c.bots[0], c.bots[1]
	a.connect(t)
	var conn *websocket.Conn
	dial := func() {
		t.Helper()
		url, err := b.side.url(ctx)
		must(t, err)
		if conn != nil {
			_ = conn.CloseNow()
		}
		conn, _, err = websocket.Dial(ctx, url+"/v1/stream", nil)
		must(t, err)
		conn.SetReadLimit(4 << 20)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	reads := func(want ...relay.MessageID) {
		t.Helper()
		for _, id := range want {
			_, data, err := conn.Read(ctx)
			must(t, err)
			var in relay.Inbound
			must(t, json.Unmarshal(data, &in))
			if got := fmt.Sprint(in.Metadata["relay_msg_id"]); got != string(id) {
				t.Fatalf("read %s, want %s", got, id)
			}
		}
	}
	acks := func(id relay.MessageID) {
		t.Helper()
		must(t, conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"ack":%q}`, id)))
		eventually(ctx, t, "the acknowledgement is noted", func() bool {
			return !slices.ContainsFunc(b.inProgress(ctx, t), func(p httpapi.Delivery) bool { return p.RelayMsgID == id })
		})
	}
	dial()
	c.ready(ctx)
	var ids []relay.MessageID
	for range 6 {
		id, err := a.say(ctx, "oc_1")
		must(t, err)
		ids = append(ids, id)
		if len(ids) == 1 {
			reads(id)
			acks(id)
		}
	}
	reads(ids[1:]...)
	acks(ids[2])
	dial()
	reads(ids[1], ids[3], ids[4], ids[5])
	b.side.kill()
	b.side.start("")
	dial()
	reads(ids[1], ids[3], ids[4], ids[5])
	for _, id := range []relay.MessageID{ids[1], ids[3], ids[4]} {
		acks(id)
	}
	b.settles(ctx, t, ids[5], "", http.StatusOK) // by the API
	if list := b.inProgress(ctx, t); len(list) > 0 {
		t.Errorf("still in progress: %+v", list)
	}
	must(t, conn.CloseNow())
	for range 1100 { // a bot that is away costs no group a line
		_, err := a.say(ctx, "oc_2")
		must(t, err)
	}
	last, err := a.say(ctx, "oc_1")
	must(t, err)
	eventually(ctx, t, "the last is in the transcript", func() bool {
		var page struct{ Entries []transcript.Entry }
		must(t, b.get(ctx, "/v1/transcripts/feishu/oc_1?limit=1", &page))
		return page.Entries[0].MessageID == string(last)
	})
}

// What the reader of the stream has not confirmed comes again, in order, also after a kill.
func TestUnconfirmedOnTheStream(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{bots: 2})
	ctx := limited(t)
	c.listening(ctx)
	a, b := c.bots[0], c.bots[1]
	a.connect(t)
	var ids []relay.MessageID
	say := func() {
		id, err := a.say(ctx, "oc_1")
		must(t, err)
		ids = append(ids, id)
	}
	// reads expects the messages with these numbers from a new reader, and the next one, which is said then.
	reads := func(query string, last relay.MessageID, want ...int) {
		t.Helper()
		url, err := b.side.url(ctx)
		must(t, err)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/stream"+query, nil)
		must(t, err)
		req.Header.Set("Last-Event-ID", string(last))
		resp, err := b.http.Do(req)
		must(t, err)
		defer resp.Body.Close()
		say()
		want = append(want, len(ids))
		for e, err := range sse.Read(resp.Body) {
			must(t, err)
			if e.ID != string(ids[want[0]-1]) {
				t.Fatalf("read %s, want %s, which is message %d", e.ID, ids[want[0]-1], want[0])
			}
			if want = want[1:]; len(want) == 0 {
				break
			}
		}
		eventually(ctx, t, "the delivery is noted", func() bool {
			return b.metric(ctx, t, "feishu_relay_delivered_total") >= 1 && len(b.inProgress(ctx, t)) == 0
		})
	}
	reads("", "")
	reads("", "", 1)
	reads("", ids[0], 2)
	reads("", "", 2, 3)
	b.side.kill()
	b.side.start("")
	reads("", "", 2, 3, 4)
	reads("?last_event_id="+string(ids[3]), "", 5)
	reads("", "om_unknown", 5, 6)
	reads("?ack=false", "", 5, 6, 7)
	reads("", "")
	reads("", ids[8])
}
