package sidecar

import "net"

// Reachable is how a program on this host calls one that listens at addr: every
// address is this host's, too.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// localURL is where the local API and the viewer are reached on this host.
func (s *Sidecar) localURL() string { return "http://" + Reachable(s.Addr().String()) }

// gatewayURL is what the bot's SDK is pointed at.
func (s *Sidecar) gatewayURL() string {
	c := s.cfg.Gateway
	if c.PublicURL != nil {
		return c.PublicURL.String()
	}
	scheme := "http"
	if c.TLS == "auto" || c.TLS == "file" {
		scheme = "https"
	}
	return scheme + "://" + Reachable(s.Gateway().String())
}

// nextStep says what the operator does once the sidecar runs.
func (s *Sidecar) nextStep() string {
	step := "let the bot use " + s.localURL() + " (docs/api.md)"
	if s.front != nil {
		step = "point the bot's Feishu SDK at " + s.gatewayURL() + " (docs/frameworks.md)"
		if s.cfg.BotWebhookURL != "" {
			step += ", and the events in Feishu's console at this host's /webhook/event"
		}
	}
	return step + "; then `feishu-relay check` and `feishu-relay status`"
}
