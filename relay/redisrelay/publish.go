package redisrelay

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

// What one call of the script takes; more goes in several calls, each of which
// verifies the receipt of the one before.
const (
	chunkLines = 200
	chunkBytes = 1 << 20
)

// countEvery is how often, at least, a busy publisher asks how many entries
// there have been: the answer costs as much as the rest of a short call.
const (
	countEvery = time.Second
	countLines = 16 // and with every call that has so many lines
)

// publishScript verifies the receipt, then adds and publishes all lines, as one
// step.
//
// KEYS: the stream. ARGV: channel, cap, id and number of the receipt's entry
// ("" and "" for none), "1" to count, a digit for each line that says whether
// it goes on the channel ("" for all), the sum of the receipt's entry ("" for none), the lines. It returns
// "lost" alone; or the id of the last entry, and a number if it counted.
//
// The number says that the stream had been given at least so many entries when
// this one was the last. A missing entry was trimmed if at least as many have
// left the stream, and is lost otherwise. Before Redis 7, which does not count,
// it was trimmed if the stream is full.
//
// A Redis that is out of memory refuses the script's first write: nothing is added, and the sender keeps the lines.
var publishScript = redis.NewScript(`
local stream, channel, cap, after, first = KEYS[1], ARGV[1], ARGV[2], ARGV[3], 8

local function look()
  local s = {}
  if redis.call('EXISTS', stream) == 0 then return s end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do s[info[i]] = info[i + 1] end
  return s
end

local entry = after ~= '' and redis.call('XRANGE', stream, after, after)[1]
if entry and string.sub(redis.sha1hex(entry[2][2]), 1, #ARGV[7]) ~= ARGV[7] then return {'lost'} end
if after ~= '' and not entry then
  local function newer(a, b)
    local am, as = string.match(a, '(%d+)-(%d+)')
    local bm, bs = string.match(b, '(%d+)-(%d+)')
    am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
    return am > bm or (am == bm and as > bs)
  end
  local s, number = look(), tonumber(ARGV[4])
  local last, first, added, length = s['last-generated-id'], s['first-entry'], s['entries-added'], s['length']
  if not last or newer(after, last) or (first and newer(after, first[1])) then return {'lost'} end
  if added and number then
    if number > added - length then return {'lost'} end
  elseif length < tonumber(cap) then
    return {'lost'}
  end
end

local id, announced = after, ARGV[6]
for i = first, #ARGV do
  local line = ARGV[i]
  local added
  if i == #ARGV then added = redis.pcall('XADD', stream, 'MAXLEN', '~', cap, '*', 'payload', line)
  else added = redis.pcall('XADD', stream, '*', 'payload', line) end
  if type(added) == 'table' then return added end
  id = added
  if announced == '' or string.sub(announced, i - first + 1, i - first + 1) == '1' then
    redis.call('PUBLISH', channel, line)
  end
end
local counted = ARGV[5] == '1' and look()['entries-added'] or ''
return {id, tostring(counted)}
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
	var old receipt
	if after != "" {
		var err error
		if old, err = parseReceipt(after); err != nil {
			return "", relay.ErrForgotten // another backend's: nothing of it is here
		}
	}
	count := ""
	if len(lines) >= countLines || old.number == unknown || q.counted.due() {
		count = "1"
	}
	const options = 7
	args := make([]any, options, options+len(lines))
	announced := bytes.Repeat([]byte{'1'}, len(lines))
	for i, line := range lines {
		text := unsafe.String(unsafe.SliceData(line), len(line)) // only looked at; a copy would cost as much
		if q.opts.Stream != "" || !numbered(text) {
			announced[i] = '0'
		}
		args = append(args, line)
	}
	if bytes.IndexByte(announced, '0') < 0 {
		announced = nil
	}
	copy(args, []any{q.opts.Channel, q.opts.MaxLen, old.id, old.count(), count, announced, old.sum})
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	reply, err := publishScript.Run(ctx, q.publish, []string{q.stream}, args...).StringSlice()
	switch {
	case err != nil:
		return "", q.explain(err)
	case len(reply) != 2:
		return "", relay.ErrForgotten
	case len(lines) == 0:
		return after, nil
	}
	next := old.next(reply[0], reply[1], len(lines))
	next.sum = redislink.Sum(lines[len(lines)-1])
	return next.text(), nil
}

// receipt is a [relay.Receipt] of this package, "<id>/<number>/<sum>".
type receipt struct {
	id     string // of the entry, "" for none
	number int64  // the stream had been given at least so many; or unknown
	sum    string // see [redislink.Sum]
}

func parseReceipt(text relay.Receipt) (receipt, error) {
	id, rest, _ := strings.Cut(string(text), "/")
	number, sum, summed := strings.Cut(rest, "/")
	if _, ok := redislink.ParseEntry(id); !ok || !summed {
		return receipt{}, errNoID
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		n = unknown
	}
	return receipt{id, n, sum}, nil
}

func (r receipt) text() relay.Receipt { return relay.Receipt(r.id + "/" + r.count() + "/" + r.sum) }

func (r receipt) count() string {
	if r.number == unknown {
		return ""
	}
	return strconv.FormatInt(r.number, 10)
}

// next is the receipt after n more lines, with what the server counted if it did.
func (r receipt) next(id, counted string, n int) receipt {
	number, err := strconv.ParseInt(counted, 10, 64)
	switch {
	case err == nil:
	case r.number != unknown:
		number = r.number + int64(n)
	default:
		number = unknown
	}
	return receipt{id: id, number: number}
}

// pacer says yes at most once in countEvery.
type pacer struct{ last atomic.Int64 }

func (p *pacer) due() bool {
	now := time.Now().UnixNano()
	last := p.last.Load()
	return now-last >= int64(countEvery) && p.last.CompareAndSwap(last, now)
}
