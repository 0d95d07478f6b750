package redislink

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var schemes = []string{"redis", "rediss", "unix",
	"redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}

// ParseURL reads a REDIS_URL, in one of these forms:
//
//	redis://[[user]:password@]host[:port][/db]              one server
//	unix://[[user]:password@]/path/to/redis.sock[?db=n]     one server, by its socket
//	redis+sentinel://[[user]:password@]h1[:port],h2…/name[/db]
//	redis+cluster://[[user]:password@]h1[:port],h2…
//	redis://h1[:port],h2[:port]…                            the same: a Cluster
//
// rediss:// (and rediss+sentinel://, rediss+cluster://) is the same over TLS.
// Parameters: db; with TLS ca_file (PEM, the authorities that sign servers'
// certificates; default: the system's), cert_file and key_file (PEM, the client's
// own) and skip_verify=true (servers' certificates are not checked);
// sentinel_username and sentinel_password. In a user or a password the
// characters / ? # @ : % are percent-encoded.
//
// ParseURL reads the files. An error names the file that is at fault and quotes nothing
// else of the URL, since any part of it may belong to a password.
func ParseURL(text string) (*redis.UniversalOptions, error) {
	opts, err := parseURL(text)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	return opts, nil
}

func parseURL(text string) (*redis.UniversalOptions, error) {
	scheme, rest, found := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if !found || !slices.Contains(schemes, scheme) {
		return nil, errors.New("begins with none of redis://, rediss://, unix://, redis+sentinel://, redis+cluster://")
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("a # in a password is written %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	opts := &redis.UniversalOptions{}
	if strings.HasPrefix(scheme, "rediss") {
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	hosts, err := parseUser(opts, authority)
	if err == nil {
		err = parseQuery(opts, query)
	}
	if err == nil {
		err = parsePlace(opts, scheme, hosts, path)
	}
	return opts, err
}

// parseUser reads the credentials at the beginning of authority.
func parseUser(opts *redis.UniversalOptions, authority string) (hosts string, err error) {
	i := strings.LastIndexByte(authority, '@')
	if i < 0 {
		return authority, nil
	}
	user, password, ok := strings.Cut(authority[:i], ":")
	if !ok && user != "" {
		return "", errors.New("has a user and no password; a password alone is written :password@")
	}
	var errUser, errPassword error
	opts.Username, errUser = url.PathUnescape(user)
	opts.Password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return "", errors.New("a % in the user or the password is written %25")
	}
	return authority[i+1:], nil
}

func parseQuery(opts *redis.UniversalOptions, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("its parameters cannot be read")
	}
	var db, skip, ca, cert, key string
	parameters := map[string]*string{"db": &db, "ca_file": &ca, "cert_file": &cert, "key_file": &key, "skip_verify": &skip,
		"sentinel_username": &opts.SentinelUsername, "sentinel_password": &opts.SentinelPassword}
	for name, all := range values {
		value, known := parameters[name]
		if !known {
			return errors.New("has an unknown parameter (known: db, ca_file, cert_file, key_file, skip_verify, " +
				"sentinel_username, sentinel_password), or a ? in a password that is written %3F")
		}
		*value = all[len(all)-1]
	}
	if skip != "" {
		if opts.TLSConfig == nil {
			return errors.New("skip_verify needs rediss://")
		}
		if opts.TLSConfig.InsecureSkipVerify, err = strconv.ParseBool(skip); err != nil {
			return errors.New("skip_verify is neither true nor false")
		}
	}
	if opts.DB, err = parseDB(db); err != nil {
		return err
	}
	return loadFiles(opts.TLSConfig, ca, cert, key)
}

// loadFiles reads PEM files into config, which is nil without TLS; a name is "" where its parameter is missing.
func loadFiles(config *tls.Config, ca, cert, key string) error {
	switch {
	case ca+cert+key == "":
		return nil
	case config == nil:
		return errors.New("ca_file, cert_file and key_file need rediss://")
	case (cert == "") != (key == ""):
		return errors.New("cert_file and key_file, the certificate and its private key, need each other")
	}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("ca_file cannot be read: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("ca_file: %s holds no certificate in PEM form", ca)
		}
	}
	if cert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("cert_file %s and key_file %s are not a certificate and its key in PEM form: %w", cert, key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// parsePlace reads the servers and the path, whose meaning depends on the scheme.
func parsePlace(opts *redis.UniversalOptions, scheme, hosts, path string) (err error) {
	_, form, _ := strings.Cut(scheme, "+")
	port := "6379"
	switch {
	case scheme == "unix" && (hosts != "" || path == ""):
		return errors.New("a socket's path is absolute: unix:///path/to/redis.sock")
	case scheme == "unix":
		socket, err := url.PathUnescape("/" + path)
		if err != nil {
			return errors.New("a % in the socket's path is written %25")
		}
		opts.Addrs = []string{socket}
		return nil
	case form == "sentinel":
		port = "26379"
		opts.MasterName, path, _ = strings.Cut(path, "/")
		if opts.MasterName, err = url.PathUnescape(opts.MasterName); err != nil || opts.MasterName == "" {
			return errors.New("Sentinel needs the name of the master: redis+sentinel://host/name")
		}
	case opts.SentinelUsername+opts.SentinelPassword != "":
		return errors.New("sentinel_username and sentinel_password need redis+sentinel://")
	}
	for host := range strings.SplitSeq(cmp.Or(hosts, "localhost"), ",") {
		addr, err := parseAddr(strings.TrimSpace(host), port)
		if err != nil {
			return err
		}
		opts.Addrs = append(opts.Addrs, addr)
	}
	if path != "" {
		if opts.DB, err = parseDB(path); err != nil {
			return err
		}
	}
	opts.IsClusterMode = form == "cluster" || form == "" && len(opts.Addrs) > 1
	if opts.IsClusterMode && opts.DB != 0 {
		return errors.New("a Cluster has only database 0")
	}
	return nil
}

func parseAddr(addr, defaultPort string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // without a port
		host, port, err = net.SplitHostPort(addr + ":" + defaultPort)
	}
	if err != nil {
		return "", errors.New("an IPv6 address is written in brackets: [::1]:6379")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("a port is not a number from 1 to 65535, or a / : @ in a password is not percent-encoded")
	}
	if host == "" || strings.ContainsAny(host, " \t[]%") {
		return "", errors.New("a host is missing or not a host name")
	}
	return net.JoinHostPort(host, port), nil
}

// parseDB reads the number of a database; that of "" is 0.
func parseDB(text string) (int, error) {
	n, err := strconv.ParseUint(cmp.Or(text, "0"), 10, 16)
	if err != nil {
		return 0, errors.New("the database is not a number: redis://host/0")
	}
	return int(n), nil
}
