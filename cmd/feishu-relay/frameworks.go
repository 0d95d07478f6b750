package main

import (
	"cmp"
	"net"
	"strings"
)

// framework is what `feishu-relay init` knows of a bot framework. docs/frameworks.md has
// the same lines and more, which a test compares.
type framework struct {
	key      string
	name     text
	join     joining
	sender   string // INJECT_SENDER_TYPE where it is not the default
	mention  string // INJECT_MENTION
	trust    trust
	file     text   // where settings belong
	settings string // as in docs/frameworks.md, with the addresses that there stand for the chosen ones
	note     text   // what else is needed
	heading  text   // of docs/frameworks.md and its Chinese version, as an anchor
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

// Headings that differ between the languages.
var (
	openclawHeading = text{"openclaw-bundled-feishu-channel", "openclaw自带的-feishu-通道"}
	sdkHeading      = text{"the-bare-sdks", "直接用-sdk"}
	ownHeading      = text{"your-own-code", "自己的代码"}
)

var startFirst = text{"start the sidecar before the bot", "先启动边车，再启动机器人"}

// openclawNote is about both channels of OpenClaw.
var openclawNote = text{"`openclaw config patch --stdin` takes these lines from the terminal, up to Ctrl-D. Then restart OpenClaw.\n" +
	"    Does it run as a service? Set the variables there: systemctl --user edit openclaw-gateway",
	"`openclaw config patch --stdin` 可直接粘贴这些行，以 Ctrl-D 结束。然后重启 OpenClaw。\n" +
		"    OpenClaw 以服务运行时，环境变量要设在服务里：systemctl --user edit openclaw-gateway"}

var frameworks = []framework{
	{key: "openclaw", name: text{"OpenClaw, bundled feishu channel", "OpenClaw，自带的 feishu 通道"}, mention: "always",
		trust: trustNode, heading: openclawHeading, file: text{"~/.openclaw/openclaw.json", "~/.openclaw/openclaw.json"},
		settings: `{ channels: { feishu: {
    domain: "https://localhost:8788",   // or accounts.<id>.domain
    allowBots: true,
    groupPolicy: "allowlist",
    groups: { "oc_…": {} },             // or groupPolicy: "open"
} } }`, note: openclawNote},
	{key: "openclaw-lark", name: alike("openclaw-lark"), mention: "always", trust: trustNode, heading: alike("openclaw-lark"),
		file: text{"~/.openclaw/openclaw.json", "~/.openclaw/openclaw.json"},
		settings: `{ channels: { feishu: {
    domain: "https://localhost:8788",
    groupPolicy: "open",
} } }`, note: openclawNote},
	{key: "hermes", name: alike("Hermes"), mention: "always", trust: trustPython, heading: alike("hermes"),
		file:     text{"the environment of `hermes gateway`", "`hermes gateway` 的环境变量"},
		settings: "FEISHU_ALLOW_BOTS=mentions\nFEISHU_CONNECTION_MODE=websocket\n" + proxySettings},
	{key: "nanobot", name: alike("nanobot"), sender: "app", mention: "always", trust: trustPython, heading: alike("nanobot"),
		file:     text{"nanobot's environment", "nanobot 的环境变量"},
		settings: proxySettings,
		note: text{`nanobot's configuration needs "allowFrom": ["*"]; start the sidecar before the bot`,
			`nanobot 的配置需要 "allowFrom": ["*"]；先启动边车，再启动机器人`}},
	{key: "astrbot", name: alike("AstrBot"), mention: "always", heading: alike("astrbot"), note: startFirst,
		file: text{"the platform in data/cmd_config.json, or the web page", "data/cmd_config.json 中的平台设置，或网页"},
		settings: `{"type":"lark","app_id":"cli_…","app_secret":"…","domain":"http://127.0.0.1:8788",` +
			`"lark_connection_mode":"socket"}`},
	{key: "langbot", name: alike("LangBot"), mention: "always", heading: alike("langbot"),
		file: text{"the bot's settings: Platform Domain is Custom, Custom Domain is",
			"机器人设置：Platform Domain 选 Custom，Custom Domain 填"},
		settings: "http://127.0.0.1:8788",
		note: text{"Bot Name (bot_name) has to be the bot's name in Feishu",
			"Bot Name（bot_name）必须与飞书中的机器人名一致"}},
	{key: "koishi", name: alike("Koishi (@satorijs/adapter-lark)"), mention: "addressed", heading: sdkHeading,
		file: text{"the adapter's endpoint", "适配器的 endpoint"}, settings: "http://127.0.0.1:8788/open-apis"},
	{key: "cc-connect", name: alike("cc-connect"), mention: "always", heading: alike("cc-connect"),
		file: text{"cc-connect's configuration", "cc-connect 的配置"},
		settings: `[projects.platforms.options]
app_id = "cli_…"
app_secret = "…"
domain = "http://127.0.0.1:8788"`},
	{key: "sdk-go", name: text{"Go SDK", "飞书 Go SDK"}, mention: "addressed",
		heading: sdkHeading, file: text{"your code", "代码"},
		settings: `api := lark.NewClient(id, secret, lark.WithOpenBaseUrl("http://127.0.0.1:8788"))
ws := larkws.NewClient(id, secret, larkws.WithDomain("http://127.0.0.1:8788"), larkws.WithEventHandler(h))`},
	{key: "sdk-node", name: text{"Node SDK", "飞书 Node SDK"}, mention: "addressed",
		heading: sdkHeading, file: text{"your code", "代码"},
		settings: `const domain = 'http://127.0.0.1:8788';
const api = new lark.Client({ appId, appSecret, domain });
const ws = new lark.WSClient({ appId, appSecret, domain });`},
	{key: "sdk-python", name: text{"Python SDK", "飞书 Python SDK"}, mention: "addressed",
		heading: sdkHeading, file: text{"your code", "代码"},
		note: startFirst,
		settings: `DOMAIN = "http://127.0.0.1:8788"
api = lark.Client.builder().app_id(ID).app_secret(SECRET).domain(DOMAIN).build()
ws = lark.ws.Client(ID, SECRET, event_handler=handler, domain=DOMAIN)`},
	{key: "connector", name: text{"own code without a Feishu SDK: the sidecar connects", "自己的代码，不用飞书 SDK：由边车连接飞书"},
		join: byConnector, heading: ownHeading, file: text{"your code reads and writes", "代码读写"},
		settings: "http://127.0.0.1:8787/v1/stream\nhttp://127.0.0.1:8787/v1/send"},
	{key: "own", name: text{"own code with a connection of its own, or without Feishu", "自己的代码，自己连接飞书，或不用飞书"},
		join: byAPI, heading: ownHeading, file: text{"your code calls", "代码调用"},
		settings: "http://127.0.0.1:8787/v1/stream\nhttp://127.0.0.1:8787/v1/outbound\nhttp://127.0.0.1:8787/v1/inbound"},
}

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
