package httpapi

import (
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// Unready is the API of a sidecar that cannot be opened yet: it reports that it
// is alive, and answers all other requests with the reason why it is not ready.
func Unready(reason string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/healthz" {
			web.WriteJSON(w, http.StatusOK, alive)
			return
		}
		web.WriteError(w, &relay.Error{Code: web.CodeNotReady, Message: reason})
	})
}
