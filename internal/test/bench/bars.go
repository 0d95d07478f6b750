package main

// A suite is benchmarks of one package that run together.
type suite struct {
	pkg    string // folder of the package
	bench  string // -test.bench
	time   string // -test.benchtime: by the clock or by the number of turns
	rounds int    // at most so many; 0: as many as asked for
}

var suites = []suite{
	{pkg: "sidecar", bench: "^Benchmark(Sequential|PingPong|Burst)$", time: "3x"},
	{pkg: "sidecar", bench: "^BenchmarkHop$", time: "3x"},
	{pkg: "book", bench: "^BenchmarkCommit$", time: "500ms"},
	{pkg: "internal/test/bench", bench: "^Benchmark(Start|FanOut8|WholeWay|Idle)$", time: "3x"},
	{pkg: "internal/test/bench", bench: "^BenchmarkMemory$", time: "1x", rounds: 1},
	{pkg: "sidecar", bench: "^BenchmarkGatewaySend$", time: "20x"},
	{pkg: "feishu/link", bench: "^BenchmarkPassThrough$", time: "2s"},
}

// A figure names one value that a benchmark reports.
type figure struct {
	pkg   string
	bench string // with its sub-benchmarks, without "Benchmark"
	unit  string // as reported
	// rate makes a rate of a time: so many operations in it. 0 leaves the value
	// as it is.
	rate float64
	// fixed is a value that is no measurement, in the unit of the other side.
	fixed float64
}

// A bar is one row of the table: a figure of ours, its baseline, and the aim for
// their ratio.
type bar struct {
	number string
	what   string
	ours   figure
	bare   figure
	aim    float64 // 0: shown for comparison only
	more   bool    // the ratio is to be at least aim; else at most
}

// of is a figure of a package's benchmark.
func of(pkg, bench, unit string) figure { return figure{pkg: pkg, bench: bench, unit: unit} }

// perSecond is the rate of a benchmark whose turn is n operations.
func perSecond(pkg, bench string, n float64) figure {
	return figure{pkg: pkg, bench: bench, unit: "ns/op", rate: n}
}

// allBars are the bars in the order of the documentation.
var allBars = []bar{
	{"1", "throughput, one call a message", of("sidecar", "Sequential", "msg/s"), of("sidecar", "Sequential", "bare-msg/s"), 0.8, true},
	{"1", "one message after the other has arrived", of("sidecar", "PingPong", "msg/s"), of("sidecar", "PingPong", "bare-msg/s"), 0.25, true},
	{"2", "burst, against pipelines of 100", of("sidecar", "Burst", "msg/s"), of("sidecar", "Burst", "bare-msg/s"), 0.35, true},
	{"2", "the same, against a bare loop of as many callers that is durable", of("sidecar", "Burst", "msg/s"), of("sidecar", "Burst", "durable-msg/s"), 0.5, true},
	{"2", "posts of 16 callers until the bot has them, 40 lively chats, a second", of("internal/test/bench", "WholeWay/lively", "msg/s"), figure{fixed: 6000}, 1, true},
	{"2", "the same, in rounds of 500 without a person", of("internal/test/bench", "WholeWay/long", "msg/s"), figure{fixed: 6000}, 1, true},
	{"3", "fan-out to 8 processes", of("internal/test/bench", "FanOut8", "msg/s"), of("internal/test/bench", "FanOut8", "bare-msg/s"), 0.25, true},
	{"4", "hop over Redis, p50", of("sidecar", "Hop/redis", "p50-us"), of("sidecar", "Hop/redis", "bare-p50-us"), 2, false},
	{"4", "hop over Redis, p99", of("sidecar", "Hop/redis", "p99-us"), of("sidecar", "Hop/redis", "bare-p99-us"), 2, false},
	{"4", "hop over files, p50, against inotify", of("sidecar", "Hop/file", "p50-us"), of("sidecar", "Hop/file", "bare-p50-us"), 6, false},
	{"4", "hop over files, p50, against the bare Redis hop", of("sidecar", "Hop/file", "p50-us"), of("sidecar", "Hop/redis", "bare-p50-us"), 1.5, false},
	{"7", "commit of three records to the book, against a bare append", perSecond("book", "Commit/sync=false/ours", 1), perSecond("book", "Commit/sync=false/bare", 1), 0, true},
	{"7", "the same with RELAY_FSYNC", perSecond("book", "Commit/sync=true/ours", 1), perSecond("book", "Commit/sync=true/bare", 1), 0.7, true},
	{"10", "idle RSS, against a bare daemon", of("internal/test/bench", "Idle", "MiB"), of("internal/test/bench", "Idle", "bare-MiB"), 1.5, false},
	{"10", "RSS after 1 M messages, against 10 k", of("internal/test/bench", "Memory", "MiB"), of("internal/test/bench", "Memory", "early-MiB"), 1.3, false},
	{"10", "stripped binary, against the bare one", of("internal/test/bench", "Idle", "file-MB"), of("internal/test/bench", "Idle", "bare-file-MB"), 1.3, false},
	{"G1", "send through the gateway, p50, Feishu answers at once", of("sidecar", "GatewaySend/at_once", "p50-us"), of("sidecar", "GatewaySend/at_once", "bare-p50-us"), 1.3, false},
	{"G1", "the same, Feishu takes 20 ms", of("sidecar", "GatewaySend/20ms", "p50-us"), of("sidecar", "GatewaySend/20ms", "bare-p50-us"), 1.3, false},
	{"G2", "sends of 8 clients, Feishu answers at once", of("sidecar", "GatewaySend/at_once", "msg/s"), of("sidecar", "GatewaySend/at_once", "bare-msg/s"), 0.8, true},
	{"G2", "the same, Feishu takes 20 ms", of("sidecar", "GatewaySend/20ms", "msg/s"), of("sidecar", "GatewaySend/20ms", "bare-msg/s"), 0.8, true},
	{"G3", "events through the long connection, against a pipe", of("feishu/link", "PassThrough", "events/s"), of("feishu/link", "PassThrough", "bare-events/s"), 0.8, true},
}

// needed is the suites that the bars are made of. A package's suites are taken
// together: which benchmark is in which of them is for -test.bench to know.
func needed(all []suite, bars []bar) []suite {
	pkgs := map[string]bool{}
	for _, b := range bars {
		pkgs[b.ours.pkg], pkgs[b.bare.pkg] = true, true
	}
	var out []suite
	for _, s := range all {
		if pkgs[s.pkg] {
			out = append(out, s)
		}
	}
	return out
}
