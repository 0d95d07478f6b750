package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// Saying is a message to send for a bot without its own Feishu client.
type Saying struct {
	ChatID   relay.ChatID    `json:"chat_id"`
	Content  string          `json:"content"` // plain text or Markdown; "@Name" mentions the agent of that name
	ReplyTo  relay.MessageID `json:"reply_to"`
	InThread bool            `json:"reply_in_thread"`
	Mentions []relay.Mention `json:"mentions"`
	// IdempotencyKey may also be the header Idempotency-Key. A repeat within an hour sends nothing.
	IdempotencyKey string `json:"idempotency_key"`
}

func (a *api) say(r *http.Request) (any, error) {
	if a.Say == nil {
		return nil, relay.Errorf(web.CodeNoConnector,
			"the sidecar holds no Feishu connection: set CONNECTOR=true, or let the bot send its messages itself")
	}
	var s Saying
	if err := readChecked(r, &s); err != nil {
		return nil, err
	}
	if s.IdempotencyKey == "" {
		s.IdempotencyKey = r.Header.Get("Idempotency-Key")
	}
	return a.Say(r.Context(), s)
}

// Check returns a [*relay.Error] if a field is missing or wrong.
func (s *Saying) Check() error {
	if s.ChatID == "" {
		return web.Invalid("chat_id is missing")
	}
	if strings.TrimSpace(s.Content) == "" {
		return web.Invalid("content is missing or empty")
	}
	return cmp.Or(relay.CheckField("chat_id", s.ChatID), relay.CheckField("reply_to", s.ReplyTo),
		relay.CheckField("idempotency_key", s.IdempotencyKey))
}

// ca serves the certificate authority that a bot's SDK must trust for TLS with
// the gateway.
func (a *api) ca(w http.ResponseWriter, r *http.Request) {
	if len(a.CA) == 0 {
		web.WriteError(w, relay.Errorf(web.CodeNoCA,
			"the gateway makes its own certificates only with GATEWAY_TLS=auto"))
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(a.CA) // fails if the caller is gone
}
