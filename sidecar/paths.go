package sidecar

import "feishu-relay/relay"

// botsPath is the stages of another bot's message.
func (s *Sidecar) botsPath() path {
	return path{
		queue: outboundQueue,
		arrive: relay.Pipeline[*arrival]{
			{Name: "signature", Apply: s.record.checkSignature},
			{Name: "role", Apply: s.record.stopRole(isPerson)},
			{Name: ownStage, Apply: s.record.stopOwn},
			{Name: "member", Apply: s.record.stopOtherChats},
			{Name: "dedup", Apply: s.receive.stopRepeats},
			{Name: "transcript", Apply: s.record.record},
		},
		decide: relay.Pipeline[*arrival]{
			{Name: "age", Apply: s.decide.stopOld},
			{Name: stageSteer, Apply: s.steer.stopSteered},
			{Name: "mention", Apply: s.decide.readMentions},
			{Name: "budget", Apply: s.steer.stopBudget},
			{Name: stagePolicy, Apply: s.decide.askPolicy},
			{Name: "inject", Apply: s.deliver.inject},
		},
	}
}

// usersPath is the stages of a person's message that another bot heard: it is for
// the transcript alone.
func (s *Sidecar) usersPath() path {
	return path{queue: inboundQueue, arrive: relay.Pipeline[*arrival]{
		{Name: "signature", Apply: s.record.checkSignature},
		{Name: "role", Apply: s.record.stopRole(isBot)},
		{Name: ownStage, Apply: s.record.stopOwn},
		{Name: "member", Apply: s.record.stopOtherChats},
		{Name: "transcript", Apply: s.record.recordUser},
	}}
}

// nativesPath is the stages of another bot's message that Feishu delivered itself.
func (s *Sidecar) nativesPath() path {
	return path{queue: nativeQueue,
		arrive: relay.Pipeline[*arrival]{
			{Name: "notice", Apply: s.steer.stopNotices},
			{Name: "final", Apply: s.native.stopUnfinished},
			{Name: ownStage, Apply: s.record.stopOwn},
			{Name: "member", Apply: s.record.stopOtherChats},
			{Name: "dedup", Apply: s.receive.stopRepeats},
			{Name: "transcript", Apply: s.record.record},
		},
		decide: s.botsPath().decide,
	}
}

// onesPath is the stages of a person's message that Feishu's event brought and that is for one of
// several bots. It is in the transcript.
func (s *Sidecar) onesPath() path {
	return path{queue: nativeQueue,
		arrive: relay.Pipeline[*arrival]{{Name: "dedup", Apply: s.receive.stopRepeats}},
		decide: relay.Pipeline[*arrival]{{Name: "one", Apply: s.native.giveOne}},
	}
}

// peoplesPath is the stages of a person's message that the connector received: the
// policy is for bots, and a private chat leaves no trace.
func (s *Sidecar) peoplesPath() path {
	return path{queue: nativeQueue,
		arrive: relay.Pipeline[*arrival]{
			{Name: "dedup", Apply: s.receive.stopRepeats},
			{Name: "transcript", Apply: s.native.hearPerson},
		},
		decide: relay.Pipeline[*arrival]{
			{Name: "one", Apply: s.native.stopForOther},
			{Name: "mention", Apply: s.decide.noteMentions},
			{Name: "inject", Apply: s.deliver.inject},
		},
	}
}
