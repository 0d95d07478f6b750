package httpapi

import (
	"context"
	"errors"
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/relay"
)

// Deliver waits for a reader and writes in to it. It returns when it is delivered
// or, to a reader that acknowledges, written.
func (s *Stream) Deliver(ctx context.Context, in relay.Inbound) error {
	for {
		s.mu.Lock()
		arrived, closed := s.arrived, s.closed
		s.mu.Unlock()
		if closed {
			return web.ErrStopping
		}
		written, ended := s.Start(ctx, in)
		select {
		case <-written:
			return nil
		case err := <-ended:
			if !errors.Is(err, ErrNoReader) {
				return err
			}
		}
		if s.Connected() {
			continue
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Start offers in. written is closed when the reader has it and has to acknowledge
// it; then the offer goes on, whatever becomes of ctx.
func (s *Stream) Start(ctx context.Context, in relay.Inbound) (written <-chan struct{}, ended <-chan error) {
	id, _ := in.Metadata["relay_msg_id"].(relay.MessageID)
	wrote, end := make(chan struct{}), make(chan error, 1)
	offering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	go func() {
		defer cancel()
		end <- s.Offer(offering, 0, id, in, func() {
			stop()
			close(wrote)
		})
	}()
	return wrote, end
}

// Routes are the routes of an API without mail.
func Routes() []web.Route {
	a := &api{web: &webapi.API{}}
	a.mount(http.NewServeMux(), http.NewServeMux())
	return a.routes
}
