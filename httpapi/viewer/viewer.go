// Package viewer is the web page on which an operator sees the groups: the
// conversations as they go on, what the policy said to each message, the agents,
// the mailbox and how this sidecar is. The page is plain HTML, CSS and ES
// modules, needs nothing from outside, and gets every figure from the API that
// scripts use.
package viewer

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

//go:embed static
var static embed.FS

// policy lets the page load and call what comes from this sidecar, and nothing
// else: a message that became a script by some mistake would not run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// page is the file that GET / answers.
const page = "index.html"

// file is one file of the page.
type file struct {
	data []byte
	kind string // its Content-Type
	etag string
}

// Handler serves the page at GET / and its files at GET /viewer/{file}.
func Handler() http.Handler {
	files := load()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { files[page].serve(w, r) })
	mux.HandleFunc("GET /viewer/{file}", func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.PathValue("file")]
		if !ok {
			notFound(w)
			return
		}
		f.serve(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { notFound(w) })
	return mux
}

// load reads what is embedded, by name.
func load() map[string]file {
	files := map[string]file{}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		files[path.Base(name)] = made(name, data)
		return nil
	})
	files[reasonsFile] = made(reasonsFile, reasons())
	if err != nil {
		panic("viewer: " + err.Error()) // embedded files are always there
	}
	return files
}

// made is a file of the page.
func made(name string, data []byte) file {
	sum := sha256.Sum256(data)
	return file{data, contentType(name), `"` + hex.EncodeToString(sum[:16]) + `"`}
}

const reasonsFile = "reasons.js"

// reasons is a module with what each reason of a stop means and what to do, by language.
func reasons() []byte {
	all := map[relay.Reason]map[string]map[string]string{}
	for _, why := range relay.Reasons() {
		all[why] = map[string]map[string]string{}
		for _, lang := range []string{"en", "zh"} {
			w, key := words.In(lang), "reason/"+string(why)
			all[why][lang] = map[string]string{"means": w.Say(key), "do": w.Say(key + "/do")}
		}
	}
	data, _ := json.Marshal(all) // always possible
	return append([]byte("export const reasons = "), data...)
}

// contentType does not ask the host's table of types, which may call a script
// text/plain, and that does not run.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// serve answers with the file, or 304 to a browser that has it.
func (f file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	h.Set("Content-Type", f.kind)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}

func notFound(w http.ResponseWriter) {
	web.WriteError(w, relay.Errorf(web.CodeNotFound, "the viewer has no such file; the page is at /"))
}
