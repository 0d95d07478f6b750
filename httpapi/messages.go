package httpapi

import (
	"net/http"

	"feishu-relay/relay"
)

func (a *api) outbound(w http.ResponseWriter, r *http.Request) {
	var out relay.Outbound
	err := readJSON(w, r, &out)
	if err == nil && out.Channel == mailChannel {
		a.outboundMail(w, r, out)
		return
	}
	if err == nil {
		err = out.Check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	sent, err := a.Send(r.Context(), out)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusAccepted, sent)
}

func (a *api) inbound(w http.ResponseWriter, r *http.Request) {
	var heard relay.Heard
	err := readJSON(w, r, &heard)
	if err == nil {
		err = heard.Check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	sent, err := a.Hear(r.Context(), heard)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusAccepted, sent)
}

func (a *api) decide(w http.ResponseWriter, r *http.Request) {
	var q relay.Question
	err := readJSON(w, r, &q)
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	decision, err := a.Decide(r.Context(), q)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, decision)
}
