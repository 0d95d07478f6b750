# syntax=docker/dockerfile:1
# One static binary on nothing. For another platform: docker buildx build --platform linux/arm64 .
# For a build that knows its version: make image

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH
ARG VERSION=devel COMMIT="" DATE=""
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" \
    -o /out/feishu-relay ./cmd/feishu-relay \
    && mkdir -m 0700 /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/feishu-relay /feishu-relay
# A volume mounted here takes the rights of this folder.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
# Nothing listens beyond loopback unless it is set otherwise.
ENV DATA_DIR=/data LISTEN_ADDR=127.0.0.1:8787
VOLUME /data
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["/feishu-relay", "health"]
ENTRYPOINT ["/feishu-relay"]
ARG VERSION=devel COMMIT="" DATE=""
LABEL org.opencontainers.image.title="feishu-relay" \
      org.opencontainers.image.description="Lets several self-hosted AI bots work together in one Feishu group" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT \
      org.opencontainers.image.created=$DATE
