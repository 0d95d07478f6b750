package redisbox

import "feishu-relay/internal/redislink"

// explain makes err fit to be shown. uses names the keys of the call and what
// they are.
func (s *Store) explain(err error, uses string) error {
	return redislink.Explain(err, redislink.Words{
		Rights: "the redis user lacks rights: it needs the keys " + prefix + "*, the channels " + peerChannels +
			", and scripts",
		WrongType: uses + " has another type: another program uses it; rename or delete it",
		Closed:    "the mailbox's store is closed",
		TLS:       s.conn.TLSConfig != nil,
	})
}

func usesStream(key string) string { return "the key " + key + " (a stream)" }
