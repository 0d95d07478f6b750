package feishusim

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Limits of the recorded requests; beyond them the oldest are dropped.
const (
	maxRequests     = 5_000
	maxRequestBytes = 64 << 20 // bytes of all bodies
	maxRecordedBody = maxBody  // bytes of a body; the rest is only counted and hashed
)

// Request is a call as received, for comparisons byte by byte.
type Request struct {
	Time   time.Time   `json:"time"`
	Method string      `json:"method"`
	URI    string      `json:"uri"` // path and query as in the request
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body,omitempty"` // the first MiB
	Size   int64       `json:"size"`           // of the whole body
	SHA256 string      `json:"sha256"`         // of the whole body
}

// Requests returns the calls of the apps, in the order of their answers: REST,
// bootstrap calls and upgrades to a WebSocket, secrets included.
func (s *Server) Requests() []Request {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	return slices.Clone(s.requests.all)
}

// ForgetRequests empties the list of [Server.Requests].
func (s *Server) ForgetRequests() {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	s.requests.all, s.requests.bytes = nil, 0
}

type recorder struct {
	mu    sync.Mutex
	all   []Request
	bytes int
}

// recording is a request that is still being read.
type recording struct {
	to  *recorder
	sum hash.Hash
	req Request
}

func (s *Server) record(r *http.Request) *recording {
	return &recording{&s.requests, sha256.New(), Request{
		Time: time.Now(), Method: r.Method, URI: r.RequestURI, Host: r.Host, Header: r.Header.Clone(),
	}}
}

// Write records a part of the body.
func (r *recording) Write(b []byte) (int, error) {
	_, _ = r.sum.Write(b) // never fails
	r.req.Size += int64(len(b))
	r.req.Body = append(r.req.Body, b[:min(len(b), maxRecordedBody-len(r.req.Body))]...)
	return len(b), nil
}

type teed struct {
	io.Reader
	io.Closer
}

func (r *recording) tee(body io.ReadCloser) io.ReadCloser {
	return teed{io.TeeReader(body, r), body}
}

// finish reads the rest of an upload's body, and records the request.
func (r *recording) finish(req *http.Request) {
	if t, ok := req.Body.(teed); ok {
		_, _ = io.Copy(io.Discard, io.LimitReader(t, maxFile)) // fails if the caller is gone
	}
	r.req.SHA256 = hex.EncodeToString(r.sum.Sum(nil))
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	r.to.all = append(r.to.all, r.req)
	r.to.bytes += len(r.req.Body)
	for len(r.to.all) > maxRequests || r.to.bytes > maxRequestBytes {
		r.to.bytes -= len(r.to.all[0].Body)
		r.to.all = r.to.all[1:]
	}
}
