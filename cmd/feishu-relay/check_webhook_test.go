package main

import (
	"fmt"
	"strings"
	"testing"

	"feishu-relay/internal/selftest"
)

// The check connects to where the bot takes messages, and shows nothing else of the URL.
func TestCheckWebhook(t *testing.T) {
	newTenant(t)
	setenv(t, "GATEWAY_ADDR", "127.0.0.1:0", "FEISHU_VERIFICATION_TOKEN", "hidden-token")
	at := listener(t)
	for url, want := range map[string]struct {
		status selftest.Status
		says   string
	}{
		"http://hidden-user:hidden-pw@" + at + "/hidden-path": {selftest.OK, "something listens at BOT_WEBHOOK_URL (" + at + ")"},
		"http://hidden-user:hidden-pw@127.0.0.1:1/hidden":     {selftest.Fail, "start the bot"},
	} {
		t.Setenv("BOT_WEBHOOK_URL", url)
		_, found := checked(t)
		wants(t, found, "bot webhook", want.status, want.says)
		if strings.Contains(fmt.Sprint(found), "hidden") {
			t.Errorf("a secret is shown: %v", found["bot webhook"])
		}
	}
}
