package feishusim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// stepWithin is how long a step of a [Scenario] waits by default.
const stepWithin = time.Minute

// Scenario is apps, users and groups and a list of steps, as JSON:
//
//	{"apps":[{"name":"BotA"}],"users":["Ann"],
//	 "groups":[{"name":"Lab","members":["BotA","Ann"]}],
//	 "steps":[{"connected":"BotA"},
//	          {"say":{"chat":"Lab","user":"Ann","text":"@BotA hello"}},
//	          {"wait":{"from":"BotA","contains":"hello"},"seconds":30},
//	          {"fault":{"kind":"drop"}},{"pause_ms":500}]}
type Scenario struct {
	Apps   []App    `json:"apps"`
	Users  []string `json:"users"`
	Groups []Group  `json:"groups"`
	Steps  []Step   `json:"steps"`
}

// Step is one step of a scenario; one of its first five fields is set.
type Step struct {
	Connected string     `json:"connected,omitempty"` // waits for this app's long connection
	Say       *Utterance `json:"say,omitempty"`
	Wait      *struct {
		From     string `json:"from"`
		Contains string `json:"contains"`
	} `json:"wait,omitempty"` // for a message since the last say
	Fault   *Fault  `json:"fault,omitempty"`
	PauseMS int     `json:"pause_ms,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // how long to wait; 0: a minute
}

// ParseScenario reads a scenario; unknown fields are an error.
func ParseScenario(data []byte) (Scenario, error) {
	var sc Scenario
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&sc); err != nil {
		return Scenario{}, fmt.Errorf("scenario: %w", err)
	}
	return sc, nil
}

// Build adds the scenario's apps, users and groups.
func (s *Server) Build(sc Scenario) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range sc.Apps {
		if _, err := s.addApp(a); err != nil {
			return err
		}
	}
	for _, name := range sc.Users {
		if _, err := s.addUser(name); err != nil {
			return err
		}
	}
	for _, g := range sc.Groups {
		if _, err := s.addGroup(g); err != nil {
			return err
		}
	}
	return nil
}

// Play runs the steps one after the other. It ends with the first that fails, or
// with ctx.
func (s *Server) Play(ctx context.Context, steps []Step) error {
	since := uint64(0)
	for i, step := range steps {
		if err := s.step(ctx, step, &since); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

func (s *Server) step(ctx context.Context, step Step, since *uint64) error {
	within := stepWithin
	if step.Seconds > 0 {
		within = time.Duration(step.Seconds * float64(time.Second))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch {
	case step.Connected != "":
		app, err := locked(s, func() (string, error) { return s.entity(step.Connected) })
		if err != nil {
			return err
		}
		return s.WaitConnected(ctx, app, 1)
	case step.Say != nil:
		s.mu.Lock()
		*since = s.revision
		s.mu.Unlock()
		_, err := s.Post(*step.Say)
		return err
	case step.Wait != nil:
		from, err := locked(s, func() (string, error) { return s.entity(step.Wait.From) })
		if err != nil {
			return err
		}
		return s.until(ctx, func() bool {
			for _, m := range s.sent {
				if m.revision > *since && m.Sender == from && strings.Contains(m.Text, step.Wait.Contains) {
					return true
				}
			}
			return false
		})
	case step.Fault != nil:
		return s.addFault(*step.Fault)
	}
	select {
	case <-time.After(time.Duration(step.PauseMS) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
