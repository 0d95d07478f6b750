package sidecar

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A bot that reads an event and never answers is waited for no longer than DELIVERY_TIMEOUT.
func TestHandOverToABotThatNeverAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Hour
		ended := make(chan error, 1)
		err := handOver(t.Context(), time.Now().Add(time.Minute), limit, func(ctx context.Context, written func()) error {
			written()
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		})
		if err != nil {
			t.Fatalf("written, and not answered: %v", err)
		}
		time.Sleep(limit - time.Second)
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("the answer is not waited for any longer, before the limit")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(ended) != 1 {
			t.Error("the answer is still waited for")
		}
	})
}

// What is not written in time is not given to this bot any more.
func TestHandOverInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Minute)
		err := handOver(t.Context(), until, time.Hour, func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || time.Now().Before(until) {
			t.Errorf("not written: %v, want that it was cancelled at its end", err)
		}
		err = handOver(t.Context(), time.Now().Add(time.Minute), time.Hour, func(ctx context.Context, written func()) error {
			<-ctx.Done()
			written() // in the moment in which it is cancelled
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("written at the last moment: %v", err)
		}
	})
}
