package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/mailbox"
)

// checkSecrets compares the fingerprint of RELAY_SECRET with those on the other agents' cards.
func checkSecrets(_ context.Context, s *subject) (out []finding) {
	own := s.Shared("")
	var same []string
	for _, c := range s.tellers() {
		agent := string(c.AgentID)
		if c.Sidecar.Secret == own.Secret {
			if agent != string(s.Agent) {
				same = append(same, agent)
			}
			continue
		}
		switch {
		case agent == string(s.Agent):
			out = append(out, warning(say("restart it, or check with its environment", "重启它，或用它的环境变量检查"),
				"the running sidecar of %s was started with another RELAY_SECRET than this environment has",
				"%s 正在运行的边车，启动时的 RELAY_SECRET 与当前环境不同", agent)...)
		case c.At(time.Now(), s.Mailbox.HeartbeatTimeout) == mailbox.Offline:
			out = append(out, warning(say("nothing, if it is not used any more; else set the same RELAY_SECRET there",
				"不再使用就不用处理；否则在那里设同一个 RELAY_SECRET"),
				"%s, which is offline (%s), last ran with another RELAY_SECRET",
				"%s 已离线（%s），上次运行时的 RELAY_SECRET 不同", agent, age(time.Since(c.LastHeartbeat)))...)
		case !own.Meets(c.Sidecar):
			out = append(out, warning(say("nothing, if they are to be apart; else the same RELAY_SECRET at both",
				"本来就要分开就不用处理；否则两边设同一个 RELAY_SECRET"),
				"%s has another RELAY_SECRET, and another queue: they share only the mailbox, and refuse "+
					"each other's mail",
				"%s 的 RELAY_SECRET 和队列都不同：双方只共用邮箱，而且互相拒收信件", agent)...)
		default:
			out = append(out, failure(say("set RELAY_SECRET at this sidecar and at that of %s to the same "+
				"(`openssl rand -hex 32` makes a good one), and restart both",
				"让这个边车和 %s 的边车用同一个 RELAY_SECRET（可用 `openssl rand -hex 32` 生成），并重启两者", agent),
				"%s", "", secretsDiffer(agent, own.Secret, c.Sidecar.Secret))...)
		}
	}
	if len(out) == 0 && len(same) > 0 && own.Secret != "" {
		return well("the same at %s", "与这些智能体相同：%s", some(same))
	}
	return out
}

// secretsDiffer says what comes of two fingerprints of RELAY_SECRET that differ; "" is without a secret.
func secretsDiffer(agent, own, other string) text {
	switch {
	case other == "":
		return say("%s has no RELAY_SECRET, so this bot is not given what its bot says",
			"%s 没有 RELAY_SECRET，所以收不到它的机器人说的话", agent)
	case own == "":
		return say("%s has a RELAY_SECRET and this sidecar has none, so its bot gets nothing from here",
			"%s 有 RELAY_SECRET 而这个边车没有，所以它的机器人收不到这里的消息", agent)
	}
	return say("%s has another RELAY_SECRET (fingerprint %.8s, here %s), so neither bot is given what the other says",
		"%s 的 RELAY_SECRET 不同（指纹 %.8s，这里是 %s），所以双方的机器人互相收不到消息", agent, other, own)
}

// tellers are the cards that say what their agents' sidecars are set to.
func (s *subject) tellers() (cards []mailbox.Card) {
	all, _ := s.cards() // mistakes are reported with the mailbox
	for _, c := range all {
		if c.HasSettings() {
			cards = append(cards, c)
		}
	}
	return cards
}

// peerSetting is a setting that sidecars should have alike; of returns "" where it does not matter.
type peerSetting struct {
	name string
	why  text
	of   func(*mailbox.Settings) string
}

var (
	apart     = text{"they do not meet: no bot of the one hears those of the other", "它们没有连到一起，双方的机器人互相收不到消息"}
	ownRecord = text{"each keeps its own record, without what was said before it ran", "各自保存记录，里面没有它启动之前的消息"}
)

// peerSettings are in the order of their findings. Folders are compared by what they are.
var peerSettings = []peerSetting{
	{"RELAY_BACKEND", apart, func(s *mailbox.Settings) string { return s.Backend }},
	{"RELAY_CHANNEL", apart, func(s *mailbox.Settings) string { return s.RelayChannel }},
	{"version", text{"update the older one", "升级较旧的那个"}, func(s *mailbox.Settings) string { return s.Version }},
	{"MAX_BOT_REPLY_DEPTH", text{"a talk ends earlier at one than at the other", "一边的对话停得比另一边早"},
		func(s *mailbox.Settings) string { return fmt.Sprint(s.MaxDepth) }},
	{"BOT_REPLY_LLM_THRESHOLD", text{"the judge is asked earlier at one than at the other", "一边比另一边更早让裁判判断"},
		func(s *mailbox.Settings) string { return fmt.Sprint(s.Threshold) }},
	{"BOT_REPLY_LLM_CHECK", text{"only one of them asks a judge", "只有一边用裁判"},
		func(s *mailbox.Settings) string { return fmt.Sprint(s.Check) }},
	{"BOT_REPLY_DEPTH_COUNT", text{"they count depth differently", "两边计算深度的方法不同"},
		func(s *mailbox.Settings) string { return s.DepthCount }},
	{"RELAY_MAX_AGE", text{"messages expire earlier at one than at the other", "一边的消息比另一边更早过期"},
		func(s *mailbox.Settings) string { return (time.Duration(s.MaxAge) * time.Millisecond).String() }},
}

// checkPeerSettings compares this environment with what the cards of the agents that are online
// say, this agent's too.
func checkPeerSettings(_ context.Context, s *subject) (out []finding) {
	own := s.Shared(versionText())
	var peers, silent []string
	var cards []mailbox.Card
	all, _ := s.cards()
	for _, c := range all {
		switch agent := string(c.AgentID); {
		case c.At(time.Now(), s.Mailbox.HeartbeatTimeout) == mailbox.Offline:
		case agent == string(s.Agent):
			out = append(out, notRestarted(own, c)...)
		case c.HasSettings():
			peers, cards = append(peers, agent), append(cards, c)
		case c.Protocol != "":
			silent = append(silent, agent)
		}
	}
	for _, set := range peerSettings {
		out = append(out, differing(set.name, set.why, set.of(own), cards, set.of)...)
	}
	if onFiles(s) {
		out = append(out, otherFolders("RELAY_DIR", apart, own.RelayDir, cards,
			func(s *mailbox.Settings) mailbox.Folder { return s.RelayDir })...)
		out = append(out, otherFolders("TRANSCRIPT_DIR", ownRecord, own.Transcripts, cards,
			func(s *mailbox.Settings) mailbox.Folder { return s.Transcripts })...)
	}
	if len(silent) > 0 {
		out = append(out, unseen(say("update them; until then compare their settings yourself", "升级它们；在那之前请自己对照设置"),
			"these agents run a version that does not show its settings: %s",
			"这些智能体的版本不公布自己的设置：%s", some(silent))...)
	}
	switch {
	case len(out) == 0 && len(peers) > 0:
		return well("folders or channel, version and limits are the same at %s",
			"目录或频道、版本和限额都相同：%s", some(peers))
	case len(out) == 0 && slices.ContainsFunc(all, func(c mailbox.Card) bool { return string(c.AgentID) != string(s.Agent) }):
		return unseen(say("start the others, and check again", "启动其他边车，再检查一次"),
			"no other agent is online to compare with", "没有其他智能体在线，无从对照")
	}
	return out
}

// differing is the finding about a setting that cards have otherwise than here.
func differing(name string, why text, here string, cards []mailbox.Card, of func(*mailbox.Settings) string) []finding {
	var at []text
	for _, c := range cards {
		if there := of(c.Sidecar); there != "" && here != "" && there != here {
			at = append(at, say("%s at %s", "%[2]s 是 %[1]s", there, c.AgentID))
		}
	}
	if len(at) == 0 {
		return nil
	}
	return warning(say("set it alike, unless this is meant: %s", "除非有意如此，改成一样：%s", why),
		"%s is %s here, and %s", "%s 在这里是 %s；%s", name, here, some(at))
}

// otherFolders is the finding about sidecars on files that use another folder.
func otherFolders(name string, why text, here mailbox.Folder, cards []mailbox.Card,
	of func(*mailbox.Settings) mailbox.Folder,
) []finding {
	var at []text
	for _, c := range cards {
		if there := of(c.Sidecar); there.Path != "" && !here.Same(there) {
			at = append(at, say("%s at %s", "%[2]s 是 %[1]s", there.Path, c.AgentID))
		}
	}
	if len(at) == 0 {
		return nil
	}
	return warning(say("use one folder (in containers, one volume), unless this is meant: %s",
		"除非有意如此，用同一个目录（在容器里是同一个卷）：%s", why),
		"%s is %s here, and another folder, %s", "%s 在这里是 %s，在别处是另一个目录：%s", name, here.Path, some(at))
}

// notRestarted warns of a running sidecar that was started with other settings than this environment
// has. Its version and its secret are reported elsewhere.
func notRestarted(own *mailbox.Settings, c mailbox.Card) []finding {
	if !c.HasSettings() {
		return nil
	}
	var names []string
	for _, set := range peerSettings {
		if set.name != "version" && set.of(own) != set.of(c.Sidecar) {
			names = append(names, set.name)
		}
	}
	if own.Backend == c.Sidecar.Backend && !own.RelayDir.Same(c.Sidecar.RelayDir) {
		names = append(names, "RELAY_DIR")
	}
	if !own.Transcripts.Same(c.Sidecar.Transcripts) {
		names = append(names, "TRANSCRIPT_DIR")
	}
	if len(names) == 0 {
		return nil
	}
	return warning(say("restart it, or check with its environment", "重启它，或用它的环境变量检查"),
		"the running sidecar of %s has another %s than this environment",
		"%s 正在运行的边车，%s 与当前环境不同", c.AgentID, strings.Join(names, ", "))
}
