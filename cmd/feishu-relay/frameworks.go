package main

import (
	"cmp"
	"net"
	"strings"

	"feishu-relay/internal/words"
)

// framework is what `feishu-relay init` knows of a bot framework. docs/frameworks.md has
// the same lines and more, which a test compares.
type framework struct {
	key      string
	join     joining
	sender   string // INJECT_SENDER_TYPE where it is not the default
	mention  string // INJECT_MENTION
	trust    trust
	file     string // where settings belong: a key of the catalogue, or a path
	settings string // as in docs/frameworks.md, with the addresses that there stand for the chosen ones
	note     string // key of what else is needed
	docs     string // key of the heading of docs/frameworks.md, where that is not the framework's key
}

// joining is how a bot is joined.
type joining int

const (
	byGateway   joining = iota // its Feishu SDK is pointed at the gateway
	byConnector                // the sidecar holds the connection to Feishu
	byAPI                      // it calls the local API
)

// trust is who has to trust the gateway's CA; noTLS is none.
type trust int

const (
	noTLS trust = iota
	trustNode
	trustPython // wants one file with the system's roots and the CA
)

// Addresses and folders in the settings of [frameworks], which init replaces.
const (
	docsGateway = "127.0.0.1:8788"
	docsListen  = "127.0.0.1:8787"
	docsSecure  = "localhost:8788"
	docsData    = "$HOME/.nanobot"
)

const proxySettings = `HTTPS_PROXY=http://127.0.0.1:8788
NO_PROXY=127.0.0.1,localhost
REQUESTS_CA_BUNDLE=/path/bundle.pem
SSL_CERT_FILE=/path/bundle.pem`

var frameworks = []framework{
	{key: "openclaw", mention: "always", trust: trustNode, docs: "anchor/openclaw", file: "~/.openclaw/openclaw.json",
		note: "note/openclaw", settings: `{ channels: { feishu: {
    domain: "https://localhost:8788",   // or accounts.<id>.domain
    allowBots: true,
    groupPolicy: "allowlist",
    groups: { "oc_…": {} },             // or groupPolicy: "open"
} } }`},
	{key: "openclaw-lark", mention: "always", trust: trustNode, file: "~/.openclaw/openclaw.json",
		note: "note/openclaw", settings: `{ channels: { feishu: {
    domain: "https://localhost:8788",
    groupPolicy: "open",
} } }`},
	{key: "hermes", mention: "always", trust: trustPython, file: "settings/hermes",
		settings: "FEISHU_ALLOW_BOTS=mentions\nFEISHU_CONNECTION_MODE=websocket\n" + proxySettings},
	{key: "nanobot", sender: "app", mention: "always", trust: trustPython, file: "settings/nanobot", note: "note/nanobot",
		settings: proxySettings},
	{key: "astrbot", mention: "always", file: "settings/astrbot", note: "note/start first",
		settings: `{"type":"lark","app_id":"cli_…","app_secret":"…","domain":"http://127.0.0.1:8788",` +
			`"lark_connection_mode":"socket"}`},
	{key: "langbot", mention: "always", file: "settings/langbot", note: "note/langbot", settings: "http://127.0.0.1:8788"},
	{key: "koishi", mention: "addressed", docs: "anchor/sdk", file: "settings/koishi",
		settings: "http://127.0.0.1:8788/open-apis"},
	{key: "cc-connect", mention: "always", file: "settings/cc-connect", settings: `[projects.platforms.options]
app_id = "cli_…"
app_secret = "…"
domain = "http://127.0.0.1:8788"`},
	{key: "sdk-go", mention: "addressed", docs: "anchor/sdk", file: "settings/code",
		settings: `api := lark.NewClient(id, secret, lark.WithOpenBaseUrl("http://127.0.0.1:8788"))
ws := larkws.NewClient(id, secret, larkws.WithDomain("http://127.0.0.1:8788"), larkws.WithEventHandler(h))`},
	{key: "sdk-node", mention: "addressed", docs: "anchor/sdk", file: "settings/code",
		settings: `const domain = 'http://127.0.0.1:8788';
const api = new lark.Client({ appId, appSecret, domain });
const ws = new lark.WSClient({ appId, appSecret, domain });`},
	{key: "sdk-python", mention: "addressed", docs: "anchor/sdk", file: "settings/code", note: "note/start first",
		settings: `DOMAIN = "http://127.0.0.1:8788"
api = lark.Client.builder().app_id(ID).app_secret(SECRET).domain(DOMAIN).build()
ws = lark.ws.Client(ID, SECRET, event_handler=handler, domain=DOMAIN)`},
	{key: "connector", join: byConnector, docs: "anchor/own", file: "settings/connector",
		settings: "http://127.0.0.1:8787/v1/stream\nhttp://127.0.0.1:8787/v1/send"},
	{key: "own", join: byAPI, docs: "anchor/own", file: "settings/own",
		settings: "http://127.0.0.1:8787/v1/stream\nhttp://127.0.0.1:8787/v1/outbound\nhttp://127.0.0.1:8787/v1/inbound"},
}

// name is the framework's name, which is its key where the catalogue has no other.
func (f framework) name(w words.Words) string {
	return strings.TrimPrefix(w.Say("framework/"+f.key), "framework/")
}

// anchor is the heading of the framework in docs/frameworks.md, or in its Chinese version.
func (f framework) anchor(w words.Words) string { return w.Say(cmp.Or(f.docs, f.key)) }

// frameworkNamed returns the framework with the key.
func frameworkNamed(key string) (framework, bool) {
	for _, f := range frameworks {
		if f.key == strings.ToLower(key) {
			return f, true
		}
	}
	return framework{}, false
}

func frameworkKeys() (keys []string) {
	for _, f := range frameworks {
		keys = append(keys, f.key)
	}
	return keys
}

// variables are the settings of the sidecar that the framework wants.
func (f framework) variables() map[string]string {
	switch f.join {
	case byConnector:
		return map[string]string{"CONNECTOR": "true"}
	case byAPI:
		return map[string]string{}
	}
	set := map[string]string{"INJECT_MENTION": f.mention, "INJECT_SENDER_TYPE": cmp.Or(f.sender, "bot")}
	if f.trust != noTLS {
		set["GATEWAY_TLS"] = "auto"
	}
	return set
}

// lines are the framework's settings for a sidecar at these addresses.
func (f framework) lines(listen, gateway, data string) string {
	_, port, _ := net.SplitHostPort(gateway)
	return strings.NewReplacer(docsGateway, gateway, docsSecure, "localhost:"+port, docsListen, listen,
		docsData, data, "/path/bundle.pem", data+"/bundle.pem").Replace(f.settings)
}
