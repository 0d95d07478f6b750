//go:build unix

package sidecar_test

import (
	"fmt"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// A person's message that Feishu delivers late is not stopped for its age.
func TestConnectorGivesALatePersonsMessage(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	_, botC := n.connector(apps[0], func(cfg *sidecar.Config) { cfg.MaxAge = 2 * time.Second })
	n.Fault(feishusim.Fault{Kind: feishusim.FaultDelay, Delay: 3 * time.Second, Count: 1})
	n.says("late but mine")
	botC.gets("late but mine")
}

// What only says that an answer is coming is nothing to hand over.
func TestPlaceholderOfABotWithoutSidecar(t *testing.T) {
	t.Parallel()
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

// A bot may answer before the person's message is recorded, which waits for
// Feishu to tell the person's name. The answer counts from that message all the same.
func TestAnswerBeforeTheQuestionIsRecorded(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b := n.start(n.config("agent_a")), n.start(n.config("agent_b"))
	botA, botB := n.bots(apps, a, b)
	n.says("hello")
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	for i := range 3 { // without the person's messages the last would be the third in a row
		n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/contact/v3/users/*", Delay: time.Second, Status: 500})
		n.says(fmt.Sprint("question ", i))
		n.reply(botA, n.hears(botA, fmt.Sprint("question ", i)), "", fmt.Sprint("answer ", i))
		n.hears(botB, fmt.Sprint("answer ", i))
	}
}
