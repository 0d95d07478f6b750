package httpapi

import (
	"net/http"
	"strings"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// schemas serves GET /v1/mailbox/schemas: the names of the JSON Schemas.
func (a *api) schemas(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string][]string{"schemas": list(mailbox.SchemaNames())})
}

// schema serves one, by its name with or without ".json".
func (a *api) schema(w http.ResponseWriter, r *http.Request) {
	text, ok := mailbox.Schema(strings.TrimSuffix(r.PathValue("name"), ".json"))
	if !ok {
		writeError(w, relay.Errorf(codeNotFound, "there are %s", strings.Join(mailbox.SchemaNames(), ", ")))
		return
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(text) // the caller has gone
}
