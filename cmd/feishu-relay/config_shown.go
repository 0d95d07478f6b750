package main

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// shown returns the sidecar's settings by name, as GET /v1/status has them. Of a secret it shows only whether
// it is set, of RELAY_SECRET the fingerprint, and of a URL where it points to: the rest may be secret.
func (c *config) shown() map[string]string {
	out := map[string]string{}
	for _, s := range settings(reflect.ValueOf(&c.Config).Elem()) {
		out[s.name] = s.shown()
	}
	return out
}

func (s setting) shown() string {
	is := s.tag.Get("is")
	switch value := s.field.Interface().(type) {
	case sidecar.Secret:
		switch {
		case s.name == "RELAY_SECRET":
			return relay.Fingerprint(string(value))
		case is == "redis":
			return redisShown(string(value))
		}
		return value.String()
	case bool:
		words := []string{"off", "on"}
		if own := s.words(); own != nil {
			words = own
		}
		if value {
			return words[1]
		}
		return words[0]
	case *url.URL:
		if value == nil {
			return ""
		}
		return withoutSecrets(value.String())
	case []string:
		return strings.Join(value, ",")
	case []mailbox.AgentID:
		if value == nil {
			return "*"
		}
		if len(value) == 0 {
			return "none"
		}
		names := make([]string, len(value))
		for i, id := range value {
			names[i] = string(id)
		}
		return strings.Join(names, ",")
	case string:
		if is == "url" {
			return withoutSecrets(value)
		}
	}
	return fmt.Sprint(s.field.Interface())
}

// withoutSecrets is the scheme and the host of a URL.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// redisShown is a REDIS_URL without user, password and parameters; where it is not clear which these are, only that
// it is set.
func redisShown(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	address, _, _ := strings.Cut(rest, "?")
	at := strings.LastIndexByte(address, '@')
	if !ok || at < 0 && strings.Contains(rest, "@") {
		return sidecar.Secret(text).String()
	}
	return strings.ToLower(scheme) + "://" + address[at+1:]
}
