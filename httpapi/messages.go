package httpapi

import (
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

func (a *api) outbound(r *http.Request) (any, error) {
	var out relay.Outbound
	if err := readJSON(r, &out); err != nil {
		return nil, err
	}
	if out.Channel == relay.MailChannel {
		if a.Mail == nil {
			return nil, relay.Errorf(web.CodeMailboxOff, "this API has no mailbox")
		}
		return a.Mail.Outbound(r, out)
	}
	if err := out.Check(); err != nil {
		return nil, err
	}
	return a.Send(r.Context(), out)
}

func (a *api) inbound(r *http.Request) (any, error) {
	var heard relay.Heard
	if err := readChecked(r, &heard); err != nil {
		return nil, err
	}
	return a.Hear(r.Context(), heard, a.byPerson(r))
}

func (a *api) decide(r *http.Request) (any, error) {
	var q relay.Question
	if err := readChecked(r, &q); err != nil {
		return nil, err
	}
	return a.Decide(r.Context(), q)
}

// readChecked is readJSON followed by Check.
func readChecked(r *http.Request, v interface{ Check() error }) error {
	if err := readJSON(r, v); err != nil {
		return err
	}
	return v.Check()
}
