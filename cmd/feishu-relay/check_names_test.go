package main

import (
	"strings"
	"testing"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
)

func TestCheckEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name, environ string // with spaces between
		says          string // "": nothing
	}{
		{"all known", "AGENT_NAME=a BOT_REPLY_LLM_THRESHOLD=2", ""},
		{"a letter is missing", "BOT_REPLY_LLM_TRESHOLD=hidden", "BOT_REPLY_LLM_TRESHOLD is not read; BOT_REPLY_LLM_THRESHOLD is"},
		{"two letters are swapped", "REDIS_ULR=hidden", "rename it to REDIS_URL"},
		{"no underscore", "AGENTNAME=a", "rename it to AGENT_NAME"},
		{"small letters", "agent_name=a", "rename it to AGENT_NAME"},
		{"a wrong word behind our prefix", "GATEWAY_ADDRESS=hidden", "rename it to GATEWAY_ADDR if that is meant"},
		{"anything behind our prefix", "RELAY_TURBO=hidden", "RELAY_TURBO is no variable of ours"},
		{"set to nothing", "GATEWAY_ADRR=", "rename it to GATEWAY_ADDR"},
		{"near to one that is set", "API_TOKEN=x APP_TOKEN=y", ""},
		{"near to one that is not", "APP_TOKEN=y", "rename it to API_TOKEN"},
		{"somebody else's", "HOST_NAME=h HOSTNAME=h PATH=/ OPENAI_ORG_ID=o FEISHU_DOMAIN=lark LOGNAME=l DATA=d", ""},
		{"of Kubernetes", "GATEWAY_SERVICE_HOST=h GATEWAY_SERVICE_PORT=1 GATEWAY_SERVICE_PORT_HTTP=1 GATEWAY_PORT=tcp://h:1 GATEWAY_PORT_8788_TCP=x GATEWAY_PORT_8788_TCP_ADDR=x RELAY_PORT_1_UDP_PROTO=udp", ""},
		{"of other programs", "APP_ID=a APP_SECRET=s API_KEY=k BASE_URL=u PUBLIC_URL=u CERT_FILE=f KEY_FILE=f SSL_CERT_FILE=f LEVEL=1 " +
			"BOT_ID=b BOT_TOKEN=t WEBHOOK_URL=u MAX_AGE=1 LOG=1 DATA=d MODEL=m NAME=n ROLE=r AGENT=a URL=u OPENAI_KEY=k OPENAI_ORG_ID=o " +
			"FEISHU=1 FEISHU_ALLOW_BOTS=a FEISHU_CONNECTION_MODE=w REDIS_HOST=h REDIS_PASSWORD=p LOG_FILE=f HOME=/ USER=u SHELL=s " +
			"TERM=t LANG=C PWD=/ OLDPWD=/ EDITOR=e XDG_DATA_DIRS=d XDG_DATA_HOME=d DBUS_SESSION_BUS_ADDRESS=d SSH_AUTH_SOCK=s " +
			"GITHUB_TOKEN=t NPM_CONFIG_LOGLEVEL=l HTTP_PROXY=p NO_PROXY=n AWS_ACCESS_KEY_ID=k MAIL=m MAIL_CHECK=1 TIMEOUT=1", ""},
		{"of Windows", "=C:=C:\\", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var found []selftest.Finding
			for _, n := range checkEnvironment(strings.Fields(tt.environ)) {
				found = append(found, n.in(words.Words{}))
			}
			switch {
			case tt.says == "" && len(found) > 0:
				t.Errorf("got %+v, want nothing", found)
			case tt.says != "":
				wants(t, map[string][]selftest.Finding{"environment": found}, "environment", selftest.Warn, tt.says)
			}
			for _, f := range found {
				if strings.Contains(f.Detail+f.Mend, "hidden") {
					t.Errorf("a value is shown: %+v", f)
				}
			}
		})
	}
}

// A misspelt variable is often why the configuration has a mistake.
func TestCheckTellsOfNamesBesideMistakes(t *testing.T) {
	configured(t)
	t.Setenv("AGENT_NAME", "")
	t.Setenv("AGENT_NAM", "agent_a")
	code, found := checked(t)
	wants(t, found, "AGENT_NAME", selftest.Fail, "required")
	wants(t, found, "environment", selftest.Warn, "AGENT_NAM is not read; AGENT_NAME is")
	if code != 1 {
		t.Errorf("status %d, want 1", code)
	}
}
