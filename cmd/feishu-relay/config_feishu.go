package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"feishu-relay/sidecar"
)

// feishu reads what has to do with Feishu itself: the gateway, the webhook, the
// connector.
func (p *problems) feishu(e env, c *sidecar.Config) {
	c.AppSecret = sidecar.Secret(strings.TrimSpace(e.FeishuAppSecret))
	c.EncryptKey = sidecar.Secret(e.FeishuEncryptKey)
	c.VerificationToken = sidecar.Secret(e.FeishuToken)
	c.BaseURL = p.baseURL("FEISHU_BASE_URL", e.FeishuBaseURL)
	c.BotWebhookURL = p.httpURL("BOT_WEBHOOK_URL", e.BotWebhookURL)
	c.Connector = p.boolean("CONNECTOR", e.Connector)
	c.InjectSenderType = p.oneOf("INJECT_SENDER_TYPE", e.InjectSenderType, "bot", "app", "user")
	c.MentionAlways = p.oneOf("INJECT_MENTION", e.InjectMention, "addressed", "always") == "always"
	c.Gateway = sidecar.GatewayConfig{
		TLS:        p.oneOf("GATEWAY_TLS", e.GatewayTLS, "off", "auto", "file"),
		CertFile:   e.GatewayCertFile,
		KeyFile:    e.GatewayKeyFile,
		PublicURL:  p.baseURL("GATEWAY_PUBLIC_URL", e.GatewayPublicURL),
		Settle:     p.duration("GATEWAY_SETTLE", e.GatewaySettle, 0, time.Minute),
		EditSettle: p.duration("GATEWAY_EDIT_SETTLE", e.GatewayEditSettle, 0, 10*time.Minute),
		StreamLife: p.duration("GATEWAY_STREAM_LIFE", e.GatewayStreamLife, 0, 24*time.Hour),
	}
	if e.GatewayAddr != "" {
		c.Gateway.Addr = p.address("GATEWAY_ADDR", e.GatewayAddr)
	}
	if c.Gateway.TLS == "file" && (e.GatewayCertFile == "" || e.GatewayKeyFile == "") {
		*p = append(*p, errors.New("GATEWAY_CERT_FILE, GATEWAY_KEY_FILE: both required by GATEWAY_TLS=file"))
	}
	if e.WebhookAddr != "" {
		c.WebhookAddr = p.address("WEBHOOK_ADDR", e.WebhookAddr)
	}
	p.webhook(c)
	if c.Gateway.Addr != "" && c.Gateway.Addr == c.ListenAddr && !strings.HasSuffix(c.ListenAddr, ":0") {
		*p = append(*p, errors.New("GATEWAY_ADDR: is the same as LISTEN_ADDR; the bot's SDK and the local API need addresses of their own"))
	}
	switch {
	case c.Connector && c.Gateway.Addr != "":
		*p = append(*p, errors.New("CONNECTOR, GATEWAY_ADDR: either the sidecar holds the Feishu connection or the bot does; "+
			"two connections of one app steal each other's events: set one of them"))
	case c.Connector && (c.AppID == "" || c.AppSecret == ""):
		*p = append(*p, errors.New("FEISHU_APP_ID, FEISHU_APP_SECRET: both required by CONNECTOR=true"))
	}
}

func (p *problems) webhook(c *sidecar.Config) {
	switch {
	case c.BotWebhookURL == "" && c.WebhookAddr != "":
		*p = append(*p, errors.New("BOT_WEBHOOK_URL: required by WEBHOOK_ADDR: where the bot listens for Feishu's events"))
	case c.BotWebhookURL == "":
	case c.Gateway.Addr == "":
		*p = append(*p, errors.New("GATEWAY_ADDR: required by BOT_WEBHOOK_URL: the bot's own calls go through it"))
	case c.EncryptKey == "" && c.VerificationToken == "":
		*p = append(*p, errors.New("FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN: at least one is required by BOT_WEBHOOK_URL, else anybody could post events"))
	case c.WebhookAddr == "" && !sidecar.IsLoopback(c.Gateway.Addr):
		*p = append(*p, fmt.Errorf("WEBHOOK_ADDR: required since GATEWAY_ADDR=%s is not loopback: Feishu should reach the webhook and nothing else", c.Gateway.Addr))
	}
}

// address wants host:port.
func (p *problems) address(name, addr string) string {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		p.add(name, addr, "host:port, such as 127.0.0.1:8788")
	}
	return addr
}

// baseURL wants a URL without a path of its own; "" gives nil.
func (p *problems) baseURL(name, value string) *url.URL {
	if value == "" {
		return nil
	}
	before := len(*p)
	if p.httpURL(name, value); len(*p) > before {
		return nil
	}
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(value), "/"))
	if err != nil || u.RawQuery != "" || u.User != nil || u.Path != "" {
		*p = append(*p, fmt.Errorf("%s: want scheme and host only, such as https://open.feishu.cn", name))
		return nil
	}
	return u
}
