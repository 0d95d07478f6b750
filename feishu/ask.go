package feishu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"feishu-relay/relay"
)

const (
	askWait   = 10 * time.Second // for the answer to a question, of one or more calls
	askAgain  = 10 * time.Second // before a question that Feishu did not answer is asked again
	maxAsking = 16               // questions at a time; one more is not asked
	maxAsked  = 20_000           // questions whose last answer is remembered
)

// errBusy is no answer, and is not remembered.
var errBusy = errors.New("too many questions to Feishu are under way")

// reply is how a question was answered last.
type reply struct {
	at    time.Time
	value any
	err   error
}

// Ask has f ask Feishu the question that key names, on another goroutine, and waits for its end or that of ctx. f gets
// a context of its own, of 10 s. Who asks while the question is under way waits for the same answer. If it was asked
// within a time, or Feishu could not be reached in the last 10 s, it counts as answered as it was then.
func (d *Directory) Ask(ctx context.Context, key string, within time.Duration, f func(context.Context) error) error {
	_, err := Known(ctx, d, key, within, func(ctx context.Context) (any, error) { return nil, f(ctx) })
	return err
}

// Known is [Directory.Ask] for a question with an answer, which is remembered; also what f returns with an error.
func Known[T any](ctx context.Context, d *Directory, key string, within time.Duration,
	f func(context.Context) (T, error)) (answer T, err error) {
	last, ok := d.answered(key, within)
	if !ok {
		done := d.questions.DoChan(key, func() (any, error) {
			last, ok := d.answered(key, within) // by who asked at the same moment
			switch {
			case ok:
				return last, nil
			case !d.api.Ready():
				return reply{err: ErrNoToken}, nil
			case !d.asking.TryAcquire(1):
				return reply{err: errBusy}, nil
			}
			defer d.asking.Release(1)
			ctx, cancel := context.WithTimeout(d.ctx, askWait)
			defer cancel()
			value, err := caught(d.log, func() (T, error) { return f(ctx) })
			if last = (reply{time.Now(), value, err}); !errors.Is(err, errBusy) {
				d.asked.Add(key, last)
			}
			return last, nil
		})
		select {
		case r := <-done:
			last = r.Val.(reply)
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
	answer, _ = last.value.(T)
	return answer, last.err
}

// answered returns the answer to a question, if it counts still.
func (d *Directory) answered(key string, within time.Duration) (last reply, ok bool) {
	last, ok = d.asked.Get(key)
	if last.err != nil && CodeOf(last.err) == 0 {
		within = min(within, askAgain)
	}
	return last, ok && time.Since(last.at) < within
}

// caught calls f. A panic in it, as on an answer that nobody has thought of, is an error: on the goroutine of a
// [singleflight.Group] it would end the program.
func caught[T any](log *slog.Logger, f func() (T, error)) (answer T, err error) {
	defer func() {
		if p := recover(); p != nil { // not logged itself, since it may carry a message
			log.Error("a panic was caught in a question to Feishu", "panic", fmt.Sprintf("%T", p),
				"stack", string(debug.Stack()))
			err = fmt.Errorf("asking Feishu panicked with a %T", p)
		}
	}()
	return f()
}

// learn asks a question, and passes the answer to learned unless there is an error.
func learn[T any](ctx context.Context, d *Directory, key string, within time.Duration,
	ask func(context.Context) (T, error), learned func(T)) error {
	return d.Ask(ctx, key, within, func(ctx context.Context) error {
		answer, err := ask(ctx)
		if err == nil {
			learned(answer)
		}
		return err
	})
}

// AskSelf learns who the bot is.
func (d *Directory) AskSelf(ctx context.Context, within time.Duration) error {
	return learn(ctx, d, "self", within, d.api.BotInfo, d.LearnSelf)
}

// AskChat learns the kind and the name of a chat, and whether it is dissolved.
func (d *Directory) AskChat(ctx context.Context, id relay.ChatID, within time.Duration) error {
	ask := func(ctx context.Context) (Chat, error) { return d.api.Chat(ctx, id) }
	return learn(ctx, d, "chat "+string(id), within, ask, func(chat Chat) {
		d.LearnSelf(Self{Tenant: chat.Tenant})
		d.SetChat(chat)
	})
}

// AskBots learns the bots of a chat.
func (d *Directory) AskBots(ctx context.Context, chat relay.ChatID, within time.Duration) error {
	ask := func(ctx context.Context) ([]Bot, error) { return d.api.ChatBots(ctx, chat) }
	return learn(ctx, d, botsOf(chat), within, ask, d.LearnChatBots)
}

// botsOf is the key of the question who a chat's bots are.
func botsOf(chat relay.ChatID) string { return "bots " + string(chat) }

// AskPeople learns the names of a chat's people by their open_id, union_id or user_id.
func (d *Directory) AskPeople(ctx context.Context, chat relay.ChatID, idType string, within time.Duration) error {
	ask := func(ctx context.Context) (map[string]string, error) { return d.api.ChatMembers(ctx, chat, idType) }
	return learn(ctx, d, "people "+idType+" "+string(chat), within, ask, func(names map[string]string) {
		for id, name := range names {
			d.LearnName(id, Who{Name: name})
		}
	})
}

// AskPerson learns the name of a person.
func (d *Directory) AskPerson(ctx context.Context, id relay.OpenID, within time.Duration) error {
	ask := func(ctx context.Context) (string, error) { return d.api.User(ctx, id) }
	return learn(ctx, d, "person "+string(id), within, ask,
		func(name string) { d.LearnName(string(id), Who{Name: name}) })
}

// AskMember learns whether the bot is in a chat, in two ways, since each needs another scope. An error is no answer;
// that of a question too many comes after ten at once and two a second.
func (d *Directory) AskMember(ctx context.Context, id relay.ChatID, within time.Duration) error {
	return d.Ask(ctx, "member "+string(id), within, func(ctx context.Context) error {
		if !d.members.Allow() {
			return errBusy
		}
		chat, chatErr := d.api.Chat(ctx, id) // its In is No or not known
		if chat.In == Unknown {
			in, err := d.api.InChat(ctx, id)
			if err != nil {
				return fmt.Errorf("whether the bot is in the chat: %w", errors.Join(err, chatErr))
			}
			chat.In = map[bool]Membership{false: No, true: Yes}[in]
		}
		d.SetChat(Chat{ID: id, In: chat.In})
		return nil
	})
}
