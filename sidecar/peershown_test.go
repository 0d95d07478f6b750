package sidecar

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// The API shows all of a long chat with an agent, page by page.
func TestPagesOfMail(t *testing.T) {
	chats, err := peerchat.Open(peerchat.Options{Self: func() feishu.Self { return feishu.Self{} }})
	if err != nil {
		t.Fatal(err)
	}
	const letters = 120
	for i := range letters {
		if _, err := chats.Receive("writer", fmt.Sprint(i), fmt.Sprint("letter ", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	shown := shownMail{nil, &peerMail{base: &base{cfg: Config{Agent: "coder"}}, chats: chats}}
	chat := string(chats.Chat("writer"))
	var all []string
	for q := (transcript.Query{Limit: 50}); ; {
		page, err := shown.Page(relay.MailChannel, chat, q)
		if err != nil || len(page.Entries) == 0 || len(page.Entries) > q.Limit {
			t.Fatalf("a page has %d entries, and %v", len(page.Entries), err)
		}
		var texts []string
		for _, e := range page.Entries {
			texts = append(texts, e.Content)
		}
		all = append(texts, all...)
		if q.Before = page.Earlier; q.Before == "" {
			break
		}
	}
	if len(all) != letters || all[0] != "letter 0" || !slices.Contains(all, "letter 69") || all[letters-1] != "letter 119" {
		t.Errorf("the pages have %d letters: %v", len(all), all)
	}
	if _, err := shown.Page(relay.MailChannel, chat, transcript.Query{Limit: 50, Before: "no cursor"}); !errors.Is(err,
		transcript.ErrCursor) {
		t.Errorf("no cursor gives %v", err)
	}
}
