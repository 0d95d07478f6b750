package longconn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
	"feishu-relay/relay"
)

// maxBootstrap is the most bytes of the request's body; a larger one is refused with 413.
const maxBootstrap = 8 << 10

// Bootstrap passes a bootstrap call to Feishu, and Feishu's answer to the bot
// with the gateway's own WebSocket URL and short reconnect
// settings. An answer without a URL, such as a refusal, passes unchanged.
func (s *Server) Bootstrap(w http.ResponseWriter, r *http.Request) {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(conn.CallTimeout)) // fails for a recorder in a test
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBootstrap))
	_ = deadline.SetReadDeadline(time.Time{})
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		fail(w, status, "the bootstrap call's body cannot be read")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), conn.CallTimeout)
	defer cancel()
	resp, err := s.forward(ctx, r, body)
	if err != nil {
		if r.Context().Err() == nil {
			s.Logger.Warn("feishu cannot be reached for a long connection", "err", feishu.WithoutURL(err))
			s.Counter(countedBootstrapFailed)
		}
		fail(w, http.StatusBadGateway, "Feishu cannot be reached")
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, conn.MaxAnswer))
	if err != nil {
		s.Counter(countedBootstrapFailed)
		fail(w, http.StatusBadGateway, "Feishu's answer broke off")
		return
	}
	feishu.CopyHeader(w.Header(), resp.Header)
	if resp.StatusCode == http.StatusOK {
		ours, err := s.replace(r, resp.Header.Get("Content-Encoding"), answer, credentialsOf(body))
		if feishu.CodeOf(err) == conn.CodeWrongDomain {
			s.Logger.Error("feishu refused a bot's bootstrap call", "err", err, "fix", conn.FixDomain)
		}
		if _, refused := errors.AsType[*feishu.CodeError](err); err != nil && !refused {
			s.Logger.Warn("the answer to a bootstrap call cannot be read: the bot connects to feishu directly", "err", err)
			s.Counter(countedBootstrapFailed)
		} else if err == nil {
			answer = ours
			w.Header().Del("Content-Encoding")
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		}
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := w.Write(answer); err == nil && len(answer) == conn.MaxAnswer { // the rest passes unread
		_, _ = io.Copy(w, resp.Body) // fails if either side is gone
	}
}

// forward sends the bot's call to Feishu, with the bot's headers.
func (s *Server) forward(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	u := s.Upstream.JoinPath(conn.BootstrapPath)
	u.RawQuery = r.URL.RawQuery
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	feishu.ForwardHeader(req.Header, r.Header)
	feishu.AcceptOnly(req.Header, "gzip", "deflate", "identity")
	return s.client.Do(req)
}

// replace returns the answer with the gateway's URL in it, and remembers Feishu's for the WebSocket.
func (s *Server) replace(r *http.Request, encoding string, answer []byte, c credentials) ([]byte, error) {
	unpacked, err := feishu.Decoder(encoding, answer)
	if err == nil {
		answer, err = io.ReadAll(io.LimitReader(unpacked, conn.MaxAnswer))
	}
	if err != nil {
		return nil, err
	}
	theirs, err := conn.ParseEndpoint(answer)
	if err != nil {
		return nil, err
	}
	ours, err := relay.Marshal(s.public(r) + theirs.URL.RequestURI())
	if err != nil {
		return nil, err
	}
	from, to, err := feishu.Member(answer, "data")
	if err != nil {
		return nil, err
	}
	data, err := feishu.SetMember(answer[from:to:to], "URL", ours)
	if err != nil {
		return nil, err
	}
	config, ping, err := shorten(theirs.Config, pingInterval)
	if err != nil {
		ping = pingInterval
	} else if data, err = feishu.SetMember(data, "ClientConfig", config); err != nil {
		return nil, err
	}
	s.tickets.add(ticket{upstream: theirs.URL, app: c.AppID, ping: ping, given: time.Now()})
	s.Bootstrapped(c.AppID, c.AppSecret)
	s.Counter(countedBootstrapped)
	return slices.Concat(answer[:from], data, answer[to:]), nil
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

// credentials are those of a bootstrap call; the secret is "" in a call with
// an assertion instead.
type credentials struct{ AppID, AppSecret string }

func credentialsOf(body []byte) credentials {
	var c struct{ AppID, AppSecret feishu.Once }
	err := json.Unmarshal(body, &c)
	if err != nil || c.AppID.Times != 1 || c.AppSecret.Times > 1 {
		return credentials{} // invalid: Feishu refuses the call
	}
	return credentials{c.AppID.Text, c.AppSecret.Text}
}

// fail answers with a code on which every SDK tries again (docs/feishu.md 1.1).
func fail(w http.ResponseWriter, status int, text string) { feishu.Fail(w, status, 1, text) }

// The reconnect settings for a bot, in seconds: with Feishu's own (30 and 120)
// it would receive nothing for minutes after a restart of the sidecar (docs/feishu.md 1.7).
const (
	reconnectNonce    = 2
	reconnectInterval = 3
	pingInterval      = 120 // if Feishu gives none; the SDKs' default
)

var errNotConfig = errors.New("not a client config")

// shorten returns a ClientConfig with short reconnect settings, and its
// PingInterval. All four numbers are in the result, since the SDKs read
// a missing one as 0 (docs/feishu.md 1.4); a missing PingInterval is ping. The rest is
// unchanged. Settings that are shorter already stay, and so does the interval if
// the bot stops after a number of retries, which would end sooner.
func shorten(config []byte, ping int) (out []byte, seconds int, err error) {
	names := []string{"ReconnectCount", "ReconnectInterval", "ReconnectNonce", "PingInterval"}
	var given map[string]json.RawMessage
	isGiven := func(name string) bool { return given[name] != nil }
	c := larkws.ClientConfig{ReconnectCount: -1, ReconnectInterval: reconnectInterval, ReconnectNonce: reconnectNonce,
		PingInterval: ping}
	if json.Unmarshal(config, &given) != nil || json.Unmarshal(config, &c) != nil || !slices.ContainsFunc(names, isGiven) {
		return nil, 0, errNotConfig
	}
	if c.ReconnectCount < 0 && (c.ReconnectInterval > reconnectInterval || c.ReconnectInterval <= 0) {
		c.ReconnectInterval = reconnectInterval
	}
	if c.ReconnectNonce > reconnectNonce || c.ReconnectNonce < 0 {
		c.ReconnectNonce = reconnectNonce
	}
	out = config
	for i, n := range []int{c.ReconnectCount, c.ReconnectInterval, c.ReconnectNonce, c.PingInterval} {
		if out, err = feishu.SetMember(out, names[i], strconv.AppendInt(nil, int64(n), 10)); err != nil {
			return nil, 0, err
		}
	}
	return out, c.PingInterval, nil
}

const (
	maxTickets = 256             // bootstrap answers remembered; beyond, the oldest is forgotten
	ticketLife = 2 * time.Minute // from the answer to the WebSocket; every SDK connects at once
)

// ticket is what a bootstrap answer contained, remembered until the bot connects.
type ticket struct {
	upstream *url.URL // Feishu's
	app      string
	ping     int // seconds
	given    time.Time
}

// tickets are those of recent bootstrap answers, by the query of their URL.
type tickets struct {
	known *lru.Cache[string, ticket]
}

func newTickets() tickets {
	known, _ := lru.New[string, ticket](maxTickets) // fails only for a size below 1
	return tickets{known}
}

func (t tickets) add(tk ticket) { t.known.Add(canonical(tk.upstream.RawQuery), tk) }

// take removes and returns the ticket of a WebSocket's query, unless it has expired.
func (t tickets) take(rawQuery string) (ticket, bool) {
	query := canonical(rawQuery)
	tk, ok := t.known.Peek(query)
	return tk, t.known.Remove(query) && ok && time.Since(tk.given) <= ticketLife
}

// find returns the ticket of a WebSocket's query. An unknown query is used with the URL of the newest ticket;
// the result has no app, since that of the connection is unknown.
func (t tickets) find(rawQuery string) (tk ticket, ok bool) {
	if tk, ok = t.known.Peek(canonical(rawQuery)); ok {
		return tk, true
	}
	for _, query := range t.known.Keys() { // from the oldest to the newest
		if newest, known := t.known.Peek(query); known {
			guess := *newest.upstream
			guess.RawQuery = rawQuery
			tk, ok = ticket{upstream: &guess, ping: newest.ping}, true
		}
	}
	return tk, ok
}

// canonical returns the one form of a query that a client may have encoded in another way.
func canonical(rawQuery string) string {
	v, err := url.ParseQuery(rawQuery)
	if err != nil {
		return rawQuery
	}
	return v.Encode()
}
