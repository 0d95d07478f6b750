package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu/entry"
	"feishu-relay/sidecar"
)

const (
	endsSoon       = 30 * 24 * time.Hour // a certificate that does is worth a word, and a CA is made anew
	maxCertificate = 1 << 20             // bytes of a file; the gateway reads no more
)

// trustHint says how a bot trusts the CA in file.
func trustHint(file text) text {
	return say("the bot needs NODE_EXTRA_CA_CERTS (Node) or SSL_CERT_FILE and REQUESTS_CA_BUNDLE (Python) set to %s",
		"机器人要把 NODE_EXTRA_CA_CERTS（Node）或 SSL_CERT_FILE 和 REQUESTS_CA_BUNDLE（Python）设成 %s", file)
}

// checkCertificate looks at the files, and then at what a bot is shown: by the running
// sidecar, else by a gateway of our own on another port.
func checkCertificate(ctx context.Context, s *subject) []finding {
	auto, certFile, keyFile := s.Gateway.TLS == entry.ModeAuto, s.Gateway.CertFile, s.Gateway.KeyFile
	if auto {
		certFile, keyFile = filepath.Join(s.DataDir, "ca.pem"), filepath.Join(s.DataDir, "private", "ca-key.pem")
		if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) {
			return well("%s will be made at the first start; then %s", "%s 会在第一次启动时创建；之后%s",
				certFile, trustHint(text{"it", "它"}))
		}
	} else if s.Gateway.TLS != entry.ModeFile {
		return nil
	}
	out := openFiles(certFile, keyFile)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return append(out, failure(denied(err,
			say("let this user read %s and %s", "让这个用户能读 %s 和 %s", certFile, keyFile)), "%v", "", err)...)
	case err != nil && auto:
		return append(out, failure(say("restore them, or rm %s %s and let the bots load the new one",
			"恢复它们，或 rm %s %s，再让机器人加载新的", certFile, keyFile),
			"%v", "", err)...)
	case err != nil:
		return append(out, failure(say("set GATEWAY_CERT_FILE and GATEWAY_KEY_FILE to a certificate and its key, in PEM",
			"把 GATEWAY_CERT_FILE 和 GATEWAY_KEY_FILE 设成 PEM 格式的证书和它的密钥"),
			"%v", "", err)...)
	}
	restart := say("restart the sidecar, and then the bots, which have to read the new %s",
		"重启边车，再重启机器人，让它们读取新的 %s", certFile)
	left, ends := time.Until(pair.Leaf.NotAfter), pair.Leaf.NotAfter.Format(time.DateOnly)
	forbidden := func(name string) bool { return !entry.Permits(pair.Leaf, name) }
	switch lacks := slices.IndexFunc(names(s.config), forbidden); {
	case auto && left < endsSoon:
		return append(out, warning(restart,
			"the CA ends on %s and is made again at the next start", "CA 于 %s 到期，下次启动时会重新创建", ends)...)
	case auto && lacks >= 0:
		return append(out, warning(restart,
			"the CA may not sign for %s yet; it is made again at the next start",
			"CA 还不能为 %s 签发证书，下次启动时会重新创建", names(s.config)[lacks])...)
	case !auto && left < 0:
		return append(out, failure(say("renew it: %s", "换新证书：%s", certFile),
			"it ended on %s, and bots refuse it", "已于 %s 到期，机器人会拒绝它", ends)...)
	case !auto && left < endsSoon:
		out = append(out, warning(say("renew it: %s; the gateway reads it again by itself", "换新证书：%s；网关会自己重新读取", certFile),
			"it ends on %s", "%s 到期", ends)...)
	}
	addr := sidecar.Reachable(s.Gateway.Addr)
	if bound(ctx, s.Gateway.Addr) == nil {
		own, end, err := serveCertificate(s.config)
		if err != nil {
			return append(out, failure(say("correct GATEWAY_TLS and its files", "改正 GATEWAY_TLS 和它的文件"), "%v", "", err)...)
		}
		defer end()
		addr = own
	}
	return append(out, shake(ctx, s.config, addr, certFile, pair.Leaf.NotAfter)...)
}

// names are those by which a bot may know the gateway.
func names(c *config) []string {
	out := []string{"localhost", "127.0.0.1", "::1", "open.feishu.cn", "open.larksuite.com"}
	for _, u := range []*url.URL{c.BaseURL, c.Gateway.PublicURL} {
		if u != nil && !slices.Contains(out, u.Hostname()) {
			out = append(out, u.Hostname())
		}
	}
	return out
}

// openFiles looks at who may read what: bots the certificate, nobody else the key.
func openFiles(certFile, keyFile string) (out []finding) {
	if mode := permissions(certFile); mode != 0 && mode&0o004 == 0 {
		out = warning(alike("chmod 644 "+certFile),
			"a bot of another user cannot read %s (mode %04o)",
			"其他用户的机器人读不了 %s（权限 %04o）", certFile, mode)
	}
	if mode := permissions(keyFile); mode&0o007 != 0 {
		out = append(out, warning(alike("chmod 600 "+keyFile),
			"every user of this host can use the key %s (mode %04o)",
			"这台主机的所有用户都能用密钥 %s（权限 %04o）", keyFile, mode)...)
	}
	return out
}

// serveCertificate shows the certificate on a port of the kernel's choice, as a
// gateway does. The files are there and in order, so nothing is made.
func serveCertificate(c *config) (addr string, end func(), err error) {
	e, err := entry.New(entry.Options{Mode: c.Gateway.TLS, CertFile: c.Gateway.CertFile, KeyFile: c.Gateway.KeyFile,
		DataDir: c.DataDir, Names: names(c), Loopback: true, Handler: http.NotFoundHandler()})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Serve(l) }()
	return l.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.Shutdown(ctx) // nobody else was told of the port
		<-ended
	}, nil
}

// shake connects as a bot does that knows the gateway by each of its names, and
// trusts the CA, or in mode file the certificate itself.
func shake(ctx context.Context, c *config, addr, certFile string, ends time.Time) []finding {
	auto := c.Gateway.TLS == entry.ModeAuto
	roots, known := x509.NewCertPool(), false
	if !auto {
		if system, err := x509.SystemCertPool(); err == nil {
			roots = system
		}
	}
	data, err := readAtMost(certFile, maxCertificate)
	if err != nil {
		return failure(denied(err, say("let this user read %s", "让这个用户能读 %s", certFile)), "%v", "", err)
	}
	roots.AppendCertsFromPEM(data)
	var valid, invalid []string
	var first error
	for _, host := range names(c) {
		if host == "::1" {
			continue // as good as localhost, and rarely used
		}
		d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host}}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			invalid, first = append(invalid, host), cmp.Or(first, err)
			continue
		}
		known = !auto && trusted(conn.(*tls.Conn).ConnectionState().PeerCertificates)
		askNothing(ctx, conn)
		valid = append(valid, host)
	}
	public := c.Gateway.PublicURL
	switch {
	case first != nil && (auto || !isA[x509.HostnameError](first) || len(valid) == 0):
		return failure(shakeMend(c, certFile, first),
			"a bot that calls it %s is refused: %v", "用 %s 访问的机器人会被拒绝：%v", invalid[0], first)
	case public != nil && slices.Contains(invalid, public.Hostname()):
		return failure(say("get a certificate for that name, or correct GATEWAY_PUBLIC_URL",
			"为那个名字申请证书，或改正 GATEWAY_PUBLIC_URL"),
			"it is not valid for %s: %v", "对 %s 无效：%v", public.Hostname(), first)
	}
	hint := say("; %s", "；%s", trustHint(alike(certFile)))
	if known {
		hint = text{}
	}
	return well("valid for %s until %s%s",
		"对 %s 有效，到 %s%s", strings.Join(valid, ", "), ends.Format(time.DateOnly), hint)
}

// trusted reports whether this host trusts the first of the certificates without being
// told to.
func trusted(chain []*x509.Certificate) bool {
	between := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		between.AddCert(certificate)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Intermediates: between})
	return err == nil
}

// askNothing ends a connection with an empty line, which the gateway's server
// answers by itself: one that leaves without a word is taken for a bot that
// refuses the certificate.
func askNothing(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	_, _ = conn.Write([]byte("\r\n"))
	_, _ = conn.Read(make([]byte, 1)) // by then it was read
}

// shakeMend is what to do about a certificate that a bot does not accept.
func shakeMend(c *config, certFile string, err error) text {
	authority := isA[x509.UnknownAuthorityError](err)
	switch {
	case authority && c.Gateway.TLS == entry.ModeAuto:
		return say("restart the sidecar, which has another %s in mind, and then the bot",
			"重启边车（它用的是另一个 %s），再重启机器人", certFile)
	case authority:
		return say("put the certificates of its issuers behind it in %s", "把它的签发者的证书接在后面，放进 %s", certFile)
	case isA[x509.HostnameError](err):
		return say("set GATEWAY_PUBLIC_URL to how the bot reaches the gateway, or get a certificate for that name",
			"把 GATEWAY_PUBLIC_URL 设成机器人访问网关的地址，或为那个名字申请证书")
	}
	return say("restart the sidecar, which may run without GATEWAY_TLS=%s; its log tells more",
		"重启边车，它运行时也许没有 GATEWAY_TLS=%s；详见它的日志", c.Gateway.TLS)
}
