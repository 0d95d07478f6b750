package main

import (
	"context"
	"fmt"
	"net"

	"feishu-relay/sidecar"
)

// checkGateway tries the addresses that the bot's SDK is pointed at and that
// Feishu posts to, and the certificate.
func checkGateway(ctx context.Context, c *subject) []finding {
	const name = "gateway"
	if c.Gateway.Addr == "" {
		return nil
	}
	var out []finding
	if c.AppID == "" && !sidecar.IsLoopback(c.Gateway.Addr) {
		out = append(out, warning(name, "set FEISHU_APP_ID", "%s is reached from other hosts, and the first app that calls is served", c.Gateway.Addr))
	}
	taken := bound(ctx, c.Gateway.Addr)
	running, err := c.running()
	switch {
	case taken == nil:
		out = append(out, well(name, "%s is free", c.Gateway.Addr))
	case err != nil:
		return append(out, failure(name, "set GATEWAY_ADDR to a free address, or end the program that uses this one", "%v", taken))
	case !running.Gateway.Connected:
		out = append(out, warning(name, "point the bot at it: docs/frameworks.md has the settings; look at the bot's log",
			"the running sidecar serves %s, and no bot is connected", c.Gateway.Addr))
	default:
		out = append(out, well(name, "the running sidecar serves %s, and the bot is connected", c.Gateway.Addr))
	}
	if c.BotWebhookURL != "" && c.WebhookAddr != "" {
		if err := bound(ctx, c.WebhookAddr); err != nil && running == nil {
			out = append(out, failure("webhook address", "set WEBHOOK_ADDR to a free address, or end the program that uses this one", "%v", err))
		}
	}
	return append(out, checkCertificate(ctx, c.config, taken != nil)...)
}

// bound says why nobody can listen at addr, or nil.
func bound(ctx context.Context, addr string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// describeDoor says how messages reach the bot where nothing is posted to it.
func describeDoor(c *config) string {
	if c.Gateway.Addr != "" {
		return fmt.Sprintf("is given messages by the gateway (%s), or reads /v1/stream", c.Gateway.Addr)
	}
	return "reads /v1/stream (no INJECT_URL)"
}
