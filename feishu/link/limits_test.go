package link_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

func TestABotThatDoesNotReadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		conn, _, err := websocket.Dial(t.Context(), r.bootstrap().URL, &websocket.DialOptions{HTTPClient: r.client})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		feishu := r.feishu.next()
		if err := conn.Write(t.Context(), websocket.MessageBinary, bytesOf(t, pingFrame())); err != nil {
			t.Fatal(err)
		}
		feishu.want(pingFrame())
		at := time.Now()
		feishu.write(eventFrame("m1", event("e1")))
		if code, _ := feishu.closed(); code != websocket.StatusGoingAway {
			t.Errorf("Feishu got %d", code)
		}
		if took := time.Since(at); took != 10*time.Second || r.counted("bot_closed") != 1 {
			t.Errorf("took %v", took)
		}
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		start := time.Now()
		bot, up := r.connect()
		until(t, "it is there", func() bool { return len(r.s.Status().Connections) == 1 })
		if c := r.s.Status().Connections[0]; c.Ready || c.AppID != app || c.Since.Before(start) {
			t.Errorf("got %+v", c)
		}
		time.Sleep(time.Second)
		bot.ping()
		up.want(pingFrame())
		time.Sleep(time.Second)
		up.write(pongFrame(""))
		bot.want(pongFrame(""))
		c := r.s.Status().Connections[0]
		if !c.Ready || c.Upstream.Sub(c.Bot) != time.Second || c.Bot.Sub(start) < time.Second {
			t.Errorf("got %+v", c)
		}
	})
}

func TestTheLogKeepsSecrets(t *testing.T) {
	r := newRig(t, tcp(t), nil) // which checks it at the end
	r.feishu.says(200, `{"code":0,"data":{"URL":"ws://127.0.0.1:1/ws/v2?access_key=k&ticket=t"}}`, nil)
	if resp, err := r.client.Do(upgrade(t, r.bootstrap().URL)); err == nil {
		resp.Body.Close()
	}
	if !strings.Contains(r.log.String(), "refused") {
		t.Errorf("the log does not say why:\n%s", r.log)
	}
}
