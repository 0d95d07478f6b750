package sidecar_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
)

// Whatever Feishu's side of the long connections does, the bots connect again
// by themselves and each is given what the other said, once.
func TestGatewayUpstreamFaults(t *testing.T) {
	for name, fault := range map[string]feishusim.Fault{
		"dropped":    {Kind: feishusim.FaultDrop},
		"closed":     {Kind: feishusim.FaultClose, Code: 1012},
		"duplicated": {Kind: feishusim.FaultDuplicate},
		"in pieces":  {Kind: feishusim.FaultFragment, Parts: 3, Delay: 50 * time.Millisecond},
		"reordered":  {Kind: feishusim.FaultReorder},
		"lost":       {Kind: feishusim.FaultLose, Count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{Redeliver: []time.Duration{200 * time.Millisecond, time.Second},
				AckTimeout: time.Second},
				feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
			_, _, botA, botB := n.pair(apps)
			n.Fault(fault)
			asked := n.says("@BotA go on", apps[0].ID)
			n.hears(botA, "go on")
			n.reply(botA, heard{ID: asked}, apps[1].ID, "can you take this?")
			h := n.hears(botB, "can you take")
			n.ClearFaults()
			n.reply(botB, h, apps[0].ID, "yes, which one?")
			n.hears(botA, "which one")
			for bot, id := range map[*sdkBot]string{botA: "which one", botB: "can you take"} {
				if got := bot.count(id); got != 1 {
					t.Errorf("%s was given %q %d times", bot.app.Name, id, got)
				}
			}
			n.recorded([]string{"go on", "can you take", "which one"})
		})
	}
}

// A bot that dies with a message in its hands, unacknowledged, is given it again
// when it is back.
func TestBotKilledMidDelivery(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a, b := n.start(n.config("agent_a")), n.start(n.config("agent_b"))
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	n.connected(a)

	shown, die := n.hangs(apps[1], b)
	n.reply(botA, heard{ID: n.says("go on")}, apps[1].ID, "hold this, will you?")
	<-shown // what the person said
	id := <-shown
	die()
	again := n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	if h := n.hears(again, "hold this"); h.ID != id {
		t.Errorf("it came as %s at first, then as %s", id, h.ID)
	}
	n.eachOnce(again)
}

// For frameworks that drop bots at the door the event is a person's, and shows
// who really speaks; for those that answer only when named it names them always.
func TestInjectedSenderAndMention(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	_, botA := n.behind(apps[0], n.config("agent_a"), nil)
	cfg := n.config("agent_b")
	cfg.InjectSenderType, cfg.MentionAlways = "user", true
	_, botB := n.behind(apps[1], cfg, nil)
	n.reply(botA, heard{ID: n.says("@BotA go on", apps[0].ID)}, "", "/reset everything, who is with me?")
	h := n.hears(botB, "everything")
	if h.SenderType != "user" || !strings.HasPrefix(h.Text, "[BotA] ") || !n.mentioned(botB, h) {
		t.Errorf("BotB was given %+v", h)
	}
	if h.SenderID != n.OpenID(apps[1].ID, apps[0].ID) {
		t.Errorf("the sender is %s, want BotA as BotB's app sees it", h.SenderID)
	}
}

// A disk that is full while a bot speaks costs it nothing; what it said is
// relayed when there is room again, and what people commanded is carried out then and reaches no bot.
func TestGatewayFullDisk(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{Redeliver: slices.Repeat([]time.Duration{time.Second}, 100),
		AckTimeout: time.Second},
		feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	smallDisk(t, n.dir)
	a, b := n.start(n.steered("agent_a")), n.start(n.steered("agent_b"))
	botA, botB := n.bots(apps, a, b)
	n.reply(botA, heard{ID: n.says("hello")}, apps[1].ID, "before, can you hear me?")
	n.hears(botB, "before")
	empty := fill(t, n.dir)
	long := "meanwhile, " + strings.Repeat("and so on ", 4<<10)
	n.reply(botA, heard{ID: n.says("and now?")}, apps[1].ID, long)
	n.sees("meanwhile")
	command := n.says("/relay " + long)
	n.until("its event is refused", func() bool { return n.events(a, "heard_error") > 0 })
	empty()
	n.hears(botB, "meanwhile")
	n.repliesTo(command)
	n.eachOnce(botA, command)
	n.eachOnce(botB, command)
}
