package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// maxVerified is how many of the newest messages, and of the files or entries set aside,
// are looked at.
const maxVerified = 100

// checkLineSignatures verifies the newest message of each other bot: sidecars whose
// RELAY_SECRETs differ do not hear each other.
func checkLineSignatures(ctx context.Context, s *subject) []finding {
	var wrong, signed, right []text
	seen := map[relay.AgentName]bool{s.Agent: true}
	for _, line := range newestLines(ctx, s) {
		m, err := relay.Decode(line)
		if err != nil || seen[m.SenderAgentName] {
			continue
		}
		seen[m.SenderAgentName] = true
		name := say("%s (%s ago)", "%s（%s前）", m.SenderAgentName, age(time.Since(m.TS.Time())))
		var sig struct{ Sig string }
		_ = json.Unmarshal(line, &sig) // a sig that is no text is not one
		switch {
		case s.RelaySecret != "" && relay.Verify(line, string(s.RelaySecret)) != nil:
			wrong = append(wrong, name)
		case s.RelaySecret != "":
			right = append(right, name)
		case sig.Sig != "":
			signed = append(signed, name)
		}
	}
	switch {
	case len(wrong) > 0:
		return warning(say("set the same RELAY_SECRET at all sidecars and restart them; nothing needs to be done if it "+
			"was set or changed after these messages",
			"所有边车设同一个 RELAY_SECRET 并重启；如果是在这些消息之后才设或改的，就不用处理"),
			"the newest messages of these bots are not signed with this RELAY_SECRET, and such messages "+
				"are not delivered here: %s",
			"这些机器人的最新消息不是用这个 RELAY_SECRET 签名的，这样的消息在这里不会送达：%s", some(wrong))
	case len(signed) > 0:
		return warning(say("set RELAY_SECRET to that of the other sidecars", "把 RELAY_SECRET 设成与其他边车相同"),
			"these bots sign their messages, and RELAY_SECRET is not set here: their sidecars do not "+
				"deliver what this bot says: %s",
			"这些机器人给消息签名，而这里没有设 RELAY_SECRET：它们的边车不会送达这个机器人的消息：%s", some(signed))
	case len(right) > 0:
		return well("the newest messages of these bots are signed with this RELAY_SECRET: %s",
			"这些机器人的最新消息是用这个 RELAY_SECRET 签名的：%s", some(right))
	}
	return nil
}

// newestLines returns the newest lines of the bots' queue, the newest first. What cannot
// be read is reported with the queue.
func newestLines(ctx context.Context, s *subject) (lines [][]byte) {
	if onRedis(s) {
		entries, _ := s.client.XRevRangeN(ctx, s.RelayChannel+":log", "+", "-", maxVerified).Result()
		for _, entry := range entries {
			text, _ := entry.Values["payload"].(string)
			lines = append(lines, []byte(text))
		}
		return lines
	}
	f, err := os.Open(filepath.Join(s.RelayDir, "outbound.jsonl"))
	if err != nil {
		return nil
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	for l, err := range jsonl.Backward(f, size, relay.MaxLine) {
		if err != nil || len(lines) == maxVerified || ctx.Err() != nil {
			break
		}
		if l.Text != nil {
			lines = append(lines, bytes.Clone(l.Text))
		}
	}
	return lines
}

// setAsideFindings describes n messages that the mailbox has set aside in a place. Those of
// read, the newest, were read. broken is the fix for those that are not envelopes; again
// says how one is given to the bot after all.
func setAsideFindings(s *subject, place string, n int, read [][]byte, broken text, again string) (out []finding) {
	unsigned, fine, at := 0, 0, alike(place)
	for _, raw := range read {
		e, _, err := mailbox.Signing{Secret: string(s.RelaySecret), Unsigned: s.Mailbox.Unsigned}.Decode(raw)
		if why, ok := errors.AsType[*mailbox.Error](err); ok && why.Code == mailbox.BadSignature {
			unsigned++
		} else if err == nil && e.To == mailbox.AgentID(s.Agent) && e.From != e.To {
			fine++
		}
	}
	if n > len(read) {
		at = say("%s (%d in all; the newest %d were looked at)", "%s（共 %d 条，看了最新的 %d 条）", place, n, len(read))
	}
	if unsigned > 0 {
		out = append(out, warning(say("set the same RELAY_SECRET at the sender's sidecar, or find out who else writes to "+
			"the mailbox; then delete them, or have those read that you trust: docs/mailbox.md, Signed mail",
			"在发送方的边车上设同一个 RELAY_SECRET，或查出还有谁在写邮箱；然后删除它们，或只读可信的：docs/mailbox.md"),
			"%s not signed with this RELAY_SECRET: %s",
			"%s不是用这个 RELAY_SECRET 签名的：%s", amount(unsigned, "message is", "messages are", "条消息"), at)...)
	}
	if fine > 0 {
		out = append(out, warning(say("%s; or delete them", "%s；或删除它们", again),
			"%s set aside, for a reason that the log has, and may be readable now: %s",
			"%s被搁置（原因见日志），现在也许能读：%s", amount(fine, "message was", "messages were", "条消息"), at)...)
	}
	if rest := len(read) - unsigned - fine; rest > 0 {
		out = append(out, warning(broken,
			"%s: %s", "%s：%s",
			amount(rest, "message is not an envelope", "messages are not envelopes", "条消息不是信封"), at)...)
	}
	return out
}
