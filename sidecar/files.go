package sidecar

import (
	"context"
	"errors"
	"io"
	"slices"

	"feishu-relay/core"
	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// Where a message is looked for before Feishu is asked for it.
const (
	fileChats = 100 // groups, those written to last
	fileTail  = 250 // messages of each, the newest
)

// files fetches pictures and files of messages for the bot, with its own token.
type files struct {
	*Sidecar
}

// What is refused.
var (
	errUnknownMessage = relay.Errorf(relay.CodeUnknownMessage, "no group that this bot is in has this message")
	errUnknownFile    = relay.Errorf(relay.CodeUnknownFile,
		"the message has no such file; its metadata and its line in the transcript list the keys under files")
	errRecalled      = relay.Errorf(relay.CodeRecalled, "the message was recalled, and its files with it")
	errNoCredentials = relay.Errorf(relay.CodeNoCredentials, "Feishu cannot be asked: the bot has made no call through "+
		"the gateway yet, and FEISHU_APP_ID and FEISHU_APP_SECRET are not set")
)

// open returns a file of a message that is in a group of the bot. The message's line
// in the transcript says which files it has; of one that is missing there, or was edited
// since, Feishu does.
func (f *files) open(ctx context.Context, id relay.MessageID, key string) (relay.FileContent, error) {
	file, found, err := f.recorded(id, key)
	if err != nil {
		return relay.FileContent{}, err
	}
	if !f.app.api.Ready() {
		return relay.FileContent{}, errNoCredentials
	}
	if !found {
		if file, err = f.ask(ctx, id, key); err != nil {
			return relay.FileContent{}, err
		}
	}
	content, err := f.app.api.File(ctx, id, file)
	if err != nil {
		return relay.FileContent{}, f.refusal(ctx, id, err)
	}
	if content.Size > int64(f.cfg.FileMax) {
		return relay.FileContent{}, errors.Join(relay.Errorf(relay.CodeTooLarge,
			"the file has %d bytes, more than the %d of FILE_MAX", content.Size, f.cfg.FileMax), content.Body.Close())
	}
	content.Body = &atMost{content.Body, int64(f.cfg.FileMax), f.cfg.FileMax}
	return content, nil
}

// atMost is a file whose size Feishu did not say.
type atMost struct {
	io.ReadCloser
	left int64
	max  int
}

func (a *atMost) Read(p []byte) (int, error) {
	if int64(len(p)) > a.left+1 {
		p = p[:a.left+1]
	}
	n, err := a.ReadCloser.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, relay.Errorf(relay.CodeTooLarge, "the file has more than the %d bytes of FILE_MAX", a.max)
	}
	return n, err
}

// recorded looks for a file of a message in the transcripts.
func (f *files) recorded(id relay.MessageID, key string) (relay.File, bool, error) {
	all, err := f.chats.transcript.Chats()
	if err != nil {
		return relay.File{}, false, err
	}
	for _, c := range all[:min(len(all), fileChats)] {
		if !f.in(c.Channel, relay.ChatID(c.ChatID)) {
			continue
		}
		if f.gone(core.ChatOf(c.Channel, relay.ChatID(c.ChatID)), id) {
			return relay.File{}, false, errRecalled
		}
		entries, err := f.chats.transcript.Tail(c.Channel, c.ChatID, fileTail)
		if err != nil {
			f.problems.set("transcript", err)
			continue // Feishu may know
		}
		for _, e := range entries {
			if e.MessageID != string(id) {
				continue
			}
			for _, file := range e.Files {
				if file.Key == key {
					return file, true, nil
				}
			}
		}
	}
	return relay.File{}, false, nil
}

// ask asks Feishu which files a message has.
func (f *files) ask(ctx context.Context, id relay.MessageID, key string) (relay.File, error) {
	m, _, err := f.app.api.Message(ctx, id)
	if err != nil {
		return relay.File{}, f.refusal(ctx, "", err)
	}
	kind, err := f.app.chatKind(ctx, m.ChatID)
	if err != nil {
		return relay.File{}, f.refusal(ctx, "", err)
	}
	in := f.in(relay.DefaultChannel, m.ChatID)
	if !in && kind == feishu.ChatGroup && f.cfg.KnowsFeishu() {
		if in, err = f.app.askMembership(ctx, m.ChatID); err != nil {
			return relay.File{}, f.refusal(ctx, "", err)
		}
	}
	if !in || kind != feishu.ChatGroup {
		return relay.File{}, errUnknownMessage
	}
	if m.Deleted || f.gone(feishuChat(m.ChatID), id) {
		return relay.File{}, errRecalled
	}
	list := m.Doc().Files()
	i := slices.IndexFunc(list, func(file relay.File) bool { return file.Key == key })
	if i < 0 {
		return relay.File{}, errUnknownFile
	}
	return list[i], nil
}

// Codes of what Feishu does not have for this bot (docs/feishu.md 6.2).
var (
	codesRecalled  = []int{230011, 230110}
	codesNoMessage = []int{feishu.CodeNotInChat, 230001, 231003, 232006, 232009, 232010, 232011, 234004}
	codesNoFile    = []int{234001, 234003, 234043}
)

const codeFileTooLarge = 234037

// refusal is err in the words of the local API. Where id is not "" Feishu is asked whether the
// message was recalled: it is not known to say so of each file.
func (f *files) refusal(ctx context.Context, id relay.MessageID, err error) error {
	e, ok := errors.AsType[*feishu.CodeError](err)
	switch {
	case errors.Is(err, feishu.ErrNoToken):
		return errNoCredentials
	case ctx.Err() != nil:
		return err
	case !ok:
		f.problems.set("files", err)
		return relay.Errorf(relay.CodeFeishuUnavailable, "Feishu did not answer; try again later")
	case slices.Contains(codesRecalled, e.Code):
		return errRecalled
	case e.Code == codeFileTooLarge:
		return relay.Errorf(relay.CodeTooLarge, "Feishu hands out no file of more than 100 MB")
	}
	if id != "" {
		if m, _, err := f.app.api.Message(ctx, id); err == nil && m.Deleted {
			return errRecalled
		}
	}
	switch {
	case slices.Contains(codesNoMessage, e.Code):
		return errUnknownMessage
	case slices.Contains(codesNoFile, e.Code):
		return errUnknownFile
	}
	return relay.Errorf(relay.CodeFeishuRefused, "%v", e)
}
