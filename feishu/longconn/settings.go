package longconn

import (
	"errors"
	"strconv"

	"feishu-relay/feishu"
)

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
