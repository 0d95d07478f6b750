package redislink

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURL(t *testing.T) {
	type place struct {
		Addrs              []string
		User, Password     string
		SentinelUser, SenP string
		DB                 int
		Master             string
		Cluster, TLS, Skip bool
	}
	tests := []struct {
		name, url string
		want      place
	}{
		{"host alone", "redis://h", place{Addrs: []string{"h:6379"}}},
		{"nothing named", "redis://", place{Addrs: []string{"localhost:6379"}}},
		{"only a database", "redis:///3", place{Addrs: []string{"localhost:6379"}, DB: 3}},
		{"all parts", "redis://u:p@h:1/2", place{Addrs: []string{"h:1"}, User: "u", Password: "p", DB: 2}},
		{"password alone", "redis://:p@h:1", place{Addrs: []string{"h:1"}, Password: "p"}},
		{"encoded password", "redis://:p%2F%3F%23%40%3a%25@h/", place{Addrs: []string{"h:6379"}, Password: "p/?#@:%"}},
		{"at sign in a password", "redis://:p@q@h", place{Addrs: []string{"h:6379"}, Password: "p@q"}},
		{"database as parameter", "redis://h?db=4", place{Addrs: []string{"h:6379"}, DB: 4}},
		{"upper case scheme", "REDIS://h", place{Addrs: []string{"h:6379"}}},
		{"ipv6", "redis://[::1]:7", place{Addrs: []string{"[::1]:7"}}},
		{"ipv6 without a port", "redis://[::1]", place{Addrs: []string{"[::1]:6379"}}},
		{"TLS", "rediss://h", place{Addrs: []string{"h:6379"}, TLS: true}},
		{"TLS unchecked", "rediss://h?skip_verify=true", place{Addrs: []string{"h:6379"}, TLS: true, Skip: true}},
		{"socket", "unix:///run/redis.sock", place{Addrs: []string{"/run/redis.sock"}}},
		{"socket with all", "unix://u:p@/run/r%20s?db=1", place{Addrs: []string{"/run/r s"}, User: "u", Password: "p", DB: 1}},
		{"sentinel", "redis+sentinel://u:p@h1:1,h2/main/5?sentinel_username=su&sentinel_password=s%26p", place{
			Addrs: []string{"h1:1", "h2:26379"}, User: "u", Password: "p", Master: "main", DB: 5, SentinelUser: "su", SenP: "s&p",
		}},
		{"sentinel with TLS", "rediss+sentinel://h/m", place{Addrs: []string{"h:26379"}, Master: "m", TLS: true}},
		{"cluster", "redis+cluster://h1,h2:2", place{Addrs: []string{"h1:6379", "h2:2"}, Cluster: true}},
		{"cluster by one host", "rediss+cluster://:p@h", place{Addrs: []string{"h:6379"}, Password: "p", Cluster: true, TLS: true}},
		{"several hosts are a cluster", "redis://h1:1,h2:2/0", place{Addrs: []string{"h1:1", "h2:2"}, Cluster: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := ParseURL(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			got := place{
				o.Addrs, o.Username, o.Password, o.SentinelUsername, o.SentinelPassword, o.DB, o.MasterName, o.IsClusterMode,
				o.TLSConfig != nil, o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify,
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseURLSaysWhatIsWrongAndNeverQuotes(t *testing.T) {
	const secret = "hunter2"
	tests := []struct{ name, url, says string }{
		{"empty", "", "begins with none of"},
		{"no scheme", secret + ":6379", "begins with none of"},
		{"other scheme", "http://:" + secret + "@h", "begins with none of"},
		{"other form", "redis+" + secret + "://h", "begins with none of"},
		{"user without password", "redis://" + secret + "@h", "user and no password"},
		{"slash in the password", "redis://:x/" + secret + "@h", "port"},
		{"question mark in the password", "redis://h:1?" + secret + "@h", "unknown parameter"},
		{"hash in the password", "redis://:#" + secret + "@h", "%23"},
		{"percent in the password", "redis://:%zz" + secret + "@h", "%25"},
		{"port", "redis://h:" + secret, "port"},
		{"port 0", "redis://h:0", "port"},
		{"bare ipv6", "redis://::1:6379", "brackets"},
		{"empty host in a list", "redis://h,", "host"},
		{"database", "redis://h/" + secret, "database"},
		{"database below 0", "redis://h/-1", "database"},
		{"database in a cluster", "redis+cluster://h/1", "only database 0"},
		{"sentinel without a name", "redis+sentinel://h:1", "name of the master"},
		{"sentinel credentials elsewhere", "redis://h?sentinel_password=" + secret, "redis+sentinel://"},
		{"relative socket", "unix://" + secret + ".sock", "absolute"},
		{"skip_verify without TLS", "redis://h?skip_verify=true", "rediss://"},
		{"skip_verify not bool", "rediss://h?skip_verify=" + secret, "true nor false"},
		{"bad parameters", "redis://h?a=%zz" + secret, "parameters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseURL(tt.url)
			if err == nil {
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %q, want %q in it", err, tt.says)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error quotes: %q", err)
			}
		})
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"pw", "a/b", "a?b=c", "%41", "@", "a:b", "[", "#", "ü"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, password string) {
		o, err := ParseURL("redis://:" + url.QueryEscape(strings.ReplaceAll(password, " ", "_")) + "@h:1/2")
		if err != nil {
			t.Fatalf("an encoded password: %v", err)
		}
		if got, want := o.Password, strings.ReplaceAll(password, " ", "_"); got != want {
			t.Errorf("got password %q, want %q", got, want)
		}
		if _, err := ParseURL("redis://:" + password + "@h:1/2"); err != nil && len(password) > 40 && strings.Contains(err.Error(), password) {
			t.Errorf("the error quotes the password: %v", err)
		}
		_, _ = ParseURL(password) // must not panic
	})
}
