# feishu-relay. `make demo` and `make test` are all a newcomer needs.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FLAGS   := -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: build demo chat view test check crash bench fuzz tools clean

build: ## the binary
	CGO_ENABLED=0 $(GO) build $(FLAGS) -o feishu-relay ./cmd/feishu-relay

demo: build ## three acts: bots with a few lines of code, unchanged bots, agents that hand work over; BACKEND=redis uses a real Redis
	./feishu-relay demo

chat: build ## the same, and you are the user
	./feishu-relay demo --chat

view: build ## the first act, and the page in a browser stays until Ctrl-C
	./feishu-relay demo --view

test: tools check ## everything that must hold, as CI runs it
	$(GO) test -race -shuffle=on -timeout 20m ./sidecar ./... # the longest first

check: ## format, vet, modern idioms, module file
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) fix -diff ./...
	$(GO) mod tidy -diff

crash: tools ## the long crash tests: hundreds of SIGKILLs, on files and on Redis
	CRASH_KILLS=200 $(GO) test -race -count=1 -timeout 60m -run 'Crash' -v ./...

bench: tools ## benchmarks beside their baselines, with ratios
	./scripts/bench

fuzz: ## each fuzz target for FUZZTIME (10s)
	./scripts/fuzz

tools: ## what the tests need and the machine lacks
	@command -v redis-server >/dev/null || ./scripts/install-tools

clean:
	rm -rf feishu-relay dist
