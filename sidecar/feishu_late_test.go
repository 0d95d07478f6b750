//go:build unix

package sidecar_test

import (
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
)

// A person's message that Feishu delivers late is not stopped for its age.
func TestConnectorGivesALatePersonsMessage(t *testing.T) {
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	c, got := n.connectorFor(apps[0], 2*time.Second)
	n.Fault(feishusim.Fault{Kind: feishusim.FaultDelay, Delay: 3 * time.Second, Count: 1})
	n.says("late but mine")
	select {
	case body := <-got:
		if !strings.Contains(body, "late but mine") {
			t.Error(body)
		}
	case <-time.After(8 * time.Second):
		t.Errorf("it was not given to the bot; expired: %d", n.stops(c, "expired"))
	}
}

// What only says that an answer is coming is nothing to hand over.
func TestPlaceholderOfABotWithoutSidecar(t *testing.T) {
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA", Scopes: hearsBots}, feishusim.App{Name: "Stranger"})
	cfg := n.config("agent_a")
	cfg.MaxAge = 4 * time.Second
	a := n.start(cfg)
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	stranger := n.bot(apps[1], n.url.String(), nil)
	n.connected(a)
	n.stream(stranger, heard{ID: n.says("go")}, "the build is red")
	if h, ok := n.soon(botA, 4*time.Second, "Thinking"); ok {
		t.Errorf("a placeholder was delivered: %+v", h)
	}
}
