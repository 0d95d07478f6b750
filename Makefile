# feishu-relay. `make demo` and `make test` are all a newcomer needs.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
CRASH_KILLS ?= 200
FAULT_ROUNDS ?= 1
PACKAGES ?= $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN || echo 2) / 2)))
FLAGS   := -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)"

# Debug information, which released programs do not have, takes a fifth of the time of compiling and linking.
GOFLAGS += -gcflags=all=-dwarf=false -ldflags=-w
export GOFLAGS

.PHONY: build demo chat view test check crash upgrade redis6 faults soak foreign frameworks bench scale scale-plots fuzz image dist lint tools clean

build: ## the binary
	CGO_ENABLED=0 $(GO) build $(FLAGS) -o feishu-relay ./cmd/feishu-relay

demo: build ## three acts: bots with a few lines of code, unchanged bots, agents that hand work over; BACKEND=redis uses a real Redis
	./feishu-relay demo

chat: build ## the same, and you are the user
	./feishu-relay demo --chat

view: build ## the first act, and the page in a browser stays until Ctrl-C
	./feishu-relay demo --view

test: tools check ## everything that must hold, as CI runs it
	# The longest packages first. Most tests wait more than they compute: many run side by side. The race
	# detector would let each test binary, and each program that a test starts, end a second late.
	@folder=$$(./scripts/test-folder) && trap 'rm -rf "$$folder"' EXIT && trap 'exit 130' HUP INT TERM && \
	set -x && TMPDIR="$$folder" \
	GORACE=atexit_sleep_ms=0 $(GO) test -race -shuffle=on -vet=off -p $(PACKAGES) -parallel 8 -timeout 20m ./sidecar ./cmd/feishu-relay ./relay/redisrelay ./...

check: ## format, vet, modern idioms, module file
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	GOGC=400 $(GO) vet -race ./... # with -race as the tests, so that dependencies are compiled once
	GOGC=400 $(GO) fix -race -diff ./...
	$(GO) mod tidy -diff

crash: tools ## the long crash tests: hundreds of SIGKILLs, on files and on Redis; CRASH_KILLS=1000 for more
	CRASH_KILLS=$(CRASH_KILLS) $(GO) test -race -count=1 -timeout 4h -run 'Crash' -v ./...

upgrade: tools ## an earlier version, then this one on its state, and both in one group; FROM=v0.6.0 or a commit, default: the last version
	UPGRADE=1 UPGRADE_FROM=$(FROM) $(GO) test -count=1 -timeout 1h -run 'Upgrade' -v ./internal/test/endurance

redis6: tools ## the tests of relay and mailbox on Redis 6.0, the oldest that is supported, from Debian 11; needs apt and Debian's keys
	./scripts/redis6 $(GO) test -race -count=1 -timeout 30m ./internal/redislink ./relay/redisrelay ./mailbox/redisbox
	./scripts/redis6 $(GO) test -race -count=1 -timeout 30m -run 'TestScripts/.*/redis' ./sidecar

faults: tools ## wrong clocks; errors of the disk on each file; network faults before Redis and Feishu, failovers of Sentinel and Cluster, resharding; a full Redis of each policy; each FAULT_ROUNDS (1) times
	FAULTS=1 $(GO) test -race -count=1 -timeout 1h -run 'DiskFaults|WrongClocks' -v ./internal/test/endurance
	FAULT_ROUNDS=$(FAULT_ROUNDS) $(GO) test -race -count=1 -timeout 4h -parallel 4 -run 'NetworkFaults|HistoryOfAQueue|ThreeSentinels|ClusterOfSix|LongMessages' -v ./sidecar ./relay/redisrelay ./mailbox/redisbox
	FAULT_ROUNDS=$(FAULT_ROUNDS) $(GO) test -race -count=1 -timeout 4h -parallel 1 -run 'TestFailover$$' -v ./sidecar # one at a time: what is measured is seconds

SOAK ?= 10m
soak: tools ## traffic in groups and mail with kills and restarts for SOAK (10m): everything is accounted for, and nothing grows
	SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -run 'Soak' -v ./internal/test/endurance

bench: tools ## benchmarks beside their baselines, with ratios
	./scripts/bench

BOTS ?= 20
GROUPS ?= 100
RATE ?= 20,50,100,200
SECONDS ?= 10
CLUSTER ?= false
scale: tools ## how many bots and groups one Redis bears: BOTS, GROUPS, RATE (messages a second), SECONDS, CLUSTER=true
	$(GO) run ./internal/test/scale -bots '$(BOTS)' -groups '$(GROUPS)' -rate '$(RATE)' -seconds '$(SECONDS)' -cluster='$(CLUSTER)' -out scale.jsonl

scale-plots: ## the plots of docs/scaling.md, from docs/scaling.jsonl
	cd scripts/scaleplot && $(GO) run . ../../docs/scaling.jsonl ../../docs/images

fuzz: ## each fuzz target for FUZZTIME (10s)
	./scripts/fuzz

image: ## the container image, for this machine's platform
	docker build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --build-arg DATE=$(DATE) -t feishu-relay:$(VERSION) -t feishu-relay .

dist: ## releases for Linux, macOS and Windows and container images, the same bytes each time from the same commit
	VERSION=$(VERSION) COMMIT=$(COMMIT) DATE=$(DATE) GO='$(GO)' FLAGS='$(FLAGS)' ./scripts/dist

lint: ## the OpenAPI document, deploy/, the Dockerfile and the scripts, with public tools; MISSING_TOOLS=allow goes on without some
	@./scripts/install-tools lint || [ "$(MISSING_TOOLS)" = allow ]
	MISSING_TOOLS='$(MISSING_TOOLS)' ./scripts/lint

foreign: tools ## programs of others: MCP clients and the conformance suite; redocly on the OpenAPI document; Prism, which compares calls and answers with it
	./scripts/lint openapi
	FOREIGN=1 $(GO) test -race -count=1 -timeout 30m -run 'TestForeign' -v ./cmd/feishu-relay
	FOREIGN=1 $(GO) test -race -count=1 -timeout 30m -run 'TestScripts' -v ./sidecar

frameworks: tools ## before a release: OpenClaw from npm (700 MB), set up as the docs say, works with another bot; minutes
	FOREIGN=1 $(GO) test -race -count=1 -timeout 60m -run 'TestOpenClaw' -v ./cmd/feishu-relay

tools: ## what the tests need and the machine lacks; it says what it installs, as root
	@./scripts/install-tools

clean:
	rm -rf feishu-relay dist
