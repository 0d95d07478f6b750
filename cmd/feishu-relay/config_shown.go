package main

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"feishu-relay/internal/runes"
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

// maxDiffering is the most bytes of a value that check shows.
const maxDiffering = 60

// checkSettings compares this environment with the settings of the running sidecar.
func checkSettings(_ context.Context, s *subject, running *runningSidecar) []finding {
	here := s.shown()
	delete(here, "LISTEN_ADDR") // where it was reached
	var differ []string
	for name, value := range here {
		if there, known := running.Settings[name]; known && there != value {
			differ = append(differ, fmt.Sprintf("%s is %s there and %s here", name, valueShown(there), valueShown(value)))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return warning(say("restart the sidecar with these settings, or check with the env file that it was started with",
		"用这些设置重启边车，或用它启动时的 env 文件检查"),
		"the running sidecar has other settings: %s", "运行中的边车设置不同：%s", some(differ))
}

func valueShown(text string) string {
	switch text {
	case "":
		return "not set"
	case sidecar.Secret(text).String():
		return "set"
	}
	return runes.Fit(neutral(text), maxDiffering)
}
