package redislink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxPEM bounds a file of certificates or a key, in bytes.
const maxPEM = 1 << 20

// tlsFiles are the parameters of a rediss URL that name PEM files; "" where missing.
type tlsFiles struct{ ca, cert, key string }

// load reads the files into config, which is nil without TLS. An error names the parameter
// and the file.
func (f tlsFiles) load(config *tls.Config) error {
	switch {
	case f == tlsFiles{}:
		return nil
	case config == nil:
		return errors.New("ca_file, cert_file and key_file need rediss://")
	case f.cert != "" && f.key == "":
		return errors.New("cert_file needs key_file, the certificate's private key")
	case f.key != "" && f.cert == "":
		return errors.New("key_file needs cert_file, the certificate of that key")
	}
	if f.ca != "" {
		text, err := readPEM("ca_file", f.ca)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("ca_file: %s holds no certificate in PEM form", f.ca)
		}
	}
	if f.cert == "" {
		return nil
	}
	cert, err := readPEM("cert_file", f.cert)
	if err != nil {
		return err
	}
	key, err := readPEM("key_file", f.key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("cert_file %s and key_file %s are not a certificate and its key in PEM form: %w", f.cert,
			f.key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

func readPEM(parameter, name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, unreadable(parameter, name, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err != nil {
		return nil, unreadable(parameter, name, err)
	}
	if len(text) > maxPEM {
		return nil, fmt.Errorf("%s: %s is longer than %d bytes, more than any certificate or key", parameter, name, maxPEM)
	}
	return text, nil
}

func unreadable(parameter, name string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the text names the file already
	}
	return fmt.Errorf("%s: %s cannot be read: %w", parameter, name, err)
}
