package feishu

import "strings"

// IsOpenHost reports whether host, with or without the port 443 or 80, is one
// that serves Feishu's or Lark's open API: those are the ones a gateway opens.
func IsOpenHost(host string) bool {
	name, port, found := strings.Cut(host, ":")
	if found && port != "443" && port != "80" {
		return false
	}
	switch strings.ToLower(strings.TrimSuffix(name, ".")) {
	case "open.feishu.cn", "open.larksuite.com":
		return true
	}
	return false
}
