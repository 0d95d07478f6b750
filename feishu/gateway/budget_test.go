package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A call whose body finds no room passes unread, and room is free again when a call has ended, however it ended.
func TestLargeBodiesAreBounded(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	large := strings.Repeat("x", 200<<10)
	for range 2 * maxLarge {
		if status, _ := r.call("POST", "/open-apis/im/v1/messages/om_1/reactions", `{"x":"`+large+`"}`); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	waitFor(t, func() bool { return r.large.TryAcquire(maxLarge) })
	r.text("still " + large)
	if r.counts.of("untapped_busy") != 1 {
		t.Error("not counted")
	}
	r.text("hello.")
	if m := r.said(); m.Text != "hello." {
		t.Errorf("published %q", m.Text)
	}
	body := `{"receive_id":"` + group + `","msg_type":"text","content":"{\"text\":\"in chunks\"}"}`
	req, err := http.NewRequest("POST", r.url+"/open-apis/im/v1/messages?receive_id_type=chat_id",
		struct{ io.Reader }{strings.NewReader(body)}) // of no known length
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer t-"+r.app)
	r.do(req)
	if m := r.said(); m.Text != "in chunks" {
		t.Errorf("published %q", m.Text)
	}
	r.large.Release(maxLarge)
}
