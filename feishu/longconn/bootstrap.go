package longconn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
	"feishu-relay/relay"
)

// maxBootstrap is the most bytes of the request's body; a larger one is refused with 413.
const maxBootstrap = 8 << 10

// Bootstrap passes a bootstrap call to Feishu, and Feishu's answer to the bot
// with the WebSocket's URL replaced by one of ours and short reconnect
// settings. An answer without such a URL, a refusal, goes back as it came.
func (s *Server) Bootstrap(w http.ResponseWriter, r *http.Request) {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(conn.CallTimeout)) // a recorder in a test has none
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
	if _, err := w.Write(answer); err == nil && len(answer) == conn.MaxAnswer { // the rest goes to the bot as it came
		_, _ = io.Copy(w, resp.Body) // the bot is gone or it is not: nothing to do either way
	}
}

// forward sends the bot's call to Feishu, with the headers it came with.
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

// replace returns the answer with our URL in it, and remembers Feishu's for the WebSocket.
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

// public is our address for WebSockets, as this request's sender knows it.
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

// credentials are what a bot bootstraps with; the secret is "" for one that has
// an assertion instead.
type credentials struct{ AppID, AppSecret string }

func credentialsOf(body []byte) credentials {
	var c struct{ AppID, AppSecret feishu.Once }
	err := json.Unmarshal(body, &c)
	if err != nil || c.AppID.Times != 1 || c.AppSecret.Times > 1 {
		return credentials{} // nobody's; Feishu answers what is wrong with it
	}
	return credentials{c.AppID.Text, c.AppSecret.Text}
}

// fail answers as Feishu would, with a code on which every SDK tries again and
// the data object that Node's needs (docs/feishu.md 1.1).
func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"code":1,"msg":%q,"data":{}}`, "feishu-relay: "+text)
}

// What a bot is to do about coming back, in seconds: with Feishu's own numbers
// (30 and 120) a restart of ours would leave it deaf for minutes (docs/feishu.md 1.7).
const (
	reconnectNonce    = 2
	reconnectInterval = 3
	pingInterval      = 120 // where Feishu says nothing; the SDKs' default
)

var errNotConfig = errors.New("not a client config")

// shorten makes the reconnect settings of a ClientConfig short, and returns its
// PingInterval. All four numbers are in what it returns, since the SDKs take
// a missing one for 0 (docs/feishu.md 1.4); ping is for where that one is missing. The rest stays as it
// was. Settings that are shorter already stay, and so does the interval where
// the bot stops after a number of retries, which would be over sooner.
func shorten(config []byte, ping int) (out []byte, seconds int, err error) {
	numbers := []struct {
		key   string
		value int // where it is missing
	}{
		{"ReconnectCount", -1}, {"ReconnectInterval", reconnectInterval}, {"ReconnectNonce", reconnectNonce},
		{"PingInterval", ping},
	}
	out, found := config, false
	for i := range numbers {
		n := &numbers[i]
		from, to, err := feishu.Member(out, n.key)
		if err != nil {
			return nil, 0, err
		}
		if from == to {
			continue
		}
		if n.value, err = strconv.Atoi(string(out[from:to])); err != nil {
			return nil, 0, errNotConfig
		}
		found = true
	}
	if !found {
		return nil, 0, errNotConfig
	}
	if v := &numbers[1].value; numbers[0].value < 0 && (*v > reconnectInterval || *v <= 0) {
		*v = reconnectInterval
	}
	if v := &numbers[2].value; *v > reconnectNonce || *v < 0 {
		*v = reconnectNonce
	}
	for _, n := range numbers {
		if out, err = feishu.SetMember(out, n.key, strconv.AppendInt(nil, int64(n.value), 10)); err != nil {
			return nil, 0, err
		}
	}
	return out, numbers[3].value, nil
}

const (
	maxTickets = 256             // bootstrap answers remembered; beyond, the oldest is forgotten
	ticketLife = 2 * time.Minute // from the answer to the WebSocket; every SDK connects at once
)

// ticket is what a bootstrap answer said, remembered until the bot connects.
type ticket struct {
	upstream *url.URL // Feishu's
	app      string
	ping     int // seconds
	given    time.Time
}

// tickets are the answers handed out, by the query of their URL.
type tickets struct {
	known *lru.Cache[string, ticket]
}

func newTickets() tickets {
	known, _ := lru.New[string, ticket](maxTickets) // fails only for a size below 1
	return tickets{known}
}

func (t tickets) add(tk ticket) { t.known.Add(canonical(tk.upstream.RawQuery), tk) }

// take returns the ticket of a WebSocket's query, which has an end and is used up.
func (t tickets) take(rawQuery string) (ticket, bool) {
	query := canonical(rawQuery)
	tk, ok := t.known.Peek(query)
	return tk, t.known.Remove(query) && ok && time.Since(tk.given) <= ticketLife
}

// find returns the ticket of a WebSocket's query, as often as it is asked for. A query that we did not hand
// out goes where the newest one does; its ticket has no app, since the app of that connection is unknown.
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

// canonical makes equal what a client may have written in another way.
func canonical(rawQuery string) string {
	v, err := url.ParseQuery(rawQuery)
	if err != nil {
		return rawQuery
	}
	return v.Encode()
}
