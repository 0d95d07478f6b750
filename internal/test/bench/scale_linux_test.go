package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/sse"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

var (
	scaleOut     = flag.String("out", "", "file that lines of figures are appended to; empty: a short test")
	scaleBots    = flag.Int("bots", 3, "how many bots, each with a sidecar")
	scaleGroups  = flag.Int("groups", 4, "how many groups")
	scaleRates   = flag.String("rates", "40", "comma list: messages of bots a second, in all groups together")
	scaleSeconds = flag.Float64("seconds", 1, "how long each rate is measured")
	scaleCluster = flag.Bool("cluster", false, "a Cluster of six nodes instead of one Redis")
)

const (
	scaleWarm    = 2 * time.Second        // of each rate, not measured
	scaleIdle    = 1.0                    // percent of a core that an idle sidecar uses
	scaleLost    = 30 * time.Second       // without a further delivery: what is missing then does not come
	scaleTooSlow = 1000.0                 // p99 in milliseconds beyond which higher rates are left out
	scaleID      = "om_scale_%d_%d"       // of a bot's message: the number of its rate, and its own
	scaleSecret  = "the same at sidecars" // signing costs time
)

// figures of one rate, as docs/scaling.jsonl has them. CPU is in percent of one core.
type scaleRow struct {
	At       time.Time `json:"at"`
	Bots     int       `json:"bots"`
	Groups   int       `json:"groups"`
	Members  int       `json:"members"`
	Cluster  bool      `json:"cluster"`
	Users    bool      `json:"users"` // sidecars share people's messages
	Seconds  float64   `json:"seconds"`
	Rate     float64   `json:"rate"`
	Sent     float64   `json:"sent"`   // accepted messages of bots a second
	Hops     int       `json:"hops"`   // messages that were read, at all bots
	P50      float64   `json:"p50_ms"` // of a hop, as P99 and Max
	P99      float64   `json:"p99_ms"`
	Max      float64   `json:"max_ms"`
	Missing  int64     `json:"missing"`  // deliveries that did not come
	Repeated int64     `json:"repeated"` // deliveries that came again
	RSS      float64   `json:"rss_mib"`  // mean of the sidecars
	CPU      float64   `json:"cpu"`      // mean of the sidecars
	RedisCPU float64   `json:"redis_cpu"`
	RedisRSS float64   `json:"redis_rss_mib"` // of the busiest node, as RedisCPU
}

// TestScale measures how many bots and groups one Redis bears: sidecars of the release program, and bots that write in
// groups of four at random times, however slow the sidecars are. A person speaks before every third message, which all
// bots of the group hear. A hop lasts from when a message was due until another bot of the group has read it. The short
// form shows that each message is read once by each of them; `make scale` is the long one.
func TestScale(t *testing.T) {
	long := *scaleOut != ""
	if !long {
		verify.Only(t)
	}
	f := startFleet(t)
	if long {
		f.awaitIdle(t)
	}
	for i, text := range strings.Split(*scaleRates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := f.measure(t, i, rate)
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", line)
		if r.Hops == 0 || r.Repeated > 0 || !long && r.Missing > 0 {
			t.Errorf("%d hops, %d missing, %d again", r.Hops, r.Missing, r.Repeated)
		}
		if !long {
			return
		}
		out, err := os.OpenFile(*scaleOut, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.Write(append(line, '\n'))
		if err = errors.Join(err, out.Close()); err != nil {
			t.Fatal(err)
		}
		if r.P99 > scaleTooSlow {
			return
		}
	}
}

// fleet is a Redis, and sidecars with the bots of groups.
type fleet struct {
	members  [][]int // bots, by group
	sidecars []*daemon
	nodes    []*redis.Client
	client   *http.Client

	mu       sync.Mutex
	step     int             // the number of the rate; guarded by mu
	due      []time.Time     // of the messages; guarded by mu
	took     []time.Duration // of hops; guarded by mu
	seen     map[string]bool // bots and messages; guarded by mu
	repeated int64           // guarded by mu
}

func startFleet(t *testing.T) *fleet {
	f := &fleet{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	random := rand.New(rand.NewPCG(1, 0))
	file := struct {
		Groups map[string]any `json:"groups"`
	}{map[string]any{}}
	for i := range *scaleGroups {
		f.members = append(f.members, random.Perm(*scaleBots)[:min(4, *scaleBots)])
		var names []string
		for _, bot := range f.members[i] {
			names = append(names, fmt.Sprint("bot_", bot))
		}
		file.Groups[fmt.Sprint("oc_scale_", i)] = map[string]any{"members": names}
	}
	data, err := json.Marshal(file)
	groups := filepath.Join(t.TempDir(), "groups.json")
	if err = errors.Join(err, os.WriteFile(groups, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	url, addrs := "", []string(nil)
	if *scaleCluster {
		c := redistest.StartCluster(t)
		url, addrs = c.URL(), c.Addrs()
	} else {
		srv := redistest.Start(t)
		url, addrs = srv.URL(), []string{srv.Addr()}
	}
	for _, addr := range addrs {
		node := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = node.Close() })
		f.nodes = append(f.nodes, node)
	}
	for i := range *scaleBots {
		sidecar := startSidecar(t, t.TempDir(), url, fmt.Sprint("bot_", i), "GROUPS_FILE="+groups,
			"RELAY_SECRET="+scaleSecret)
		f.sidecars = append(f.sidecars, sidecar)
		stream := sidecar.open(t)
		go func() { // until the sidecar ends
			for e, err := range sse.Read(stream) {
				if err == nil && e.Kind == "message" {
					f.hear(i, e.ID)
				}
			}
		}()
	}
	return f
}

// awaitIdle waits until the sidecars have read what each said at its start.
func (f *fleet) awaitIdle(t *testing.T) {
	for began := time.Now(); time.Since(began) < 5*time.Minute; {
		from := f.usage(t)
		time.Sleep(time.Second)
		if r := (scaleRow{}); r.note(from, f.usage(t)).CPU < scaleIdle {
			return
		}
	}
}

// hear notes that a bot has read a message.
func (f *fleet) hear(bot int, id string) {
	now, step, number := time.Now(), 0, 0
	_, err := fmt.Sscanf(id, scaleID, &step, &number)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := fmt.Sprint(bot, " ", id)
	switch {
	case err != nil || step != f.step:
	case f.seen[key]:
		f.repeated++
	default:
		f.seen[key] = true
		f.took = append(f.took, now.Sub(f.due[number]))
	}
}

// measure plays a rate: first the time that is not measured, then the measured one.
func (f *fleet) measure(t *testing.T, step int, rate float64) scaleRow {
	random := rand.New(rand.NewPCG(1, uint64(step)+1))
	length := time.Duration(*scaleSeconds * float64(time.Second))
	r := scaleRow{At: time.Now().UTC().Truncate(time.Second), Bots: *scaleBots, Groups: *scaleGroups,
		Members: min(4, *scaleBots),
		Cluster: *scaleCluster, Users: true, Seconds: *scaleSeconds, Rate: rate}
	f.play(t, random, -1-step, rate, scaleWarm)
	from := f.usage(t)
	accepted := f.play(t, random, step, rate, length)
	r.note(from, f.usage(t))
	want := accepted * int64(r.Members-1)
	for last, since := 0, time.Now(); ; time.Sleep(50 * time.Millisecond) {
		f.mu.Lock()
		read := len(f.took)
		f.mu.Unlock()
		if read != last {
			last, since = read, time.Now()
		}
		if int64(read) >= want || time.Since(since) > scaleLost {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.took)
	r.Sent, r.Hops = float64(accepted)/length.Seconds(), len(f.took)
	r.Missing, r.Repeated = want-int64(len(f.took)), f.repeated
	if n := len(f.took); n > 0 {
		of := func(i int) float64 { return float64(f.took[i].Microseconds()) / 1000 }
		r.P50, r.P99, r.Max = of(n/2), of(n*99/100), of(n-1)
	}
	return r
}

// play sends messages of bots at their times, and returns how many were accepted.
func (f *fleet) play(t *testing.T, random *rand.Rand, step int, rate float64, length time.Duration) (accepted int64) {
	f.mu.Lock()
	f.step, f.due, f.took, f.seen, f.repeated = step, nil, nil, map[string]bool{}, 0
	f.mu.Unlock()
	var posting sync.WaitGroup
	var n atomic.Int64
	end := time.Now().Add(length)
	for due, i := time.Now(), 0; ; i++ {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if due.After(end) {
			break
		}
		f.mu.Lock()
		f.due = append(f.due, due)
		f.mu.Unlock()
		time.Sleep(time.Until(due))
		group := random.IntN(len(f.members))
		members := f.members[group]
		from := members[random.IntN(len(members))]
		body := map[string]any{"chat_id": fmt.Sprint("oc_scale_", group), "content": text, "ts": due.UnixMilli()}
		posting.Go(func() {
			if i%3 == 0 {
				for _, bot := range members {
					body["message_id"], body["sender"] = fmt.Sprintf("om_person_%d_%d", step, i), "ou_person"
					f.post(t, bot, "/v1/inbound", body)
				}
			}
			body["message_id"] = fmt.Sprintf(scaleID, step, i)
			delete(body, "sender")
			if f.post(t, from, "/v1/outbound", body) {
				n.Add(1)
			}
		})
	}
	posting.Wait()
	return n.Load()
}

func (f *fleet) post(t *testing.T, bot int, route string, body map[string]any) bool {
	err := post(f.client, f.sidecars[bot].url+route, body)
	if err != nil {
		t.Errorf("bot_%d: %v", bot, err)
	}
	return err == nil
}

// scaleUsage is what the sidecars and the nodes have used so far.
type scaleUsage struct {
	at              time.Time
	sidecars, redis []procfs.ProcStat
}

func (f *fleet) usage(t *testing.T) (u scaleUsage) {
	stat := func(pid int) procfs.ProcStat {
		p, err := procfs.NewProc(pid)
		if err != nil {
			t.Fatal(err)
		}
		st, err := p.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	u.at = time.Now()
	for _, s := range f.sidecars {
		u.sidecars = append(u.sidecars, stat(s.cmd.Process.Pid))
	}
	for _, node := range f.nodes {
		info, err := node.Info(context.Background(), "server").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "process_id:")
		pid, _ := strconv.Atoi(strings.Fields(rest)[0])
		u.redis = append(u.redis, stat(pid))
	}
	return u
}

// note sets the usage between two readings.
func (r *scaleRow) note(from, to scaleUsage) *scaleRow {
	seconds := to.at.Sub(from.at).Seconds()
	percent := func(a, b procfs.ProcStat) float64 { return 100 * (b.CPUTime() - a.CPUTime()) / seconds }
	mib := func(s procfs.ProcStat) float64 { return float64(s.ResidentMemory()) / (1 << 20) }
	for i, s := range to.sidecars {
		r.CPU += percent(from.sidecars[i], s) / float64(len(to.sidecars))
		r.RSS += mib(s) / float64(len(to.sidecars))
	}
	for i, s := range to.redis {
		r.RedisCPU, r.RedisRSS = max(r.RedisCPU, percent(from.redis[i], s)), max(r.RedisRSS, mib(s))
	}
	return r
}
