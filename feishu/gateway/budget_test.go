package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// begin sends a request's header and part of its body, and leaves it there.
func (r *rig) begin(path, token string, size int, part []byte) {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", path, token, size)
	if _, err := c.Write(part); err != nil {
		r.t.Fatal(err)
	}
}

// held is how many bytes of both budgets are in use.
func (r *rig) held() (bot, strange int) {
	for ; bot < botBytes && !r.budgets.bot.TryAcquire(int64(botBytes-bot)); bot += 1 << 10 {
	}
	r.budgets.bot.Release(int64(botBytes - bot))
	for ; strange < strangeBytes && !r.budgets.strange.TryAcquire(int64(strangeBytes-strange)); strange += 1 << 10 {
	}
	r.budgets.strange.Release(int64(strangeBytes - strange))
	return bot, strange
}

// Requests that are begun and not ended hold what they sent, not what they announce, and no more
// than their budget together. Meanwhile a call of the bot is read and relayed, whatever its size;
// one of somebody else passes all the same.
func TestUnfinishedRequestsAreHeldWithinABudget(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.text("first") // by which the bot's token is known
	r.said()
	for range 100 {
		r.begin("/open-apis/im/v1/messages", "t-strange", 1<<20, []byte("{"))
	}
	if _, strange := r.held(); strange != 0 {
		t.Errorf("%d bytes are held for what was only announced", strange)
	}
	for range 2 * strangeBytes >> 20 {
		r.begin("/open-apis/im/v1/messages", "t-strange", 1<<20, make([]byte, 1<<20-1))
	}
	waitFor(t, func() bool { return r.counts.of("untapped_busy") > 0 })
	if _, strange := r.held(); strange > strangeBytes {
		t.Errorf("%d bytes are held", strange)
	}
	long := strings.Repeat("long ", 100<<10/5)
	r.text(long)
	if m := r.said(); m.Text != long {
		t.Errorf("published %d bytes", len(m.Text))
	}
	if status, body := r.as("t-strange", "POST", "/open-apis/im/v1/messages", `{"content":"`+long+`"}`); status != http.StatusOK {
		t.Errorf("a stranger's call was answered %d %s", status, body)
	}
}

// What was held of a call is free when it has ended, however it ended.
func TestWhatWasHeldIsReleased(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.text("first")
	r.said()
	large := strings.Repeat("x", 200<<10)
	r.up.say("GET /open-apis/im/v1/messages/om_large", 200, `{"code":0,"data":{"items":[],"x":"`+large+`"}}`)
	for _, token := range []string{"t-" + r.app, "t-strange"} {
		for range 20 {
			r.as(token, "GET", "/open-apis/im/v1/messages/om_large", "")
			r.as(token, "POST", "/open-apis/im/v1/messages/om_1/reactions", `{"x":"`+large+`"}`)
			r.as(token, "POST", "/open-apis/other", large[:60<<10])
		}
	}
	waitFor(t, func() bool { bot, strange := r.held(); return bot == 0 && strange == 0 })
}

// Answers of Feishu that together are too large to hold pass unread, whole.
func TestLargeAnswersPassWithinABudget(t *testing.T) {
	r := newRig(t, nil)
	large := []byte(`{"code":0,"x":"` + strings.Repeat("x", 3<<20) + `"}`)
	half, release := make(chan struct{}, 16), make(chan struct{})
	r.up.on("GET /open-apis/im/v1/messages/om_large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(large[:len(large)-1])
		_ = http.NewResponseController(w).Flush()
		half <- struct{}{}
		<-release
		_, _ = w.Write(large[len(large)-1:])
	})
	got := make(chan error, 8)
	for range cap(got) {
		go func() {
			resp, err := r.client.Get(r.url + "/open-apis/im/v1/messages/om_large")
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && !bytes.Equal(body, large) {
					err = fmt.Errorf("the answer has %d bytes, want %d", len(body), len(large))
				}
			}
			got <- err
		}()
	}
	for range cap(got) {
		<-half
	}
	waitFor(t, func() bool { return r.counts.of("untapped_busy") > 0 })
	close(release)
	for range cap(got) {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}
