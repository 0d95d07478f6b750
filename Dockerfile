# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/feishu-relay ./cmd/feishu-relay \
    && mkdir -m 0700 /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/feishu-relay /feishu-relay
# A volume mounted here takes the rights of this folder.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV DATA_DIR=/data LISTEN_ADDR=127.0.0.1:8787
VOLUME /data
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["/feishu-relay", "health"]
ENTRYPOINT ["/feishu-relay"]
