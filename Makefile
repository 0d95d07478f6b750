# feishu-relay. `make demo` and `make test` are all a newcomer needs.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
CRASH_KILLS ?= 200
FAULT_ROUNDS ?= 1
FLAGS   := -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)"

# Debug information, which released programs do not have, takes a fifth of the time of compiling and linking. With
# -trimpath what one clone compiled serves the next.
GOFLAGS += -trimpath -gcflags=all=-dwarf=false -ldflags=-w
export GOFLAGS

.PHONY: build demo chat view test verify check cross crash redis6 faults soak foreign frameworks bench scale scale-plots fuzz image dist lint tools verify-tools clean

build: ## the binary
	CGO_ENABLED=0 $(GO) build $(FLAGS) -o feishu-relay ./cmd/feishu-relay

demo: build ## two acts: unchanged bots in a group, agents that hand work over; BACKEND=redis uses a real Redis
	./feishu-relay demo

chat: build ## the same, and you are the user
	./feishu-relay demo --chat

view: build ## the first act, and the page in a browser stays until Ctrl-C
	./feishu-relay demo --view

test: tools check ## before each commit: each promise once; 3 minutes, on a new machine 8
	@./scripts/test

verify: verify-tools cross ## everything but the long tests, with the race detector: Redis in every form, kills, faults, browsers, programs of others; 25 minutes
	@./scripts/test verify

check: ## format, vet, staticcheck, modern idioms, module file, sizes
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	./scripts/size --check
	$(GO) vet ./...
	$(GO) tool -modfile=scripts/tools.mod staticcheck -checks=inherit,-ST1005 ./... # our errors begin with Feishu
	$(GO) fix -diff ./...
	$(GO) mod tidy -diff

cross: ## that it compiles for macOS, with its tests, and for Windows
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) build ./...

crash: verify-tools ## the long crash tests: hundreds of SIGKILLs, on files and on Redis; CRASH_KILLS=1000 for more
	CRASH_KILLS=$(CRASH_KILLS) $(GO) test -race -count=1 -timeout 4h -run 'Crash' -v ./...

redis6: verify-tools ## the tests of relay and mailbox on Redis 6.0, the oldest that is supported, from Debian 11; needs apt and Debian's keys
	./scripts/redis6 $(GO) test -race -count=1 -timeout 30m ./internal/redislink ./relay/redisrelay ./mailbox/redisbox
	./scripts/redis6 $(GO) test -race -count=1 -timeout 30m -run 'TestScripts/.*/redis' ./sidecar

faults: verify-tools ## wrong clocks; errors of the disk on each file; network faults before Redis and Feishu, failovers of Sentinel and Cluster, resharding; a full Redis of each policy; each FAULT_ROUNDS (1) times
	FAULTS=1 $(GO) test -race -count=1 -timeout 1h -run 'DiskFaults|WrongClocks' -v ./internal/test/endurance
	FAULT_ROUNDS=$(FAULT_ROUNDS) $(GO) test -race -count=1 -timeout 4h -parallel 4 -run 'NetworkFaults|ClusterOfSix' -v ./sidecar ./mailbox/redisbox
	FAULT_ROUNDS=$(FAULT_ROUNDS) $(GO) test -race -count=1 -timeout 4h -parallel 1 -run 'TestFailover$$' -v ./sidecar # one at a time: what is measured is seconds

SOAK ?= 10m
soak: verify-tools ## traffic in groups and mail with kills and restarts for SOAK (10m): everything is accounted for, and nothing grows
	SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -run 'Soak' -v ./internal/test/endurance

bench: verify-tools ## benchmarks beside their baselines, with ratios
	./scripts/bench

BOTS ?= 20
GROUPS ?= 100
RATE ?= 20,50,100,200
SECONDS ?= 10
CLUSTER ?= false
scale: verify-tools ## how many bots and groups one Redis bears: BOTS, GROUPS, RATE (messages a second), SECONDS, CLUSTER=true
	$(GO) test -count=1 -timeout 0 -run '^TestScale$$' -v ./internal/test/bench -bots '$(BOTS)' -groups '$(GROUPS)' -rates '$(RATE)' -seconds '$(SECONDS)' \
		-cluster='$(CLUSTER)' -out '$(CURDIR)/scale.jsonl'

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

foreign: verify-tools ## programs of others: MCP clients and the conformance suite; redocly on the OpenAPI document
	./scripts/lint openapi
	FOREIGN=1 $(GO) test -race -count=1 -timeout 30m -run 'TestForeign' -v ./cmd/feishu-relay

frameworks: verify-tools ## before a release: OpenClaw from npm (700 MB), set up as the docs say, works with another bot; minutes
	FOREIGN=1 $(GO) test -race -count=1 -timeout 60m -run 'TestOpenClaw' -v ./cmd/feishu-relay

tools: ## what `make test` needs and the machine lacks; it says what it installs, as root
	@./scripts/install-tools test

verify-tools: ## what `make verify` and the longer tests need
	@./scripts/install-tools verify

clean:
	rm -rf feishu-relay dist
