package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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

// bootstrap makes the call that returns the address of a long connection (docs/feishu.md 1.1).
func bootstrap(ctx context.Context, client *http.Client, base *url.URL, query string, header http.Header, body []byte) (
	resp *http.Response, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	u := base.JoinPath(larkws.GenEndpointUri)
	u.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = header
	if resp, err = client.Do(req); err != nil {
		return nil, nil, feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp, answer, err
}

// Bootstrap passes a bootstrap call to Feishu, and Feishu's answer to the bot with the gateway's own WebSocket URL and
// short reconnect settings. An answer without a URL, such as a refusal, passes unchanged.
func (s *Server) Bootstrap(w http.ResponseWriter, r *http.Request) {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(callTimeout)) // fails for a recorder in a test
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBootstrap))
	_ = deadline.SetReadDeadline(time.Time{})
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, "the bootstrap call's body cannot be read")
		return
	}
	header := http.Header{}
	feishu.ForwardHeader(header, r.Header)
	header.Del("Accept-Encoding") // the answer is to be read
	resp, answer, err := bootstrap(r.Context(), s.client, s.Upstream, r.URL.RawQuery, header, body)
	if err != nil {
		if r.Context().Err() == nil {
			s.Logger.Warn("feishu cannot be reached for a long connection", "err", err)
			s.Counter("bootstrap_failed")
		}
		fail(w, http.StatusBadGateway, "Feishu cannot be reached")
		return
	}
	feishu.CopyHeader(w.Header(), resp.Header)
	if resp.StatusCode == http.StatusOK {
		ours, err := s.ours(r, answer, appOf(body))
		switch code := feishu.CodeOf(err); {
		case err == nil:
			answer = ours
			w.Header().Del("Content-Length")
		case code == codeWrongDomain:
			s.Logger.Error("feishu refused a bot's bootstrap call", "err", err, "fix", fixDomain)
		case code == 0:
			s.Logger.Warn("the answer to a bootstrap call cannot be read: the bot connects to feishu directly", "err", err)
			s.Counter("bootstrap_failed")
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer) // fails if the bot has gone
}

// ours is Feishu's answer with the gateway's URL in it. Feishu's is remembered for the WebSocket.
func (s *Server) ours(r *http.Request, answer []byte, c credentials) ([]byte, error) {
	endpoint, config, err := parseEndpoint(answer)
	if err != nil {
		return nil, err
	}
	var whole, data map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(answer, &whole), json.Unmarshal(whole["data"], &data)); err != nil {
		return nil, err
	}
	t := ticket{upstream: endpoint, app: c.AppID.Text, given: time.Now()}
	if config, t.ping, err = shorten(config, 0); err == nil {
		data["ClientConfig"] = config
	}
	data["URL"], _ = relay.Marshal(s.public(r) + endpoint.RequestURI()) // neither fails
	whole["data"], _ = relay.Marshal(data)
	s.tickets.Add(canonical(endpoint.RawQuery), t)
	s.Bootstrapped(c.AppID.Text, c.AppSecret.Text)
	s.Counter("bootstrapped")
	return relay.Marshal(whole)
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
	var scheme, host, path string
	if s.PublicURL != nil {
		scheme, host, path = s.PublicURL.Scheme, s.PublicURL.Host, strings.TrimRight(s.PublicURL.EscapedPath(), "/")
	} else {
		scheme, host = s.Address(r)
	}
	if scheme == "https" || scheme == "wss" {
		return "wss://" + host + path
	}
	return "ws://" + host + path
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
	v, err := url.ParseQuery(rawQuery)
	if err != nil {
		return rawQuery
	}
	return v.Encode()
}
