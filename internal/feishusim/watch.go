package feishusim

// watchBuffer is how many activities a watcher may fall behind; beyond it it
// loses some.
const watchBuffer = 1024

// Activity is an event in the simulation.
type Activity struct {
	// Kind is message, edit (of a message or its card), recall, reaction, ready (of a connection, for events),
	// disconnected, delivery or acked.
	Kind     string    `json:"kind"`
	App      string    `json:"app_id,omitempty"`
	Message  *Message  `json:"message,omitempty"` // its state at that time
	Delivery *Delivery `json:"delivery,omitempty"`
}

// Watch returns the activities from now on, until stop is called. A watcher
// that falls behind by 1,024 activities loses some. The channel is never
// closed.
func (s *Server) Watch() (activities <-chan Activity, stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	ch := make(chan Activity, watchBuffer)
	s.watchers[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, ch)
	}, nil
}

// announce sends a to the watchers. The caller holds s.mu.
func (s *Server) announce(a Activity) {
	for ch := range s.watchers {
		select {
		case ch <- a:
		default: // the watcher is behind
		}
	}
}
