package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/feishu/peerchat"
	"feishu-relay/httpapi"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// shownMail adds the private chats with other agents to the transcripts that the API shows, as what they are: mail
// between two agents, on the channel [relay.MailChannel]. They are in no transcript's file.
type shownMail struct {
	httpapi.Transcripts
	peers *peerMail
}

// showMail has o show the chats with other agents, too.
func (p *peerMail) showMail(o *httpapi.Options) {
	visible, group, outcomes := o.Visible, o.Group, o.Outcomes
	o.Transcripts = shownMail{o.Transcripts, p}
	o.Outcomes = func(ctx context.Context, channel string, chat relay.ChatID, limit int) ([]httpapi.Outcome, bool, error) {
		if channel != relay.MailChannel || !peerchat.IsID(string(chat)) {
			return outcomes(ctx, channel, chat, limit)
		}
		list := p.refused(chat)
		return list[max(0, len(list)-limit):], len(list) <= limit, nil
	}
	o.Visible = func(channel string, chat relay.ChatID) bool {
		return visible(channel, chat) || channel == relay.MailChannel && len(p.chats.Messages(chat)) > 0
	}
	o.Group = func(channel string, chat relay.ChatID) httpapi.Group {
		shown := group(channel, chat)
		if all := p.chats.Messages(chat); channel == relay.MailChannel && len(all) > 0 {
			shown.Name = string(all[0].Peer) + " ↔ " + string(p.cfg.Agent)
		}
		return shown
	}
}

// refused is what the mailbox refused of a chat with another agent.
func (p *peerMail) refused(chat relay.ChatID) (list []httpapi.Outcome) {
	for _, m := range p.chats.Messages(chat) {
		var as answerMail
		if m.Own && json.Unmarshal(m.Mail, &as) == nil && as.Refused != "" {
			list = append(list, httpapi.Outcome{Agent: m.Peer, Channel: relay.MailChannel, ChatID: chat, RelayMsgID: m.ID,
				Sender: p.cfg.Agent, At: m.Created, Stopped: relay.Undeliverable,
				Detail: cmp.Or(as.Why, string(as.Refused))})
		}
	}
	return list
}

// Chats lists those of the groups, and behind them those with other agents.
func (s shownMail) Chats() ([]transcript.Chat, error) {
	all, err := s.Transcripts.Chats()
	for _, chat := range s.peers.chats.List() {
		entries := s.entries(chat)
		if len(entries) == 0 {
			continue // it was forgotten meanwhile
		}
		last := entries[len(entries)-1].Short()
		all = append(all, transcript.Chat{Channel: relay.MailChannel, ChatID: string(chat),
			Modified: time.UnixMilli(last.TS), LastTS: last.TS, Last: &last})
	}
	return all, err
}

// Page returns a page of a chat. Its cursor is the time of the oldest message on it: no two have the same.
func (s shownMail) Page(channel, chat string, q transcript.Query) (transcript.Page, error) {
	if channel != relay.MailChannel || !peerchat.IsID(chat) {
		return s.Transcripts.Page(channel, chat, q)
	}
	entries := s.entries(relay.ChatID(chat))
	if q.Before != "" {
		before, err := strconv.ParseInt(q.Before, 10, 64)
		if err != nil {
			return transcript.Page{}, transcript.ErrCursor
		}
		entries = slices.DeleteFunc(entries, func(e transcript.Entry) bool { return e.TS >= before })
	}
	if q.Text != "" {
		entries = slices.DeleteFunc(entries, func(e transcript.Entry) bool {
			return !strings.Contains(strings.ToLower(e.Content+"\n"+e.Sender), strings.ToLower(q.Text))
		})
	}
	from := max(0, len(entries)-max(0, q.Limit))
	page := transcript.Page{Entries: entries[from:]}
	if from > 0 && q.Limit > 0 {
		page.Earlier = strconv.FormatInt(page.Entries[0].TS, 10)
	}
	return page, nil
}

func (s shownMail) entries(chat relay.ChatID) (out []transcript.Entry) {
	for _, m := range s.peers.chats.Messages(chat) {
		e := transcript.Entry{Role: relay.RoleAssistant, Content: m.Text(), Sender: string(m.Peer),
			MessageID: string(m.ID), TS: int64(m.Created), ParentID: string(m.Parent), RootID: string(m.Root),
			MsgType: m.Type, Recalled: m.Deleted}
		if m.Own {
			var as answerMail
			e.Sender = string(s.peers.cfg.Agent)
			if json.Unmarshal(m.Mail, &as) == nil && as.Text != "" {
				e.Content = as.Text // also of a card that was streamed
			}
		}
		if m.Deleted {
			e.Content = ""
		}
		out = append(out, e)
	}
	return out
}
