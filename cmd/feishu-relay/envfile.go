package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/joho/godotenv"

	"feishu-relay/sidecar"
)

// variableName is the form of a variable's name. godotenv takes others as well, such as
// the empty one for a line without "=".
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// loadEnvFile sets the variables of the file that the environment does not have. It
// returns warnings about the file.
func loadEnvFile(path string) ([]notice, error) {
	set, err := readEnvFile(path)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, has := os.LookupEnv(name); has {
			continue
		}
		_ = os.Setenv(name, set[name]) // never fails: readEnvFile lets nothing else than variables through
	}
	return warnReadable(path, set), nil
}

// readEnvFile returns the variables of a file of KEY=VALUE lines. Its error names the
// line, and shows nothing of it: it may hold a secret.
func readEnvFile(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // written by editors on Windows
	if set, ok := parseEnvLines(data); ok {
		return set, nil
	}
	// godotenv's errors have no line. The mistake is behind the longest part that parses.
	lines := bytes.SplitAfter(data, []byte{'\n'})
	good := len(lines) - 1
	for ; good > 0; good-- {
		if _, ok := parseEnvLines(bytes.Join(lines[:good], nil)); ok {
			break
		}
	}
	return nil, fmt.Errorf("%s:%d: want KEY=VALUE or a # comment; a quoted value ends with the quote it begins with",
		path, good+1)
}

func parseEnvLines(data []byte) (map[string]string, bool) {
	set, err := godotenv.UnmarshalBytes(data)
	if err != nil {
		return nil, false
	}
	for name, value := range set {
		if !variableName.MatchString(name) || strings.ContainsRune(value, 0) {
			return nil, false
		}
	}
	return set, true
}

// warnReadable warns of a file with secrets that other users can read.
func warnReadable(path string, set map[string]string) []notice {
	secrets := slices.DeleteFunc(secretNames(), func(name string) bool { return set[name] == "" })
	info, err := os.Stat(path)
	if err != nil || len(secrets) == 0 || runtime.GOOS == "windows" || info.Mode().Perm()&0o044 == 0 {
		return nil
	}
	return []notice{{"env file", "secrets readable", []any{path, strings.Join(secrets, ", ")}}}
}

// secretNames are the settings that hold secrets.
func secretNames() (names []string) {
	for _, v := range variables() {
		if _, secret := v.field.Interface().(sidecar.Secret); secret {
			names = append(names, v.name)
		}
	}
	return names
}
