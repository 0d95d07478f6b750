package deps

import (
	_ "github.com/andybalholm/brotli"
	_ "github.com/larksuite/oapi-sdk-go/v3"
	_ "github.com/larksuite/oapi-sdk-go/v3/channel/normalize"
	_ "github.com/larksuite/oapi-sdk-go/v3/channel/outbound"
	_ "github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	_ "github.com/larksuite/oapi-sdk-go/v3/service/cardkit/v1"
	_ "github.com/larksuite/oapi-sdk-go/v3/ws"
	_ "golang.org/x/net/http/httpproxy"
	_ "golang.org/x/time/rate"
)
