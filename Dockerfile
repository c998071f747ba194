# The builder runs on the machine's own platform and cross-compiles: for Go that
# is much faster than to emulate the target's.
FROM --platform=$BUILDPLATFORM golang:1.26 AS builder
ARG TARGETOS
ARG TARGETARCH
WORKDIR /workspace

# The modules change less often than the sources: a layer of their own.
COPY go.mod go.sum ./
RUN go mod download

# .dockerignore lets through only what the manager is built from.
COPY . .
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w" -o manager ./cmd

# Nothing but the binary, certificates and time zones: no shell, no package
# manager, not root.
FROM gcr.io/distroless/static:nonroot
WORKDIR /
COPY --from=builder /workspace/manager .
USER 65532:65532

ENTRYPOINT ["/manager"]
