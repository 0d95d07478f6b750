package main

import (
	"net"
	"testing"

	"feishu-relay/internal/feishusim"
)

func TestCheckOfAGateway(t *testing.T) {
	configured(t)
	sim := feishusim.New(feishusim.Options{})
	t.Cleanup(func() { _ = sim.Close() })
	base, err := sim.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := sim.AddApp(feishusim.App{Name: "BotA"})
	t.Setenv("FEISHU_BASE_URL", base)
	t.Setenv("GATEWAY_ADDR", "127.0.0.1:0")
	code, found := checked(t)
	if code != 0 {
		t.Errorf("status %d, want 0", code)
	}
	wants(t, found, "Feishu", statusUnknown, "the bot's own token")
	wants(t, found, "gateway", statusOK, "is free")
	wants(t, found, "bot", statusUnknown, "by the gateway")
	wants(t, found, "groups file", statusOK, "optional")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	t.Setenv("GATEWAY_ADDR", taken.Addr().String())
	t.Setenv("GATEWAY_TLS", "file")
	t.Setenv("GATEWAY_CERT_FILE", "/does/not/exist")
	t.Setenv("GATEWAY_KEY_FILE", "/does/not/exist")
	t.Setenv("FEISHU_APP_ID", app.ID)
	t.Setenv("FEISHU_APP_SECRET", "not it")
	code, found = checked(t)
	if code != 1 {
		t.Errorf("status %d, want 1", code)
	}
	wants(t, found, "Feishu", statusFail, "FEISHU_APP_SECRET")
	wants(t, found, "gateway", statusFail, "GATEWAY_ADDR")

	t.Setenv("FEISHU_APP_SECRET", app.Secret)
	_, found = checked(t)
	wants(t, found, "Feishu bot", statusOK, "is BotA")
	t.Setenv("FEISHU_APP_SECRET", "")
	t.Setenv("FEISHU_BASE_URL", "http://"+taken.Addr().String())
	t.Setenv("GATEWAY_TLS", "off")
	taken.Close()
	_, found = checked(t)
	wants(t, found, "Feishu", statusFail, "FEISHU_BASE_URL")
}
