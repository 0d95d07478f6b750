package feishusim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// endpoint asks for a WebSocket's URL.
func (r *room) endpoint(a App, path string) (code int, ws string) {
	r.t.Helper()
	body := compact(map[string]string{"AppID": a.ID, "AppSecret": a.Secret})
	resp, err := http.Post(r.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Code int
		Data *struct {
			URL          string
			ClientConfig map[string]int
		}
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(b, &out) != nil || out.Data == nil {
		r.t.Fatalf("bootstrap: %v %q", err, b)
	}
	if out.Code == 0 && len(out.Data.ClientConfig) != 4 {
		r.t.Errorf("client config: %v", out.Data.ClientConfig)
	}
	return out.Code, out.Data.URL
}

func TestBootstrap(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	a := r.apps[0]
	for _, path := range []string{"/callback/ws/endpoint", "//callback/ws/endpoint"} {
		code, ws := r.endpoint(a, path)
		u, err := url.Parse(ws)
		if code != 0 || err != nil || u.Scheme != "ws" || "http://"+u.Host != r.url {
			t.Fatalf("%s: %d %s", path, code, ws)
		}
		first, _, _ := strings.Cut(u.RawQuery, "=")
		if q := u.Query(); first != "fpid" || q.Get("device_id") == "" || q.Get("service_id") == "" {
			t.Errorf("query: %s", u.RawQuery)
		}
	}
	if code, _ := r.endpoint(App{ID: a.ID, Secret: "wrong"}, bootstrapPath); code != 514 {
		t.Errorf("a wrong secret: %d", code)
	}
	if code, _ := r.endpoint(App{}, bootstrapPath); code != 1000040344 {
		t.Errorf("no app id: %d", code)
	}
	r.Fault(Fault{Kind: FaultBootstrap, App: a.ID, Code: 1000040343, Count: 1})
	if code, _ := r.endpoint(a, bootstrapPath); code != 1000040343 {
		t.Errorf("the planned refusal: %d", code)
	}
	if code, _ := r.endpoint(a, bootstrapPath); code != 0 {
		t.Errorf("after it: %d", code)
	}
}

func (r *room) dial(ws string) (*websocket.Conn, *http.Response) {
	r.t.Helper()
	c, resp, err := websocket.Dial(r.soon(), ws, nil)
	if err != nil {
		return nil, resp
	}
	r.t.Cleanup(func() { c.CloseNow() })
	return c, resp
}

func (r *room) frame(c *websocket.Conn) larkws.Frame {
	r.t.Helper()
	_, b, err := c.Read(r.soon())
	if err != nil {
		r.t.Fatal(err)
	}
	var f larkws.Frame
	if err := f.Unmarshal(b); err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *room) ping(c *websocket.Conn) {
	r.t.Helper()
	f := larkws.NewPingFrame(serviceID)
	b, err := f.Marshal()
	if err == nil {
		err = c.Write(r.soon(), websocket.MessageBinary, b)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestNothingIsPushedBeforeTheFirstPing(t *testing.T) {
	o := quick
	o.PushAfter = -1
	r := newRoom(t, o, App{Name: "BotA"})
	_, ws := r.endpoint(r.apps[0], bootstrapPath)
	c, _ := r.dial(ws)
	if err := r.until(r.soon(), func() bool { return len(r.Server.apps[r.apps[0].ID].conns) == 1 }); err != nil {
		t.Fatal(err)
	}
	id := r.say("early")
	if n := len(r.Deliveries()); n != 0 {
		t.Errorf("%d deliveries before the ping", n)
	}
	r.ping(c)
	pong := r.frame(c)
	var config map[string]int
	if err := json.Unmarshal(pong.Payload, &config); err != nil || len(config) != 4 || pong.Method != 0 || pong.Service != serviceID {
		t.Errorf("pong: %+v %s", pong, pong.Payload)
	}
	event := r.frame(c)
	h := larkws.Headers(event.Headers)
	if event.Method != 1 || h.GetString("type") != "event" || h.GetString("sum") != "1" || h.GetString("seq") != "0" || !strings.Contains(string(event.Payload), id) {
		t.Errorf("event: %v %s", h, event.Payload)
	}
	if err := c.Write(r.soon(), websocket.MessageText, []byte("nonsense")); err != nil {
		t.Error(err)
	}
	event.Payload = []byte(`{"code":200}`)
	b, err := event.Marshal()
	if err == nil {
		err = c.Write(r.soon(), websocket.MessageBinary, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.until(r.soon(), func() bool { return len(r.Server.apps[r.apps[0].ID].pending) == 0 }); err != nil {
		t.Errorf("the acknowledgement did not count: %v", err)
	}
}

func TestUpgradesThatAreRefused(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	_, ws := r.endpoint(r.apps[0], bootstrapPath)
	if c, _ := r.dial(ws); c == nil {
		t.Fatal("a good ticket was refused")
	}
	if _, resp := r.dial(ws); resp == nil || resp.Header.Get("Handshake-Status") != "514" {
		t.Errorf("a used ticket: %v", resp)
	}
}

func TestTheLinkGoesWrong(t *testing.T) {
	t.Run("closed with a code", func(t *testing.T) {
		r := newRoom(t, quick, App{Name: "BotA"})
		_, ws := r.endpoint(r.apps[0], bootstrapPath)
		c, _ := r.dial(ws)
		r.ping(c)
		r.frame(c)
		r.Fault(Fault{Kind: FaultClose, Code: 1012, Msg: "restart"})
		_, _, err := c.Read(r.soon())
		if got := websocket.CloseStatus(err); got != 1012 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the SDK comes back", func(t *testing.T) {
		r := newRoom(t, quick, App{Name: "BotA"})
		a := r.connect(r.apps[0])
		for _, kind := range []string{FaultDrop, FaultClose} {
			r.Fault(Fault{Kind: kind, App: r.apps[0].ID})
			id := r.say(kind)
			for *r.next(a).Event.Message.MessageId != id {
			} // the one before may come again: its acknowledgement was cut off
		}
	})
}
