package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu/entry"
)

const (
	endsSoon       = 30 * 24 * time.Hour // a certificate that does is worth a word, and a CA is made anew
	maxCertificate = 1 << 20             // bytes of a file; the gateway reads no more
	trustHint      = "the bot needs NODE_EXTRA_CA_CERTS (Node) or SSL_CERT_FILE and REQUESTS_CA_BUNDLE (Python) set to "
)

// checkCertificate looks at the files, and then at what a bot is shown: by the
// running sidecar, else by a gateway of our own on another port.
func checkCertificate(ctx context.Context, c *config, running bool) []finding {
	const name = "gateway certificate"
	certFile, keyFile := c.Gateway.CertFile, c.Gateway.KeyFile
	switch c.Gateway.TLS {
	case entry.ModeFile:
	case entry.ModeAuto:
		certFile, keyFile = filepath.Join(c.DataDir, "ca.pem"), filepath.Join(c.DataDir, "private", "ca-key.pem")
		if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) {
			return []finding{well(name, "%s will be made at the first start; then %sit", certFile, trustHint)}
		}
	default:
		return nil
	}
	out := openFiles(certFile, keyFile)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	switch auto := c.Gateway.TLS == entry.ModeAuto; {
	case errors.Is(err, fs.ErrPermission):
		return append(out, failure(name, denied(err, "let this user read "+certFile+" and "+keyFile), "%v", err))
	case err != nil && auto:
		return append(out, failure(name, fmt.Sprintf("restore them, or rm %s %s and let the bots load the new one", certFile, keyFile), "%v", err))
	case err != nil:
		return append(out, failure(name, "set GATEWAY_CERT_FILE and GATEWAY_KEY_FILE to a certificate and its key, in PEM", "%v", err))
	case auto && pair.Leaf.NotAfter.Before(time.Now().Add(endsSoon)):
		return append(out, warning(name, "restart the sidecar, and then the bots, which have to read the new "+certFile,
			"the CA ends on %s and is made anew at the next start", pair.Leaf.NotAfter.Format(time.DateOnly)))
	case auto && lacking(pair.Leaf, names(c)) != "":
		return append(out, warning(name, "restart the sidecar, and then the bots, which have to read the new "+certFile,
			"the CA may not sign for %s yet; it is made anew at the next start", lacking(pair.Leaf, names(c))))
	case !auto && pair.Leaf.NotAfter.Before(time.Now()):
		return append(out, failure(name, "renew it: "+certFile, "it ended on %s, and bots refuse it", pair.Leaf.NotAfter.Format(time.DateOnly)))
	case !auto && pair.Leaf.NotAfter.Before(time.Now().Add(endsSoon)):
		out = append(out, warning(name, "renew it: "+certFile+"; the gateway reads it again by itself", "it ends on %s", pair.Leaf.NotAfter.Format(time.DateOnly)))
	}
	addr := reachable(c.Gateway.Addr)
	if !running {
		var end func()
		if addr, end, err = serveCertificate(c); err != nil {
			return append(out, failure(name, "correct GATEWAY_TLS and its files", "%v", err))
		}
		defer end()
	}
	return append(out, shake(ctx, c, addr, certFile, pair.Leaf.NotAfter)...)
}

// names are those under which a bot may know the gateway.
func names(c *config) []string {
	out := []string{"localhost", "127.0.0.1", "::1", "open.feishu.cn", "open.larksuite.com"}
	for _, u := range []*url.URL{c.BaseURL, c.Gateway.PublicURL} {
		if u != nil && !slices.Contains(out, u.Hostname()) {
			out = append(out, u.Hostname())
		}
	}
	return out
}

// lacking is a name that the CA may not sign for, or "".
func lacking(ca *x509.Certificate, names []string) string {
	for _, name := range names {
		ip := net.ParseIP(name)
		ofIP := func(n *net.IPNet) bool { return n.Contains(ip) }
		ofName := func(domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
		if ip != nil && len(ca.PermittedIPRanges) > 0 && !slices.ContainsFunc(ca.PermittedIPRanges, ofIP) ||
			ip == nil && len(ca.PermittedDNSDomains) > 0 && !slices.ContainsFunc(ca.PermittedDNSDomains, ofName) {
			return name
		}
	}
	return ""
}

// openFiles tells who may read what: bots the certificate, nobody else the key.
func openFiles(certFile, keyFile string) (out []finding) {
	const name = "gateway certificate"
	if runtime.GOOS == "windows" {
		return nil // other rights
	}
	if info, err := os.Stat(certFile); err == nil && info.Mode().Perm()&0o004 == 0 {
		out = append(out, warning(name, "chmod 644 "+certFile, "a bot of another user cannot read %s (mode %04o)", certFile, info.Mode().Perm()))
	}
	if info, err := os.Stat(keyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		out = append(out, warning(name, "chmod 600 "+keyFile, "every user of this host can use the key %s (mode %04o)", keyFile, info.Mode().Perm()))
	}
	return out
}

// serveCertificate shows the certificate on a port of the kernel's choice, as a
// gateway does. The files are there and in order, so nothing is made.
func serveCertificate(c *config) (addr string, end func(), err error) {
	e, err := entry.New(entry.Options{Mode: c.Gateway.TLS, CertFile: c.Gateway.CertFile, KeyFile: c.Gateway.KeyFile, DataDir: c.DataDir,
		Names: names(c), Loopback: true, Handler: http.NotFoundHandler()})
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
	const name = "gateway certificate"
	auto := c.Gateway.TLS == entry.ModeAuto
	roots := x509.NewCertPool()
	if !auto {
		if system, err := x509.SystemCertPool(); err == nil {
			roots = system
		}
	}
	unknown := !auto && !knownIssuer(certFile)
	data, err := readAtMost(certFile, maxCertificate)
	if err != nil {
		return []finding{failure(name, denied(err, "let this user read "+certFile), "%v", err)}
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
			if invalid = append(invalid, host); first == nil {
				first = err
			}
			continue
		}
		askNothing(ctx, conn)
		valid = append(valid, host)
	}
	public := c.Gateway.PublicURL
	_, wrongName := errors.AsType[x509.HostnameError](first)
	switch {
	case first != nil && (auto || !wrongName || len(valid) == 0):
		return []finding{failure(name, shakeMend(c, certFile, first), "a bot that calls it %s is refused: %v", invalid[0], first)}
	case public != nil && slices.Contains(invalid, public.Hostname()):
		return []finding{failure(name, "get a certificate for that name, or correct GATEWAY_PUBLIC_URL", "it is not valid for %s: %v", public.Hostname(), first)}
	}
	detail := fmt.Sprintf("valid for %s until %s", strings.Join(valid, ", "), ends.Format(time.DateOnly))
	if auto || unknown {
		detail += "; " + trustHint + certFile
	}
	return []finding{well(name, "%s", detail)}
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
func shakeMend(c *config, certFile string, err error) string {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	switch {
	case authority && c.Gateway.TLS == entry.ModeAuto:
		return "restart the sidecar, which has another " + certFile + " in mind, and then the bot"
	case authority:
		return "put the certificates of its issuers behind it in " + certFile
	case host:
		return "set GATEWAY_PUBLIC_URL to how the bot reaches the gateway, or get a certificate for that name"
	}
	return "restart the sidecar, which may run without GATEWAY_TLS=" + c.Gateway.TLS + "; its log tells more"
}

// knownIssuer reports whether this host trusts the certificate without being told
// to.
func knownIssuer(certFile string) bool {
	data, err := readAtMost(certFile, maxCertificate)
	if err != nil {
		return false
	}
	var chain []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			chain = append(chain, cert)
		}
	}
	if len(chain) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Intermediates: between})
	return err == nil
}
