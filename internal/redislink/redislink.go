// Package redislink is the common code of the relay and the mailbox as clients
// of Redis: reading REDIS_URL, connecting, hearing channels, reading streams, and
// explaining errors.
package redislink

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var quiet sync.Once

// Options returns conn for a client without retries, with a limit for every wait.
// pool is the most connections. It switches off the library's own log for the
// whole process: the log writes to stderr without levels, and every fault in it is
// also an error.
func Options(conn *redis.UniversalOptions, pool int, dial, io time.Duration) *redis.UniversalOptions {
	quiet.Do(logging.Disable)
	o := *conn
	o.Protocol = 2 // sufficient, and supported by every server since version 5
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dial, io, io
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.PipelinePoolSize = pool, -1
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// Fault is an error of Redis with a text that explains how to fix it. The text
// does not quote the server, which may repeat a command's arguments: messages
// and passwords.
type Fault struct {
	Says string
	Err  error // nil if there is no cause
}

func (f *Fault) Error() string { return f.Says }
func (f *Fault) Unwrap() error { return f.Err }

// Words are a caller's texts for faults that concern its own data in Redis.
type Words struct {
	Rights    string // the Redis user lacks a permission
	WrongType string // a key has another type
	Closed    string // the caller itself is closed
	TLS       bool   // the connection should use TLS
}

// hint explains errors that have sign in their text.
type hint struct{ sign, text string }

// hints explain errors that any command may get; the first match counts.
var hints = []hint{
	{"unexpected EOF", "the connection to redis was lost in the middle of an answer; where that repeats, " +
		"raise client-output-buffer-limit pubsub of redis"},
	{"unknown command", "this redis lacks a command: it must be version 5 or later, with EVALSHA and streams allowed"},
	{"NOAUTH", "redis wants a password: give it in REDIS_URL (redis://:password@host)"},
	{"WRONGPASS", "redis refuses the user or the password in REDIS_URL"},
	{"invalid password", "redis refuses the password in REDIS_URL"},
	{"without any password configured", "REDIS_URL has a password and this redis wants none: leave it out"},
	{"DB index is out of range", "this redis does not have the database in REDIS_URL"},
	{"SELECT is not allowed in cluster mode",
		"this redis is a Cluster: use redis+cluster:// and no database in REDIS_URL"},
	{"cluster support disabled", "this redis is not a Cluster: use redis:// with one host in REDIS_URL"},
	{"DENIED", "redis runs in protected mode: give it a password or a bind address"},
	{"LOADING", "redis is loading its data"},
	{"READONLY", "this redis is a read-only replica: name the master in REDIS_URL, or use redis+sentinel://"},
	{"OOM", "redis is out of memory: raise its maxmemory"},
	{"MISCONF", "redis cannot save to its disk and refuses writes: fix its disk or its persistence settings"},
	{"CLUSTERDOWN", "the redis Cluster is down"},
	{"MOVED", "this redis is a Cluster: use redis+cluster:// in REDIS_URL"},
	{"max number of clients", "redis has too many clients: raise its maxclients"},
	{"all sentinels specified", "no Sentinel in REDIS_URL answers, or none knows the master of that name"},
	{"can't parse", "what answers at REDIS_URL is not a redis"},
	{"unexpected", "what answers at REDIS_URL is not a redis"},
	{"unknown authority", "the certificate of redis is signed by an authority that is not known here: " +
		"name the authority's certificate with ca_file in REDIS_URL"},
	{"certificate is valid for", "the certificate of redis is for other host names: it must name the host in REDIS_URL, " +
		"and with Sentinel or a Cluster the addresses that these announce"},
	{"any IP SANs", "the certificate of redis names no IP address: use the host name of the certificate in REDIS_URL, " +
		"and with Sentinel or a Cluster let the servers announce host names"},
	{"certificate has expired", "the certificate of redis has expired, or is not valid yet, by the clock of this host"},
	{"unknown certificate authority", "redis does not know the authority of the certificate in cert_file in REDIS_URL"},
	{"certificate required", "redis wants a certificate of the client: give cert_file and key_file in REDIS_URL"},
	{"bad certificate", "redis refuses the certificate in cert_file, or wants one: see cert_file and key_file in REDIS_URL"},
	{"tls: handshake failure", "redis wants a certificate of the client, or agrees on no version of TLS: " +
		"see cert_file and key_file in REDIS_URL"},
	{"first record does not look like a TLS handshake", "this redis speaks no TLS: use redis:// instead of rediss://"},
}

// Explain returns err with a text fit for users; errors.Is and errors.As still
// find the original errors.
func Explain(err error, w Words) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	text := err.Error()
	own := []hint{{"NOPERM", w.Rights}, {"ACL failure", w.Rights}, {"user executing the script", w.Rights},
		{"WRONGTYPE", w.WrongType}} // a missing permission has a text for commands, and one or two for scripts
	for _, h := range append(own, hints...) {
		if strings.Contains(text, h.sign) {
			return &Fault{h.text, err}
		}
	}
	says := "connection to redis was lost"
	answer, answered := errors.AsType[redis.Error](err)
	broken, network := errors.AsType[*net.OpError](err)
	switch {
	case TimedOut(err) && w.TLS:
		says = "redis does not answer; perhaps it speaks no TLS: then use redis:// instead of rediss://"
	case TimedOut(err):
		says = "redis does not answer"
	case answered:
		code, _, _ := strings.Cut(answer.Error(), " ")
		says = "redis answers with the error " + code[:min(len(code), 40)]
	case errors.Is(err, redis.ErrClosed):
		says = w.Closed
	case network:
		says = "connection to redis: " + broken.Error()
	}
	return &Fault{says, err}
}

// TimedOut reports whether err means that an answer did not come in time.
func TimedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
