package main

import (
	"strings"
	"testing"

	"feishu-relay/sidecar"
)

// Of a REDIS_URL the servers, the primary's name, the database or the socket are shown, and no secret.
func TestRedisShown(t *testing.T) {
	set := sidecar.Secret("x").String()
	for url, want := range map[string]string{
		"":                                                  "",
		"no URL MARKED":                                     set,
		"redis://:MARKED@h:1/2":                             "redis://h:1/2",
		"redis://uMARKED:MARKED|x y@h:6379":                 "redis://h:6379",
		"redis://u:MARKED@MARKED@h":                         "redis://h",
		"redis://u:MARKED?MARKED@h":                         set,
		"REDIS://:MARKED@h1:6379,h2":                        "redis://h1:6379,h2",
		"redis://:MARKED@[::1]:1,[::2]:2/0":                 "redis://[::1]:1,[::2]:2/0",
		"redis+sentinel://MARKED:M@h1:1,h2/m":               "redis+sentinel://h1:1,h2/m",
		"redis+sentinel://u:p@h/m?sentinel_password=MARKED": "redis+sentinel://h/m",
		"redis+sentinel://h/m?sentinel_password=a@MARKED":   set,
		"unix://:MARKED@/tmp/redis.sock?db=1":               "unix:///tmp/redis.sock",
	} {
		if got := redisShown(url); got != want || strings.Contains(got, "MARKED") {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}
