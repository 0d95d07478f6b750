package redisbox

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fault says what is wrong and how to mend it, without what the server quotes:
// it can repeat a command's arguments, which are messages and passwords.
type fault struct {
	says string
	err  error
}

func (f *fault) Error() string { return f.says }
func (f *fault) Unwrap() error { return f.err }

const noRights = "the redis user lacks rights: it needs the keys " + prefix + "*, the channels " + peerChannels + ", and scripts"

// hints, the first match counts.
var hints = []struct{ sign, says string }{
	{"unknown command", "this redis lacks a command: it must be version 5 or later, with EVALSHA and streams allowed"},
	{"NOAUTH", "redis wants a password: give it in REDIS_URL (redis://:password@host)"},
	{"WRONGPASS", "redis refuses the user or the password in REDIS_URL"},
	{"invalid password", "redis refuses the password in REDIS_URL"},
	{"without any password configured", "REDIS_URL has a password and this redis wants none: leave it out"},
	{"DB index is out of range", "this redis does not have the database in REDIS_URL"},
	{"SELECT is not allowed in cluster mode", "this redis is a Cluster: use redis+cluster:// and no database in REDIS_URL"},
	{"cluster support disabled", "this redis is no Cluster: use redis:// with one host in REDIS_URL"},
	{"NOPERM", noRights},
	{"ACL failure", noRights},               // in a script,
	{"user executing the script", noRights}, // as other versions say it
	{"DENIED", "redis runs in protected mode: give it a password or a bind address"},
	{"LOADING", "redis is loading its data"},
	{"READONLY", "this redis is a read-only replica: name the master in REDIS_URL, or use redis+sentinel://"},
	{"OOM", "redis is out of memory: raise its maxmemory"},
	{"MISCONF", "redis cannot save to its disk and takes no writes: mend its disk or its persistence"},
	{"CLUSTERDOWN", "the redis Cluster is down"},
	{"MOVED", "this redis is a Cluster: use redis+cluster:// in REDIS_URL"},
	{"max number of clients", "redis has too many clients: raise its maxclients"},
	{"all sentinels specified", "no Sentinel in REDIS_URL answers, or none knows the master of that name"},
	{"can't parse", "what answers at REDIS_URL is not a redis"},
	{"unexpected", "what answers at REDIS_URL is not a redis"},
	{"first record does not look like a TLS handshake", "this redis speaks no TLS: use redis:// instead of rediss://"},
}

const (
	noAnswer = "redis does not answer"
	slowTLS  = noAnswer + "; perhaps it speaks no TLS: then use redis:// instead of rediss://"
)

// explain is [explain] for this store's Redis.
func (s *Store) explain(err error, uses string) error {
	err = explain(err, uses)
	if f, ok := errors.AsType[*fault](err); ok && f.says == noAnswer && s.conn.TLSConfig != nil {
		return &fault{slowTLS, err}
	}
	return err
}

// explain makes err fit to be shown; errors.Is and errors.As still find what is
// in it. uses names the keys of the call and what they are.
func explain(err error, uses string) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	text := err.Error()
	if strings.Contains(text, "WRONGTYPE") {
		return &fault{uses + " has another type: another program uses it; rename or delete it", err}
	}
	for _, h := range hints {
		if strings.Contains(text, h.sign) {
			return &fault{h.says, err}
		}
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return &fault{noAnswer, err}
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(text, " ")
		return &fault{"redis answers with the error " + code[:min(len(code), 40)], err}
	}
	if errors.Is(err, redis.ErrClosed) {
		return &fault{"the mailbox's store is closed", err}
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return &fault{"connection to redis: " + e.Error(), err}
	}
	return &fault{"connection to redis was lost", err}
}

func usesStream(key string) string { return "the key " + key + " (a stream)" }
