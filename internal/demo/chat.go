package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxLines is the most lines of a chat; then it ends as with /quit. It bounds the board. With a few answers to each,
// maxEntries is more than a transcript has then, and as many as the API shows in one answer.
const (
	maxLines   = 150
	maxEntries = 1000
)

// maxTyped is the most bytes of a line; the rest of a longer one is not read,
// and the chat ends.
const maxTyped = 64 << 10

var errNoChat = errors.New("this act goes by its script; --act 1 lets you be the user")

// chatAct lets whoever is at the other end of Input be the user, until the input
// ends or says /quit. The next line is read when the bots have come to rest.
func (s *stage) chatAct(ctx context.Context) {
	for _, n := range s.script.Chat {
		s.out.note(n)
	}
	s.out.note(s.out.say("to steer them: /relay help — continue lets stopped bots go on — /quit ends",
		"管住它们：/中继 帮助 —“继续”让停下的接着说 — /quit 结束"))
	lines := s.read(ctx)
	for range maxLines {
		fmt.Fprint(s.out.w, s.Prompt)
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			must(context.Cause(ctx))
		}
		line = strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD"))
		if !more || line == "/quit" {
			return
		}
		if line != "" {
			s.says(ctx, "", line)
			s.settle(ctx)
			s.rest(ctx)
		}
	}
	s.out.note(s.out.say("%d lines: the chat ends here", "%d 行了，到此为止", maxLines))
}

// restWithin is how long a chat waits for what may not come: the notice of a stop, since the notice may be one of this
// hour, and what a person let go on, since the bot may be muted.
var restWithin = 4 * time.Second

// rest waits until all bots are at rest, but not longer than restWithin.
func (s *stage) rest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	err := try(func() { s.await(ctx, "at rest", s.board.atRest) })
	if ctx.Err() != context.DeadlineExceeded {
		must(err)
	}
}

// read gives the lines of Input. Its goroutine may stay in a Read that nothing
// can end.
func (s *stage) read(ctx context.Context) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		if s.Input == nil {
			return
		}
		scan := bufio.NewScanner(s.Input)
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
