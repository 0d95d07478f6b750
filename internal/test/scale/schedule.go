package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// perConversation is how many messages bots send until the default stop policy, with its limit
	// of 3, stops one at every bot. It is more if a person writes in between, and fewer if two
	// conversations of a group overlap.
	perConversation = 3
	// maxHops bounds a conversation in which people keep writing.
	maxHops = 12
)

// conversation is a person's message and the answers of bots to it and to each other.
type conversation struct {
	at       time.Duration // when the person writes
	group    int
	speakers []int // the bots of the group in the order of their turns, repeated
	think    [maxHops]time.Duration
}

// speaker is the bot that sends the message of a hop; the first is 0.
func (c *conversation) speaker(hop int) int { return c.speakers[hop%len(c.speakers)] }

// membership gives each group its bots.
func membership(s settings) [][]int {
	random := rand.New(rand.NewPCG(s.seed, 0))
	out := make([][]int, s.groups)
	for i := range out {
		out[i] = random.Perm(s.bots)[:s.members]
	}
	return out
}

// schedule returns the conversations of a rate: as many as make the bots send that many
// messages a second, at random times, in random groups.
func schedule(s settings, members [][]int, step int, rate float64) (out []*conversation) {
	random := rand.New(rand.NewPCG(s.seed, uint64(step)+1))
	for at := 0.0; ; {
		at += random.ExpFloat64() / (rate / perConversation)
		c := &conversation{at: time.Duration(at * float64(time.Second)), group: random.IntN(len(members))}
		if c.at >= s.warm+s.measureFor {
			return out
		}
		c.speakers = append(c.speakers, members[c.group]...)
		random.Shuffle(len(c.speakers), func(i, j int) { c.speakers[i], c.speakers[j] = c.speakers[j], c.speakers[i] })
		for i := range c.think {
			c.think[i] = time.Duration((0.5 + random.Float64()) * float64(s.think))
		}
		out = append(out, c)
	}
}

func botName(bot int) string { return fmt.Sprintf("bot_%03d", bot) }

func groupID(group int) string { return fmt.Sprintf("oc_scale_%04d", group) }

// messageID names a message of a bot. The step keeps rates apart.
func messageID(step, conversation, hop int) string {
	return fmt.Sprintf("om_scale_%d_%d_%d", step, conversation, hop)
}

// parseID returns the conversation and hop of an id of [messageID]; ok is false if it is
// not of this step.
func parseID(id string, step int) (conversation, hop int, ok bool) {
	var of int
	n, err := fmt.Sscanf(id, "om_scale_%d_%d_%d", &of, &conversation, &hop)
	return conversation, hop, err == nil && n == 3 && of == step
}
