package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"feishu-relay/relay"
)

// maxLines is the most lines of a chat; then it ends. Each leads to few
// messages, so that the transcript stays within what the check can read.
const maxLines = 150

// maxTyped is the most bytes of a line; the rest of a longer one is not read,
// and the chat ends.
const maxTyped = 64 << 10

// chatAct is an act that somebody may take part in.
type chatAct interface {
	act
	// lobby is where a chat takes place, and what is said to begin it.
	lobby() (chat relay.ChatID, notes []string)
}

var errNoChat = errors.New("this act goes by its script; --act 1 and --act 2 let you be the user")

// chat lets whoever is at the other end of Input be the user, until the input
// ends or says /quit. The next line is read when the bots have come to rest.
func (s *stage) chat(ctx context.Context, a chatAct) error {
	chat, notes := a.lobby()
	for _, n := range append(notes, "to steer them: /relay help — 继续 or continue lets stopped bots go on — /quit ends") {
		s.out.note(n)
	}
	s.board.showSteering()
	lines := s.read(ctx)
	for range maxLines {
		fmt.Fprint(s.out.w, s.Prompt)
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		line = strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD"))
		switch {
		case !more, line == "/quit":
			return nil
		case line == "":
			continue
		}
		if err := a.says(ctx, chat, line); err != nil {
			return err
		}
		if err := s.board.await(ctx, allEnded, s.board.quiet); err != nil {
			return err
		}
		if err := s.board.atRest(ctx); err != nil {
			return err
		}
	}
	s.out.note(fmt.Sprintf("%d lines: that is all for a demo", maxLines))
	return nil
}

// read gives the lines of Input. Its goroutine may stay in a Read that nothing
// can end.
func (s *stage) read(ctx context.Context) <-chan string {
	lines := make(chan string)
	input := s.Input
	if input == nil {
		input = strings.NewReader("")
	}
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(input)
		scan.Buffer(nil, maxTyped)
		for scan.Scan() {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}
