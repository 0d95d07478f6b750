package redisrelay

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"feishu-relay/relay"
)

// What one call of the script takes; more goes in several calls, each of which
// verifies the receipt of the one before.
const (
	chunkLines = 200
	chunkBytes = 1 << 20
)

// publishScript verifies the receipt, then adds and publishes all lines, as one
// step. KEYS: the stream. ARGV: channel, cap, id and number of the receipt's
// entry ("" and "" for none), then for each line "1" if it goes on the channel,
// and the line. It returns the id and the number of the last entry, "lost"
// alone when the receipt's entry is. The number is empty where the server does
// not count (before Redis 7).
//
// The receipt's entry is there, or it was trimmed. It was trimmed if at least
// as many entries have left the stream as it counted; without counts, if the
// stream is full.
var publishScript = redis.NewScript(`
local stream, channel, cap = KEYS[1], ARGV[1], tonumber(ARGV[2])
local after, number = ARGV[3], tonumber(ARGV[4])
local exists = redis.call('EXISTS', stream) == 1
local added, length, first, last = 0, 0, nil, nil
if exists then
  added = nil
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then added = info[i + 1]
    elseif info[i] == 'length' then length = info[i + 1]
    elseif info[i] == 'last-generated-id' then last = info[i + 1]
    elseif info[i] == 'first-entry' and info[i + 1] then first = info[i + 1][1] end
  end
end
local function newer(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am > bm or (am == bm and as > bs)
end
local function trimmed()
  if newer(after, last) or (first and newer(after, first)) then return false end
  if added and number then return number <= added - length end
  return length >= cap
end
if after ~= '' then
  if not exists then return {'lost'} end
  if last ~= after and #redis.call('XRANGE', stream, after, after) == 0 then
    if not trimmed() then return {'lost'} end
  elseif added and number and number > added then
    return {'lost'}
  end
end
local id = after
for i = 5, #ARGV, 2 do
  if i + 1 == #ARGV then
    id = redis.call('XADD', stream, 'MAXLEN', '~', cap, '*', 'payload', ARGV[i + 1])
  else
    id = redis.call('XADD', stream, '*', 'payload', ARGV[i + 1])
  end
  if ARGV[i] == '1' then redis.call('PUBLISH', channel, ARGV[i + 1]) end
end
if not added then return {id, ''} end
return {id, string.format('%.0f', added + (#ARGV - 4) / 2)}
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
		receipt, err := q.publishChunk(ctx, lines[:n], after)
		if err != nil {
			return "", fmt.Errorf("publish to redis: %w", err)
		}
		after, lines = receipt, lines[n:]
	}
	return after, nil
}

func (q *Queue) publishChunk(ctx context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	id, number, _ := strings.Cut(string(after), "/")
	if after != "" {
		if _, err := parseID(id); err != nil {
			return "", relay.ErrForgotten // a receipt of another backend: nothing of it is here
		}
		if _, err := strconv.ParseInt(number, 10, 64); err != nil {
			number = ""
		}
	}
	args := make([]any, 0, 4+2*len(lines))
	args = append(args, q.opts.Channel, q.opts.MaxLen, id, number)
	for _, line := range lines {
		announced := "0"
		if numbered(line) {
			announced = "1"
		}
		args = append(args, announced, line)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	reply, err := publishScript.Run(ctx, q.publish, []string{q.stream}, args...).StringSlice()
	switch {
	case err != nil:
		return "", explain(err)
	case len(reply) == 2 && len(lines) == 0:
		return after, nil
	case len(reply) == 2:
		return relay.Receipt(reply[0] + "/" + reply[1]), nil
	}
	return "", relay.ErrForgotten
}
