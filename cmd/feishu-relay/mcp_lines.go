package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxMCPLine is the most bytes of a line. One that is longer is not read but
// answered with an error. It leaves room for what a call may hold.
const maxMCPLine = 4 << 20

// messages reads lines and passes on those that are JSON-RPC messages. The
// others it answers itself, since for the SDK the first of them is the end,
// also of the calls that are not answered yet. A batch, which no later MCP than
// that of 2025-03-26 has, is taken apart, and answered one by one.
type messages struct {
	in   *bufio.Reader
	out  io.Writer // takes a line at each Write, from this and from others
	rest []byte    // read and not passed on
	err  error     // follows rest
}

func newMessages(in io.Reader, out io.Writer) *messages {
	return &messages{in: bufio.NewReaderSize(in, 64<<10), out: out}
}

func (m *messages) Read(p []byte) (n int, err error) {
	for len(m.rest) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		m.next()
	}
	n = copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// next reads a line.
func (m *messages) next() {
	var line []byte
	line, tooLong, err := m.line()
	m.err = err
	line = bytes.TrimSpace(line)
	switch {
	case tooLong:
		m.refuse(nil, jsonrpc.CodeParseError, fmt.Sprintf("the line is longer than %d bytes", maxMCPLine))
	case len(line) == 0:
	case !json.Valid(line):
		m.refuse(nil, jsonrpc.CodeParseError, "the line is no JSON: want one JSON-RPC message a line")
	case line[0] == '[':
		m.batch(line)
	default:
		m.message(line)
	}
}

// line reads up to a newline or the end, and no more than maxMCPLine of it.
func (m *messages) line() (line []byte, tooLong bool, err error) {
	for {
		piece, err := m.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(piece) > maxMCPLine; tooLong {
			line = nil
		} else {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

func (m *messages) batch(line []byte) {
	var all []json.RawMessage
	if err := json.Unmarshal(line, &all); err != nil || len(all) == 0 {
		m.refuse(nil, jsonrpc.CodeInvalidRequest, "the batch is empty")
		return
	}
	for _, one := range all {
		m.message(one)
	}
}

// message passes on what the SDK can read.
func (m *messages) message(data []byte) {
	if _, err := jsonrpc.DecodeMessage(data); err != nil {
		m.refuse(idOf(data), jsonrpc.CodeInvalidRequest,
			`this is no JSON-RPC message: want {"jsonrpc":"2.0","id":…,"method":…,"params":…}`)
		return
	}
	m.rest = append(append(m.rest, data...), '\n')
}

// idOf is the id that a request which is wrong otherwise has, so that who waits
// for its answer gets one; else nil.
func idOf(data []byte) json.RawMessage {
	var request struct{ ID json.RawMessage }
	_ = json.Unmarshal(data, &request) // what was read of it serves
	if len(request.ID) > 0 && strings.IndexByte(`"-0123456789`, request.ID[0]) >= 0 {
		return request.ID
	}
	return nil
}

// refuse answers a line. Where that fails, so does reading: the host is gone.
func (m *messages) refuse(id json.RawMessage, code int, message string) {
	type failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	err := writeLine(m.out, struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   failure         `json:"error"`
	}{"2.0", id, failure{code, message}})
	if m.err == nil {
		m.err = err
	}
}

// oneWriter has one Write at a time. It is not closed.
type oneWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (o *oneWriter) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}

func (*oneWriter) Close() error { return nil }
