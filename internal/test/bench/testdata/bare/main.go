// Command bare is the daemon that a sidecar's footprint is held against: it
// has the sidecar's libraries in it, serves HTTP, is subscribed to Redis, and
// does nothing.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/coder/websocket"
	"github.com/fsnotify/fsnotify"
	"github.com/gowebpki/jcs"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/kelseyhightower/envconfig"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	openai "github.com/sashabaranov/go-openai"
	"golang.org/x/text/unicode/norm"
)

func main() {
	if err := run(); err != nil {
		slog.Error("bare", "err", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var cfg struct {
		RedisURL   string `envconfig:"REDIS_URL"`
		ListenAddr string `envconfig:"LISTEN_ADDR"`
		Dir        string `envconfig:"DATA_DIR"`
	}
	if err := envconfig.Process("", &cfg); err != nil {
		return err
	}
	opts, err := redis.ParseURL(cfg.RedisURL)
	if err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer client.Close()
	sub := client.Subscribe(ctx, "bare")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return err
	}
	seen, err := lru.New[string, struct{}](5000)
	if err != nil {
		return err
	}
	go func() {
		for m := range sub.Channel() {
			seen.Add(norm.NFC.String(m.Payload), struct{}{})
		}
	}()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(cfg.Dir); err != nil {
		return err
	}
	go func() {
		for e := range watcher.Events {
			slog.Debug("event", "event", e)
		}
	}()
	l, err := net.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes()}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	_ = server.Serve(l)
	return nil
}

func routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	model := openai.NewClient("")
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		_, data, _ := conn.Read(r.Context())
		data, _ = jcs.Transform(data)
		_ = conn.Write(r.Context(), websocket.MessageText, data)
	})
	mux.HandleFunc("POST /ask", func(w http.ResponseWriter, r *http.Request) {
		answer, err := model.CreateChatCompletion(r.Context(), openai.ChatCompletionRequest{Model: r.FormValue("model")})
		_ = json.NewEncoder(w).Encode([]any{answer, err})
	})
	return mux
}
