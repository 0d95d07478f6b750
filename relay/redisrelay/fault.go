package redisrelay

import "feishu-relay/internal/redislink"

// explain makes err fit to be shown.
func explain(err error) error {
	return redislink.Explain(err, redislink.Words{
		Rights:    "the redis user lacks rights: it needs the keys <RELAY_CHANNEL>:*, the channel RELAY_CHANNEL, and scripts",
		WrongType: "the key <RELAY_CHANNEL>:log is not a stream: another program uses it; rename or delete it",
		Closed:    "the queue is closed",
	})
}
