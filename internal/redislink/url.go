package redislink

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
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
	scheme, rest, _ := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if len(scheme) == len(text) || !slices.Contains(schemes, scheme) {
		return nil, errors.New("redis URL: begins with none of redis://, rediss://, unix://, redis+sentinel://, redis+cluster://")
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("redis URL: a # in a password is written %23")
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
	if err == nil && scheme == "unix" {
		err = parseSocket(opts, hosts, path)
	} else if err == nil {
		_, form, _ := strings.Cut(scheme, "+")
		err = parsePlace(opts, form, hosts, path)
	}
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	return opts, nil
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
	var files tlsFiles
	for key, all := range values {
		value := all[len(all)-1]
		switch key {
		case "ca_file":
			files.ca = value
		case "cert_file":
			files.cert = value
		case "key_file":
			files.key = value
		case "db":
			if opts.DB, err = parseDB(value); err != nil {
				return err
			}
		case "skip_verify":
			skip, err := strconv.ParseBool(value)
			if err != nil {
				return errors.New("skip_verify is neither true nor false")
			}
			if opts.TLSConfig == nil {
				return errors.New("skip_verify needs rediss://")
			}
			opts.TLSConfig.InsecureSkipVerify = skip
		case "sentinel_username":
			opts.SentinelUsername = value
		case "sentinel_password":
			opts.SentinelPassword = value
		default:
			return errors.New("has an unknown parameter (known: db, ca_file, cert_file, key_file, skip_verify, " +
				"sentinel_username, sentinel_password), or a ? in a password that is written %3F")
		}
	}
	return files.load(opts.TLSConfig)
}

// parseSocket reads the path of a socket; a host makes it relative.
func parseSocket(opts *redis.UniversalOptions, host, path string) error {
	if host != "" || path == "" {
		return errors.New("a socket's path is absolute: unix:///path/to/redis.sock")
	}
	socket, err := url.PathUnescape("/" + path)
	if err != nil {
		return errors.New("a % in the socket's path is written %25")
	}
	opts.Addrs = []string{socket}
	return nil
}

// parsePlace reads the servers and the path, whose meaning depends on the form.
func parsePlace(opts *redis.UniversalOptions, form, hosts, path string) error {
	port := "6379"
	if form == "sentinel" {
		port = "26379"
	}
	if hosts == "" {
		hosts = "localhost"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := parseAddr(strings.TrimSpace(host), port)
		if err != nil {
			return err
		}
		opts.Addrs = append(opts.Addrs, addr)
	}
	switch {
	case form == "sentinel":
		name, db, _ := strings.Cut(path, "/")
		name, err := url.PathUnescape(name)
		if err != nil || name == "" {
			return errors.New("Sentinel needs the name of the master: redis+sentinel://host/name")
		}
		opts.MasterName, path = name, db
	case opts.SentinelUsername != "" || opts.SentinelPassword != "":
		return errors.New("sentinel_username and sentinel_password need redis+sentinel://")
	case form == "cluster" || len(opts.Addrs) > 1:
		opts.IsClusterMode = true
	}
	if path != "" {
		var err error
		if opts.DB, err = parseDB(path); err != nil {
			return err
		}
	}
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

func parseDB(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, errors.New("the database is not a number: redis://host/0")
	}
	return int(n), nil
}
