package redisrelay

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

// What one call of the script takes; more goes in several calls, each of which
// looks for the last line of the one before.
const (
	chunkLines = 200
	chunkBytes = 1 << 20
)

// publishScript looks whether the line of the receipt is still there, then adds and publishes all lines, as
// one step.
//
// KEYS: the stream. ARGV: channel, cap, id and sum of the receipt ("" and "" for none), a digit for each line that
// says whether it goes on the channel, the lines. It returns the id of the last entry, or nothing if the line of the
// receipt is lost. It is not lost if it was trimmed: then all that is there came later, and the stream is full.
//
// A Redis that is out of memory refuses the script's first write: nothing is added, and the sender keeps the lines.
var publishScript = redis.NewScript(luaSum + `
local stream, channel, cap, id, flags = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[5]
if id ~= '' then
  local entry = redis.call('XREVRANGE', stream, id, '-', 'COUNT', 1)[1]
  if entry and (entry[1] ~= id or sum(entry) ~= ARGV[4]) then return false end
  if not entry and redis.call('XLEN', stream) < tonumber(cap) then return false end
end
for i = 6, #ARGV do
  id = redis.call('XADD', stream, 'MAXLEN', '~', cap, '*', 'payload', ARGV[i])
  if string.sub(flags, i - 5, i - 5) == '1' then redis.call('PUBLISH', channel, ARGV[i]) end
end
return id
`)

// Publish adds lines to the stream and publishes them on the channel; see
// [relay.Publisher]. Each call of the script is answered within 5 s or fails.
func (q *Queue) Publish(ctx context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	if len(lines) == 0 && after == "" {
		return "", ctx.Err()
	}
	for first := true; first || len(lines) > 0; first = false {
		n, bytes := 0, 0
		for n < len(lines) && n < chunkLines && (n == 0 || bytes+len(lines[n]) <= chunkBytes) {
			bytes += len(lines[n])
			n++
		}
		var err error
		if after, err = q.publishChunk(ctx, lines[:n], after); err != nil {
			return "", fmt.Errorf("publish to redis: %w", err)
		}
		lines = lines[n:]
	}
	return after, nil
}

// publishChunk runs the script. The receipt is "<id>/<sum>" of the last line.
func (q *Queue) publishChunk(ctx context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	id, last, _ := strings.Cut(string(after), "/")
	if _, ok := redislink.ParseEntry(id); !ok && after != "" {
		return "", relay.ErrForgotten // another backend's: nothing of it is here
	}
	flags := make([]byte, len(lines))
	args := []any{q.opts.Channel, q.opts.MaxLen, id, last, flags}
	for i, line := range lines {
		flags[i] = '0'
		if q.opts.Stream == "" && numbered(line) {
			flags[i] = '1'
		}
		args = append(args, line)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id, err := publishScript.Run(ctx, q.publish, []string{q.stream}, args...).Text()
	switch {
	case err == redis.Nil:
		return "", relay.ErrForgotten
	case err != nil:
		return "", q.explain(err)
	case len(lines) == 0:
		return after, nil
	}
	return relay.Receipt(id + "/" + sum(lines[len(lines)-1])), nil
}

// numbered reports whether line is a JSON object with a seq above 0, which is
// what tells a sidecar's message from another program's.
func numbered(line []byte) bool {
	var m struct {
		Seq relay.Seq `json:"seq"`
	}
	return relay.Unmarshal(line, &m) == nil && m.Seq > 0
}
