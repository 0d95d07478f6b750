package main

import (
	"cmp"
	_ "embed"
	"net"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"feishu-relay/internal/words"
)

//go:embed frameworks.yaml
var frameworksFile []byte

// framework is what `feishu-relay init` knows of a bot framework; frameworks.yaml explains it.
type framework struct{ Key, Join, Sender, Mention, Trust, File, Settings, Note, Docs string }

// Values of framework.Join.
const (
	byGateway   = ""
	byConnector = "connector"
	byAPI       = "api"
)

// frameworks are all, in the order in which init shows them.
var frameworks = sync.OnceValue(func() (all []framework) {
	return *must(&all, yaml.Unmarshal(frameworksFile, &all))
})

// name is the framework's name, which is its key where the catalogue has no other.
func (f framework) name(w words.Words) string {
	return strings.TrimPrefix(w.Say("framework/"+f.Key), "framework/")
}

// anchor is the heading of the framework in docs/frameworks.md, or in its Chinese version.
func (f framework) anchor(w words.Words) string { return w.Say(cmp.Or(f.Docs, f.Key)) }

// frameworkNamed returns the framework with the key, and all keys.
func frameworkNamed(key string) (f framework, keys []string) {
	for _, f := range frameworks() {
		keys = append(keys, f.Key)
	}
	if i := slices.Index(keys, strings.ToLower(key)); i >= 0 {
		f = frameworks()[i]
	}
	return f, keys
}

// variables are the settings of the sidecar that the framework wants.
func (f framework) variables() map[string]string {
	switch f.Join {
	case byConnector:
		return map[string]string{"CONNECTOR": "true"}
	case byAPI:
		return map[string]string{}
	}
	set := map[string]string{"INJECT_MENTION": f.Mention, "INJECT_SENDER_TYPE": cmp.Or(f.Sender, "bot")}
	if f.Trust != "" {
		set["GATEWAY_TLS"] = "auto"
	}
	return set
}

// docsListen is the LISTEN_ADDR of the docs, which is the default.
const docsListen = "127.0.0.1:8787"

// lines are the framework's settings for a sidecar at these addresses.
func (f framework) lines(listen, gateway, data string) string {
	_, port, _ := net.SplitHostPort(gateway)
	return strings.NewReplacer("127.0.0.1:8788", gateway, "localhost:8788", "localhost:"+port, docsListen, listen,
		"$HOME/.nanobot", data, "/path/bundle.pem", data+"/bundle.pem").Replace(f.Settings)
}
