package mcptools

import (
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxRequests is the most requests that are served at once; one more is
// answered 503, which clients try again.
const maxRequests = 64

// Handler serves s as streamable HTTP. It lets in everybody: put it behind what
// decides who may call.
//
// It keeps no sessions. Nothing here needs one, since the server never asks a
// client for anything; and a client that has been introduced goes on as if
// nothing had happened when the sidecar was restarted, whereas one with a
// session is told that it is gone, and many give up then. So there are none to
// bound or to time out either. A session id that a client sends is ignored.
func Handler(s *mcp.Server) http.Handler {
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		JSONResponse:                 true,
		PropagateRequestCancellation: true, // an inbox is not emptied for a client that has gone
		DisableLocalhostProtection:   true, // it would refuse a proxy's requests, with a token too
	})
	slots := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			serve.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at once, try again", http.StatusServiceUnavailable)
		}
	})
}
