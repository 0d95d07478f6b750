package conn

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

const (
	// BootstrapPath is where a client asks for the address of its long connection.
	BootstrapPath = larkws.GenEndpointUri
	// CallTimeout is for the bootstrap call, and for opening the WebSocket: as long as the Node SDK waits
	// (docs/feishu.md 1.1).
	CallTimeout = 15 * time.Second
	// WriteTimeout is for one message on a WebSocket; then the connection is ended.
	WriteTimeout = 10 * time.Second
	// MaxAnswer is the most bytes of Feishu's answer to the bootstrap call that are read.
	MaxAnswer = 1 << 20
	// MaxMessage is the most bytes of a WebSocket message; a larger one ends the connection.
	MaxMessage = 16 << 20
)

// Endpoint is where Feishu wants to be connected to.
type Endpoint struct {
	URL    *url.URL
	Config json.RawMessage // a ClientConfig; nil without one
}

// ParseEndpoint reads Feishu's answer to a bootstrap call (docs/feishu.md 1.1). A refusal is an error with a
// [*feishu.CodeError] in it.
func ParseEndpoint(answer []byte) (e Endpoint, err error) {
	data, err := feishu.ReadAnswer[struct {
		URL          string          `json:"URL"`
		ClientConfig json.RawMessage `json:"ClientConfig"`
	}](answer)
	if err != nil {
		return e, err
	}
	u, err := url.Parse(data.URL)
	if err != nil || u.Host == "" || u.Scheme != "ws" && u.Scheme != "wss" {
		return e, errors.New("the answer names no address of a WebSocket")
	}
	return Endpoint{u, data.ClientConfig}, nil
}

// ServiceID returns what a client puts into its pings (docs/feishu.md 1.2); 0 without one.
func ServiceID(endpoint *url.URL) int32 {
	n, _ := strconv.ParseInt(endpoint.Query().Get(larkws.ServiceID), 10, 32)
	return int32(n)
}

// Dial opens the WebSocket of an endpoint. pinged, which may be nil, is called for each of
// Feishu's WebSocket pings. Where Feishu has refused, its answer comes with the error.
func Dial(ctx context.Context, client *http.Client, endpoint *url.URL, pinged func()) (*websocket.Conn, *http.Response,
	error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, endpoint.String(), &websocket.DialOptions{
		HTTPClient: client,
		HTTPHeader: http.Header{"User-Agent": nil}, // the SDKs send none
		OnPingReceived: func(context.Context, []byte) bool {
			if pinged != nil {
				pinged()
			}
			return true
		},
	})
	if err != nil {
		if resp != nil && resp.StatusCode == http.StatusSwitchingProtocols {
			resp = nil
		}
		return nil, resp, feishu.WithoutURL(err)
	}
	ws.SetReadLimit(MaxMessage)
	return ws, nil, nil
}

// Write writes a message, and cuts the connection where that takes longer than WriteTimeout.
func Write(ws *websocket.Conn, kind websocket.MessageType, message []byte) error {
	late := time.AfterFunc(WriteTimeout, func() { _ = ws.CloseNow() })
	defer late.Stop()
	return ws.Write(context.Background(), kind, message)
}
