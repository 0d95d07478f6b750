//go:build unix

package sidecar_test

import (
	"testing"

	"feishu-relay/internal/feishusim"
)

// The status tells which groups have a pause or a mute, and what the sidecars of their bots are set to.
func TestStatusOfSteering(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.steered("agent_a")
	cfg.Steer.Budget = 7
	a := n.start(cfg)
	n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	n.connected(a)
	if got := a.Status().Steering; len(got.Commands) != 2 || got.AnswerMode != "all" || got.Notice != "reaction" || len(got.Groups) != 0 {
		t.Errorf("before: %+v", got)
	}
	n.answers("/relay pause 30m")
	got := a.Status().Steering
	if len(got.Groups) != 1 || string(got.Groups[0].ChatID) != n.chat || got.Groups[0].Paused == nil || got.Groups[0].Paused.Until == nil {
		t.Errorf("groups: %+v", got.Groups)
	}
	if len(got.Agents) != 1 || got.Agents[0].Agent != "agent_a" || got.Agents[0].Answer != "all" || got.Agents[0].Budget != 7 {
		t.Errorf("agents: %+v", got.Agents)
	}
	n.until("the answer is noted as shown", func() bool { return a.Status().Steering.Waiting == 0 })
}
