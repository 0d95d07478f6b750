package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/subprocess"
	"feishu-relay/internal/test/redistest"
)

const (
	patience   = 5 * time.Minute  // how long a sidecar may take to be ready or to answer
	idleCPU    = 1.0              // percent of a core that an idle sidecar uses, on average
	stopWithin = 30 * time.Second // how long a sidecar may take to stop before it is killed
	channel    = "nanobot:feishu:outbound"
)

// fleet is a Redis and the sidecars that use it.
type fleet struct {
	settings
	inGroup  [][]int
	sidecars []*sidecar
	nodes    []*redis.Client
	client   *http.Client
	cleanups []func()
}

// sidecar is one process, and its bot.
type sidecar struct {
	*subprocess.Process
	url string
	log string // path
}

func startFleet(ctx context.Context, s settings, dir string) (_ *fleet, err error) {
	f := &fleet{settings: s, inGroup: membership(s), client: &http.Client{Timeout: patience,
		Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case startError: // of redistest
			err = p
		default:
			panic(p)
		}
		if err != nil {
			f.stop()
		}
	}()
	groups := filepath.Join(dir, "groups", "groups.json") // in its own folder, which sidecars watch
	if err := f.writeGroups(groups); err != nil {
		return nil, err
	}
	url, addrs := f.startRedis()
	for _, addr := range addrs {
		f.nodes = append(f.nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	for i := range s.bots {
		if err := f.spawn(dir, groups, url, i); err != nil {
			return nil, err
		}
	}
	for _, sc := range f.sidecars {
		if err := f.awaitReady(ctx, sc); err != nil {
			return nil, err
		}
	}
	return f, f.awaitIdle(ctx)
}

// awaitIdle waits, at most for f.calm, until the sidecars use little CPU time: at first they read each
// other's messages about their start, which takes many sidecars a while.
func (f *fleet) awaitIdle(ctx context.Context) error {
	from, err := f.usage(ctx)
	for until := time.Now().Add(f.calm); err == nil && time.Now().Before(until); {
		if !sleepUntil(ctx, time.Now().Add(time.Second)) {
			return context.Cause(ctx)
		}
		var r row
		to := usage{}
		if to, err = f.usage(ctx); err == nil {
			r.note(from, to)
		}
		if r.CPU < idleCPU {
			break
		}
		from = to
	}
	return err
}

func (f *fleet) startRedis() (url string, addrs []string) {
	if f.cluster {
		c := redistest.StartCluster(f)
		return c.URL(), c.Addrs()
	}
	srv := redistest.Start(f)
	return srv.URL(), []string{srv.Addr()}
}

// startError is the error of redistest if a server does not start.
type startError string

func (e startError) Error() string { return string(e) }

// Helper, Fatal and Cleanup make f a [redistest.TB].
func (f *fleet) Helper() {}

// Fatal ends startFleet.
func (f *fleet) Fatal(args ...any) { panic(startError(fmt.Sprint(args...))) }

// Cleanup lets stop call do, the last one first.
func (f *fleet) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }

func (f *fleet) writeGroups(path string) error {
	type agent struct {
		Name string `json:"name"`
	}
	type group struct {
		Name    string   `json:"name"`
		Members []string `json:"members"`
	}
	file := struct {
		Agents map[string]agent `json:"agents"`
		Groups map[string]group `json:"groups"`
	}{map[string]agent{}, map[string]group{}}
	for i := range f.bots {
		file.Agents[botName(i)] = agent{Name: fmt.Sprint("Bot ", i)}
	}
	for i, members := range f.inGroup {
		g := group{Name: fmt.Sprint("Group ", i)}
		for _, bot := range members {
			g.Members = append(g.Members, botName(bot))
		}
		file.Groups[groupID(i)] = g
	}
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600))
}

// spawn starts the sidecar of a bot, with its own folders, as on a separate host.
func (f *fleet) spawn(dir, groups, url string, bot int) error {
	addr, err := loopback.Addr()
	if err != nil {
		return err
	}
	home := filepath.Join(dir, botName(bot))
	sc := &sidecar{url: "http://" + addr, log: home + ".log"}
	env := []string{"AGENT_NAME=" + botName(bot), "DATA_DIR=" + home, "GROUPS_FILE=" + groups, "REDIS_URL=" + url,
		"LISTEN_ADDR=" + addr, "RELAY_CHANNEL=" + channel, "LOG_FORMAT=json",
		fmt.Sprint("RELAY_USER_MESSAGES=", f.users)}
	if f.secret {
		env = append(env, "RELAY_SECRET=the same at all sidecars")
	}
	if sc.Process, err = subprocess.Start(dir, sc.log, env, f.program, "run"); err != nil {
		return fmt.Errorf("start a sidecar: %w", err)
	}
	f.sidecars = append(f.sidecars, sc)
	return nil
}

// awaitReady waits until the sidecar is ready. It fails if the process ends.
func (f *fleet) awaitReady(ctx context.Context, sc *sidecar) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := sc.Ready(ctx, func(ctx context.Context) bool {
		status, _, err := f.call(ctx, http.MethodGet, sc.url+"/readyz", nil)
		return err == nil && status == http.StatusOK
	})
	if err != nil {
		return fmt.Errorf("start a sidecar: %w: %s", err, subprocess.LogEnd(sc.log))
	}
	return nil
}

// call sends one request and reads the answer to its end, so that the connection can
// be reused.
func (f *fleet) call(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(string(body)))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// stop ends the sidecars, and then the Redis.
func (f *fleet) stop() {
	var ending sync.WaitGroup
	for _, sc := range f.sidecars {
		ending.Go(func() { _ = sc.Stop(stopWithin) }) // how it ends is not measured
	}
	ending.Wait()
	for _, n := range f.nodes {
		_ = n.Close()
	}
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
	f.client.CloseIdleConnections()
}
