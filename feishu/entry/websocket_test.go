package entry_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"feishu-relay/feishu/entry"
)

// echo is a WebSocket that says how it was reached and then returns each message.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	scheme, host := entry.Address(r)
	if err := c.Write(r.Context(), websocket.MessageText, fmt.Appendf(nil, "%s://%s %s", scheme, host, r.Host)); err != nil {
		return
	}
	for {
		kind, data, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

func TestWebSockets(t *testing.T) {
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir(), Handler: http.HandlerFunc(echo)})
	for _, tt := range []struct{ name, url, proxy, want string }{
		{"plain", "ws://" + r.addr + "/ws/v2?a=1", "", "http://" + r.addr + " " + r.addr},
		{"TLS", "wss://localhost:" + r.port() + "/ws/v2", "", "https://localhost:" + r.port() + " localhost:" + r.port()},
		{"TLS under CONNECT", "wss://open.feishu.cn/ws/v2", "http://" + r.addr, "http://" + r.addr + " open.feishu.cn"},
		{"TLS to our address through ourselves", "wss://" + r.addr + "/ws/v2", "http://" + r.addr, "http://" + r.addr + " " + r.addr},
		{"plain through the proxy", "ws://" + r.addr + "/ws/v2", "http://" + r.addr, "http://" + r.addr + " " + r.addr},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := contextFor(patience)
			defer cancel()
			c, _, err := websocket.Dial(ctx, tt.url, &websocket.DialOptions{HTTPClient: client(t, tt.proxy, r.trusting())})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseNow()
			if _, data, err := c.Read(ctx); err != nil || string(data) != tt.want {
				t.Errorf("reached as %q, %v; want %q", data, err, tt.want)
			}
			for i := range 3 {
				message := fmt.Sprintf("message %d", i)
				if err := c.Write(ctx, websocket.MessageBinary, []byte(message)); err != nil {
					t.Fatal(err)
				}
				if _, data, err := c.Read(ctx); err != nil || string(data) != message {
					t.Errorf("got %q, %v", data, err)
				}
			}
			if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
				t.Error(err)
			}
		})
	}
}
