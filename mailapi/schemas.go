package mailapi

import (
	"net/http"
	"strings"

	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// schemas serves GET /v1/mailbox/schemas: the names of the JSON Schemas.
func (a *API) schemas(*http.Request) (any, error) {
	return map[string][]string{"schemas": web.List(mailbox.SchemaNames())}, nil
}

// schema serves one of them, by its name with or without ".json".
func (*API) schema(w http.ResponseWriter, r *http.Request) {
	text, ok := mailbox.Schema(strings.TrimSuffix(r.PathValue("name"), ".json"))
	if !ok {
		web.WriteError(w, relay.Errorf(web.CodeNotFound, "there are %s", strings.Join(mailbox.SchemaNames(), ", ")))
		return
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(text) // fails if the caller is gone
}
