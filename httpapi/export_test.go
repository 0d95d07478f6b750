package httpapi

import (
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
)

// Routes are the routes of an API without mail.
func Routes() []web.Route {
	a := &api{web: &webapi.API{}}
	a.mount(http.NewServeMux(), http.NewServeMux())
	return a.routes
}
