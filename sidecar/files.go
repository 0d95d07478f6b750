package sidecar

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"feishu-relay/feishu"
	"feishu-relay/group"
	"feishu-relay/relay"
)

// What is refused of files.
var (
	errUnknownMessage = relay.Errorf(relay.CodeUnknownMessage, "no group that this bot is in has this message")
	errUnknownFile    = relay.Errorf(relay.CodeUnknownFile,
		"the message has no such file; its metadata and its line in the transcript list the keys under files")
	errRecalled      = relay.Errorf(relay.CodeRecalled, "the message was recalled, and its files with it")
	errNoCredentials = relay.Errorf(relay.CodeNoCredentials, "Feishu cannot be asked: the bot has made no call through "+
		"the gateway yet, and FEISHU_APP_ID and FEISHU_APP_SECRET are not set")
)

// openFile fetches a picture or file of a message in a group of the bot, with the bot's own token. Feishu is asked for
// the message first: whether it was recalled, and which files it has.
func (s *Sidecar) openFile(ctx context.Context, id relay.MessageID, key string) (relay.FileContent, error) {
	if !s.app.api.Ready() {
		return relay.FileContent{}, errNoCredentials
	}
	m, _, err := s.app.api.Message(ctx, id)
	in := false
	if err == nil {
		in, err = s.inGroup(ctx, m.ChatID)
	}
	switch {
	case err != nil:
		return relay.FileContent{}, s.fileRefused(ctx, err)
	case !in:
		return relay.FileContent{}, errUnknownMessage
	case m.Deleted || s.gone(feishuChat(m.ChatID), id):
		return relay.FileContent{}, errRecalled
	}
	list := m.Doc().Files()
	i := slices.IndexFunc(list, func(file relay.File) bool { return file.Key == key })
	if i < 0 {
		return relay.FileContent{}, errUnknownFile
	}
	content, err := s.app.api.File(ctx, id, list[i])
	if err != nil {
		return relay.FileContent{}, s.fileRefused(ctx, err)
	}
	return atMost(content, int64(s.cfg.FileMax))
}

// atMost refuses a file with more than most bytes. One whose size Feishu did not say is cut off there with an error.
func atMost(content relay.FileContent, most int64) (relay.FileContent, error) {
	if content.Size > most {
		return relay.FileContent{}, errors.Join(relay.Errorf(relay.CodeTooLarge,
			"the file has %d bytes, more than the %d of FILE_MAX", content.Size, most), content.Body.Close())
	}
	content.Body = http.MaxBytesReader(nil, content.Body, most)
	return content, nil
}

// inGroup reports whether the bot is in a chat that is a group.
func (s *Sidecar) inGroup(ctx context.Context, chat relay.ChatID) (in bool, err error) {
	s.core.Group(feishuChat(chat), func(g *group.State) { in = g.In() })
	if in {
		return true, nil
	}
	kind, err := s.app.chatKind(ctx, chat)
	if err != nil || kind != feishu.ChatGroup {
		return false, err
	}
	if in = s.in(relay.DefaultChannel, chat); in || !s.cfg.KnowsFeishu() {
		return in, nil
	}
	return s.app.askMembership(ctx, chat)
}

// Codes of what Feishu does not have for this bot (docs/feishu.md 6.2).
var (
	codesRecalled  = []int{230011, 230110}
	codesNoMessage = []int{feishu.CodeNotInChat, 230001, 231003, 232006, 232009, 232010, 232011, 234004}
	codesNoFile    = []int{234001, 234003, 234043}
)

const codeFileTooLarge = 234037

// fileRefused is err in the words of the local API.
func (s *Sidecar) fileRefused(ctx context.Context, err error) error {
	e, ok := errors.AsType[*feishu.CodeError](err)
	switch {
	case errors.Is(err, feishu.ErrNoToken):
		return errNoCredentials
	case ctx.Err() != nil:
		return err
	case !ok:
		s.problems.set("files", err)
		return relay.Errorf(relay.CodeFeishuUnavailable, "Feishu did not answer; try again later")
	case slices.Contains(codesRecalled, e.Code):
		return errRecalled
	case e.Code == codeFileTooLarge:
		return relay.Errorf(relay.CodeTooLarge, "Feishu hands out no file of more than 100 MB")
	case slices.Contains(codesNoMessage, e.Code):
		return errUnknownMessage
	case slices.Contains(codesNoFile, e.Code):
		return errUnknownFile
	}
	return relay.Errorf(relay.CodeFeishuRefused, "%v", e)
}
