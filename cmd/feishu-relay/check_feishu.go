package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"feishu-relay/feishu"
	"feishu-relay/sidecar"
)

// checkFeishu tries Feishu: with the app's credentials where they are
// configured, else only whether it answers.
func checkFeishu(ctx context.Context, c *config) []finding {
	const name = "Feishu"
	if !c.KnowsFeishu() {
		return nil
	}
	base := c.BaseURL.String()
	if c.AppID != "" && c.AppSecret != "" {
		self, err := feishu.NewAPI(base, c.AppID, string(c.AppSecret)).BotInfo(ctx)
		if e, ok := errors.AsType[*feishu.CodeError](err); ok {
			return []finding{failure(name, "correct FEISHU_APP_ID and FEISHU_APP_SECRET, and FEISHU_BASE_URL (Lark's is https://open.larksuite.com); the app needs the bot ability and a published version",
				"%s answers for %s: %v", base, c.AppID, e)}
		}
		if err != nil {
			return []finding{failure(name, "set FEISHU_BASE_URL, or HTTPS_PROXY if Feishu is reached by one", "%s: %v", base, err)}
		}
		return []finding{well(name, "%s is %s (%s)", c.AppID, self.Name, self.OpenID)}
	}
	// A call without a token: Feishu's refusal says that it is Feishu.
	if _, err := feishu.NewAPI(base, "", "").Probe(ctx); err != nil {
		return []finding{failure(name, "set FEISHU_BASE_URL (Lark's is https://open.larksuite.com), or HTTPS_PROXY if Feishu is reached by one", "%s: %v", base, err)}
	}
	return []finding{well(name, "%s answers; the bot's own token is used (no FEISHU_APP_SECRET)", base)}
}

// checkGateway tries the address that the bot's SDK is pointed at, and the
// certificate.
func checkGateway(ctx context.Context, c *config) []finding {
	const name = "gateway"
	if c.Gateway.Addr == "" {
		return nil
	}
	var out []finding
	if c.Gateway.TLS == "file" {
		if _, err := tls.LoadX509KeyPair(c.Gateway.CertFile, c.Gateway.KeyFile); err != nil {
			out = append(out, failure(name, "set GATEWAY_CERT_FILE and GATEWAY_KEY_FILE to a certificate and its key, in PEM", "%v", err))
		}
	}
	if c.AppID == "" && !sidecar.IsLoopback(c.Gateway.Addr) {
		out = append(out, warning(name, "set FEISHU_APP_ID", "%s is reached from other hosts, and the first app that calls is served", c.Gateway.Addr))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Gateway.Addr)
	if err == nil {
		_ = l.Close()
		return append(out, well(name, "%s is free", c.Gateway.Addr))
	}
	running, ok := ownSidecar(ctx, c)
	switch {
	case !ok:
		return append(out, failure(name, "set GATEWAY_ADDR to a free address, or end the program that uses this one", "%v", err))
	case !running.Gateway.Connected:
		return append(out, warning(name, "point the bot at it: docs/frameworks.md has the settings; look at the bot's log",
			"the running sidecar serves %s, and no bot is connected", c.Gateway.Addr))
	}
	return append(out, well(name, "the running sidecar serves %s, and the bot is connected", c.Gateway.Addr))
}

// gatewayState is what a running sidecar says of its gateway.
type gatewayState struct {
	Identity struct {
		Agent string `json:"agent_name"`
	}
	Gateway struct{ Connected bool }
}

// ownSidecar asks the running sidecar of this configuration.
func ownSidecar(ctx context.Context, c *config) (st gatewayState, ok bool) {
	code, err := getJSON(ctx, reachable(c.ListenAddr), "/v1/status", string(c.APIToken), &st)
	return st, err == nil && code == http.StatusOK && st.Identity.Agent == string(c.Agent)
}

// describeDoor says how messages reach the bot where nothing is posted to it.
func describeDoor(c *config) string {
	if c.Gateway.Addr != "" {
		return fmt.Sprintf("is given messages by the gateway (%s), or reads /v1/stream", c.Gateway.Addr)
	}
	return "reads /v1/stream (no INJECT_URL)"
}
