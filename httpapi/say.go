package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"feishu-relay/relay"
)

// Saying is what a bot without a Feishu client of its own wants said.
type Saying struct {
	ChatID         relay.ChatID    `json:"chat_id"`
	Content        string          `json:"content"` // plain text or Markdown; "@Name" becomes a mention where the name is known
	ReplyTo        relay.MessageID `json:"reply_to"`
	InThread       bool            `json:"reply_in_thread"`
	Mentions       []relay.Mention `json:"mentions"`
	IdempotencyKey string          `json:"idempotency_key"` // also the header Idempotency-Key; the same one within an hour says nothing twice
}

func (a *api) say(w http.ResponseWriter, r *http.Request) {
	if a.Say == nil {
		a.fail(w, r, relay.Errorf(codeNoConnector, "the sidecar holds no Feishu connection: set CONNECTOR=true, or let the bot send by itself"))
		return
	}
	var s Saying
	err := readJSON(w, r, &s)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if s.IdempotencyKey == "" {
		s.IdempotencyKey = r.Header.Get("Idempotency-Key")
	}
	sent, err := a.Say(r.Context(), s)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, sent)
}

func (s *Saying) check() error {
	if s.ChatID == "" {
		return invalid("chat_id is missing")
	}
	if strings.TrimSpace(s.Content) == "" {
		return invalid("content is missing or empty")
	}
	return cmp.Or(relay.CheckField("chat_id", s.ChatID), relay.CheckField("reply_to", s.ReplyTo),
		relay.CheckField("idempotency_key", s.IdempotencyKey))
}

// ca hands out what a bot's SDK has to trust to speak TLS with the gateway.
func (a *api) ca(w http.ResponseWriter, r *http.Request) {
	if len(a.CA) == 0 {
		a.fail(w, r, relay.Errorf(codeNoCA, "the gateway makes certificates of its own only with GATEWAY_TLS=auto"))
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(a.CA) // the caller has gone
}
