package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

const (
	// callTimeout is for the bootstrap call, and for opening the WebSocket: as long as the Node SDK waits (docs/feishu.md
	// 1.1).
	callTimeout  = 15 * time.Second
	maxBootstrap = 8 << 10         // bytes of the request's body; a larger one is refused with 413
	maxAnswer    = 1 << 20         // bytes of Feishu's answer that are read
	maxTickets   = 256             // bootstrap answers remembered; beyond, the oldest is forgotten
	ticketLife   = 2 * time.Minute // from the answer to the WebSocket; every SDK connects at once
)

// Bootstrap passes a bootstrap call to Feishu (docs/feishu.md 1.1), and Feishu's answer to the bot with the gateway's
// own WebSocket URL and short reconnect settings. An answer without a URL, such as a refusal, passes unchanged.
func (s *Server) Bootstrap(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBootstrap))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, "the bootstrap call's body cannot be read")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Path, p.Out.URL.RawPath = larkws.GenEndpointUri, "" // the Node SDK doubles slashes
			p.SetURL(s.Upstream)
			p.Out.Header.Del("Accept-Encoding") // the answer is to be read
			p.Out.Body, p.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		Transport: s.client.Transport,
		ModifyResponse: func(resp *http.Response) error {
			answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
			_ = resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				answer = s.answer(r, answer, appOf(body))
				resp.Header.Set("Content-Length", strconv.Itoa(len(answer)))
			}
			resp.Body = io.NopCloser(bytes.NewReader(answer))
			return err
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if r.Context().Err() == nil {
				s.Logger.Warn("feishu cannot be reached for a long connection", "err", feishu.WithoutURL(err))
				s.Counter("bootstrap_failed")
			}
			fail(w, http.StatusBadGateway, "Feishu cannot be reached")
		},
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// answer is what the bot gets of Feishu's answer: with the gateway's URL in it. Feishu's is remembered for the
// WebSocket.
func (s *Server) answer(r *http.Request, answer []byte, c credentials) []byte {
	endpoint, config, err := parseEndpoint(answer)
	var whole, data map[string]json.RawMessage
	if err == nil {
		err = errors.Join(json.Unmarshal(answer, &whole), json.Unmarshal(whole["data"], &data))
	}
	switch code := feishu.CodeOf(err); {
	case code == codeWrongDomain:
		s.Logger.Error("feishu refused a bot's bootstrap call", "err", err, "fix", fixDomain)
		return answer
	case code != 0:
		return answer
	case err != nil:
		s.Logger.Warn("the answer to a bootstrap call cannot be read: the bot connects to feishu directly", "err", err)
		s.Counter("bootstrap_failed")
		return answer
	}
	t := ticket{upstream: endpoint, app: c.AppID.Text, given: time.Now()}
	if config, t.ping, err = shorten(config, 0); err == nil {
		data["ClientConfig"] = config
	}
	data["URL"], _ = relay.Marshal(s.public(r) + endpoint.RequestURI()) // neither fails, as all is JSON or a text
	whole["data"], _ = relay.Marshal(data)
	s.tickets.Add(canonical(endpoint.RawQuery), t)
	s.Bootstrapped(c.AppID.Text, c.AppSecret.Text)
	s.Counter("bootstrapped")
	answer, _ = relay.Marshal(whole)
	return answer
}

// parseEndpoint reads Feishu's answer to a bootstrap call (docs/feishu.md 1.1): the address of the WebSocket and a
// ClientConfig, nil without one. A refusal is an error with a [*feishu.CodeError] in it.
func parseEndpoint(answer []byte) (endpoint *url.URL, config json.RawMessage, err error) {
	data, err := feishu.ReadAnswer[struct {
		URL          string          `json:"URL"`
		ClientConfig json.RawMessage `json:"ClientConfig"`
	}](answer)
	if err != nil {
		return nil, nil, err
	}
	endpoint, err = url.Parse(data.URL)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "ws" && endpoint.Scheme != "wss" {
		return nil, nil, errors.New("the answer has no WebSocket address")
	}
	return endpoint, data.ClientConfig, nil
}

// serviceID returns the service id of a client's pings (docs/feishu.md 1.2); 0 without one.
func serviceID(endpoint *url.URL) int32 {
	n, _ := strconv.ParseInt(endpoint.Query().Get(larkws.ServiceID), 10, 32)
	return int32(n)
}

// public returns the gateway's WebSocket address for the sender of a request.
func (s *Server) public(r *http.Request) string {
	u := url.URL{Host: r.Host}
	if s.PublicURL != nil {
		u = *s.PublicURL
	} else if s.Address != nil {
		u.Scheme, u.Host = s.Address(r)
	}
	scheme := map[bool]string{true: "wss", false: "ws"}[u.Scheme == "https" || u.Scheme == "wss"]
	return scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/")
}

// credentials are those of a bootstrap call; the secret is "" in a call with an assertion instead.
type credentials struct{ AppID, AppSecret feishu.Once }

// appOf reads the body of a bootstrap call.
func appOf(body []byte) (c credentials) {
	if json.Unmarshal(body, &c) != nil || c.AppID.Times != 1 || c.AppSecret.Times > 1 {
		return credentials{} // invalid: Feishu refuses the call
	}
	return c
}

// fail answers with a code on which every SDK tries again (docs/feishu.md 1.1).
func fail(w http.ResponseWriter, status int, text string) { feishu.Fail(w, status, 1, text) }

// The reconnect settings for a bot, in seconds: with Feishu's own (30 and 120) it would receive nothing for minutes
// after a restart of the sidecar (docs/feishu.md 1.7).
const (
	reconnectNonce    = 2
	reconnectInterval = 3
)

// shorten returns a ClientConfig with short reconnect settings, and its PingInterval in seconds. All four numbers are
// in the result, since the SDKs read a missing one as 0 (docs/feishu.md 1.4); a missing PingInterval is ping, or the
// SDKs' default for 0. Settings that are shorter already stay, and so does the interval if the bot stops after a
// number of retries, which would end sooner.
func shorten(config []byte, ping int64) (out []byte, seconds int64, err error) {
	if ping <= 0 {
		ping = int64(defaultPing / time.Second)
	}
	c := larkws.ClientConfig{ReconnectCount: -1, ReconnectInterval: reconnectInterval, ReconnectNonce: reconnectNonce,
		PingInterval: int(ping)}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, ping, err
	}
	if c.ReconnectCount < 0 && (c.ReconnectInterval > reconnectInterval || c.ReconnectInterval <= 0) {
		c.ReconnectInterval = reconnectInterval
	}
	if c.ReconnectNonce > reconnectNonce || c.ReconnectNonce < 0 {
		c.ReconnectNonce = reconnectNonce
	}
	out, err = relay.Marshal(map[string]int{"ReconnectCount": c.ReconnectCount, "ReconnectInterval": c.ReconnectInterval,
		"ReconnectNonce": c.ReconnectNonce, "PingInterval": c.PingInterval})
	return out, int64(c.PingInterval), err
}

// ticket is what a bootstrap answer contained, remembered until the bot connects.
type ticket struct {
	upstream *url.URL // Feishu's
	app      string
	ping     int64 // seconds
	given    time.Time
}

// ticket returns that of a WebSocket's query. It may be used again on loopback, where a bot may come back late, and
// elsewhere once and for ticketLife.
func (s *Server) ticket(rawQuery string) (ticket, bool) {
	query := canonical(rawQuery)
	t, ok := s.tickets.Peek(query)
	if s.Loopback {
		return t, ok
	}
	return t, s.tickets.Remove(query) && ok && time.Since(t.given) <= ticketLife
}

// canonical returns the one form of a query that a client may have encoded in another way.
func canonical(rawQuery string) string {
	v, _ := url.ParseQuery(rawQuery) // without what cannot be read
	return v.Encode()
}
