package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// row is the result of one rate. CPU figures are in percent of one core.
type row struct {
	At       time.Time `json:"at"`
	Bots     int       `json:"bots"`
	Groups   int       `json:"groups"`
	Members  int       `json:"members"`
	Cluster  bool      `json:"cluster"`
	Signed   bool      `json:"signed"`
	Users    bool      `json:"users"` // sidecars share people's messages
	Seed     uint64    `json:"seed"`
	Seconds  float64   `json:"seconds"`
	Rate     float64   `json:"rate"`   // intended messages of bots a second
	Sent     float64   `json:"sent"`   // sent messages of bots a second
	Hops     int       `json:"hops"`   // messages that were read, at all bots
	P50      float64   `json:"p50_ms"` // of a hop
	P99      float64   `json:"p99_ms"`
	Max      float64   `json:"max_ms"`
	LateP99  float64   `json:"late_p99_ms"` // how late the load generator was; it is part of a hop
	Missing  int64     `json:"missing"`     // never read nor stopped
	Repeated int64     `json:"repeated"`    // read twice
	Refused  int64     `json:"refused"`     // not accepted by the sender's sidecar

	RSS         float64 `json:"rss_mib"` // mean of the sidecars
	MaxRSS      float64 `json:"max_rss_mib"`
	CPU         float64 `json:"cpu"`           // mean of the sidecars
	RedisCPU    float64 `json:"redis_cpu"`     // of the busiest node
	RedisRSS    float64 `json:"redis_rss_mib"` // of the node with the most
	RedisOut    float64 `json:"redis_out_mib"` // MiB a second that all nodes send
	Connections float64 `json:"connections"`   // mean of the sidecars, to all nodes
	Generator   float64 `json:"generator_cpu"`
	Others      float64 `json:"others_cpu"` // everything else on the machine
	Load        float64 `json:"load1"`
}

func header(s settings) string {
	kind := "one Redis"
	if s.cluster {
		kind = "a Cluster"
	}
	return fmt.Sprintf("%d bots, %d groups of %d, %s\n", s.bots, s.groups, s.members, kind) +
		"  rate   sent/s  p50 ms  p99 ms  max ms  missing  refused | sidecar MiB  (max)  CPU %  conns | " +
		"Redis CPU %   MiB  MiB/s | generator %  others %  load"
}

func (r row) String() string {
	return fmt.Sprintf("%6g %8.1f %7.1f %7.1f %7.1f %8d %8d | %11.1f %6.1f %6.2f %6.1f | %11.1f %5.1f %6.2f | %11.1f %9.1f %5.1f",
		r.Rate, r.Sent, r.P50, r.P99, r.Max, r.Missing, r.Refused, r.RSS, r.MaxRSS, r.CPU, r.Connections,
		r.RedisCPU, r.RedisRSS, r.RedisOut, r.Generator, r.Others, r.Load)
}

// appendTo writes r as a line.
func (r row) appendTo(path string) (err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(append(data, '\n'))
	return err
}

// measure plays one rate.
func (f *fleet) measure(outer context.Context, step int, rate float64) (r row, err error) {
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	l := &load{fleet: f, step: step, start: make(chan struct{})}
	for _, c := range schedule(f.settings, f.inGroup, step, rate) {
		l.running = append(l.running, &started{conversation: c})
	}
	before, err := f.stopped(ctx)
	if err != nil {
		return r, err
	}
	var reading, opening sync.WaitGroup
	defer func() {
		fail(nil)
		reading.Wait()
	}()
	listeners := make([]*listener, f.bots)
	for i := range listeners {
		listeners[i] = &listener{bot: i, seen: map[[2]int]bool{}}
		opening.Add(1)
		ready := sync.OnceFunc(opening.Done)
		reading.Go(func() {
			defer ready()
			if err := l.listen(ctx, listeners[i], ready); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("%s: %w", botName(i), err))
			}
		})
	}
	opening.Wait()
	l.began = time.Now()
	close(l.start)

	var used [2]usage
	var looking sync.WaitGroup
	looking.Go(func() {
		for i, at := range []time.Duration{f.warm, f.warm + f.measureFor} {
			if sleepUntil(ctx, l.began.Add(at)) {
				var err error
				if used[i], err = f.usage(ctx); err != nil {
					fail(err)
				}
			}
		}
	})
	l.play(ctx)
	looking.Wait()
	missing, err := l.settled(ctx, before)
	fail(err)
	reading.Wait()
	if cause := context.Cause(ctx); cause != context.Canceled || outer.Err() != nil {
		return r, cause
	}
	slices.Sort(l.late)
	took := merged(listeners)
	r = row{At: time.Now().UTC().Truncate(time.Second), Bots: f.bots, Groups: f.groups, Members: f.members,
		Cluster: f.cluster, Signed: f.secret, Users: f.users, Seed: f.seed, Seconds: f.measureFor.Seconds(), Rate: rate,
		Sent: float64(l.counted.Load()) / f.measureFor.Seconds(), Hops: len(took),
		P50: quantile(took, 0.5), P99: quantile(took, 0.99), Max: quantile(took, 1), LateP99: quantile(l.late, 0.99),
		Missing: missing, Repeated: l.repeated.Load(), Refused: l.refused.Load()}
	r.note(used[0], used[1])
	if l.said != nil {
		fmt.Fprintln(os.Stderr, "not accepted, first of", r.Refused, ":", l.said)
	}
	return r, nil
}

// usage is the resources that the processes have used up to one time.
type usage struct {
	at            time.Time
	sidecars      []float64 // CPU seconds of each
	redis         []float64
	own, machine  float64
	rss, redisRSS []float64 // MiB
	connections   float64   // of all sidecars
	out           float64   // MiB that Redis has sent
	load          float64
}

func (f *fleet) usage(ctx context.Context) (u usage, err error) {
	u.at = time.Now()
	defer func() {
		if err != nil {
			err = fmt.Errorf("read what the processes use: %w", err)
		}
	}()
	look := func(pid int) (seconds, mib float64) {
		p, perr := procfs.NewProc(pid)
		if perr != nil {
			err = errors.Join(err, perr)
			return 0, 0
		}
		st, perr := p.Stat()
		err = errors.Join(err, perr)
		return st.CPUTime(), float64(st.ResidentMemory()) / (1 << 20)
	}
	for _, sc := range f.sidecars {
		seconds, mib := look(sc.Pid())
		u.sidecars, u.rss = append(u.sidecars, seconds), append(u.rss, mib)
	}
	for _, node := range f.nodes {
		info, err := node.Info(ctx, "server", "clients", "stats").Result()
		if err != nil {
			return u, err
		}
		pid, clients, out := 0, 0, 0
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "process_id":
				pid, err = strconv.Atoi(value)
			case "connected_clients":
				clients, err = strconv.Atoi(value)
			case "total_net_output_bytes":
				out, err = strconv.Atoi(value)
			}
			if err != nil {
				return u, err
			}
		}
		seconds, mib := look(pid)
		u.redis, u.redisRSS = append(u.redis, seconds), append(u.redisRSS, mib)
		u.connections += float64(clients - 1) // without ours
		u.out += float64(out) / (1 << 20)
	}
	u.own, _ = look(os.Getpid())
	proc, ferr := procfs.NewDefaultFS()
	if ferr != nil {
		return u, ferr
	}
	machine, serr := proc.Stat()
	load, lerr := proc.LoadAvg()
	if err = errors.Join(err, serr, lerr); err != nil {
		return u, err
	}
	all := machine.CPUTotal
	u.machine = all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ + all.Steal
	u.load = load.Load1
	return u, nil
}

// note sets the usage between two readings.
func (r *row) note(from, to usage) {
	percent := func(a, b float64) float64 { return 100 * (b - a) / to.at.Sub(from.at).Seconds() }
	sum := 0.0
	for i := range to.sidecars {
		sum += percent(from.sidecars[i], to.sidecars[i])
	}
	r.CPU = sum / float64(len(to.sidecars))
	for i := range to.redis {
		p := percent(from.redis[i], to.redis[i])
		r.RedisCPU = max(r.RedisCPU, p)
		sum += p
	}
	r.Generator = percent(from.own, to.own)
	r.Others = max(0, percent(from.machine, to.machine)-sum-r.Generator)
	for _, mib := range to.rss {
		r.RSS += mib / float64(len(to.rss))
	}
	r.MaxRSS, r.RedisRSS = slices.Max(to.rss), slices.Max(to.redisRSS)
	r.Connections = to.connections / float64(len(to.sidecars))
	r.RedisOut = percent(from.out, to.out) / 100
	r.Load = to.load
}
