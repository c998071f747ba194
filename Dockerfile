# The builder runs on the machine's own platform and cross-compiles: for Go that
# is much faster than to emulate the target's. The newest patch release of Go is
# worth more here than the same one each time; what is released is made by
# `make image-archive`, which is reproducible.
FROM --platform=$BUILDPLATFORM golang:1.26 AS builder
ARG TARGETOS
ARG TARGETARCH
WORKDIR /workspace

# The modules change less often than the sources: a layer of their own.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

# .dockerignore lets through only what the manager is built from.
COPY . .
# What the manager says of itself. `make docker-build` sets them.
ARG VERSION=""
ARG REVISION=""
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w \
      -X github.com/nslifecycle/nslifecycle/internal/version.version=${VERSION} \
      -X github.com/nslifecycle/nslifecycle/internal/version.revision=${REVISION}" -o manager ./cmd

# Nothing but the binary, certificates and time zones: no shell, no package
# manager, not root. By its digest, which dependabot keeps current.
FROM gcr.io/distroless/static:nonroot@sha256:e2e927ec666bae08560abb3c55d0659eceabb657f56b6782ab500a9fc7f555e3
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="nslifecycle" \
      org.opencontainers.image.description="Looks after a Kubernetes Namespace from its creation to its end." \
      org.opencontainers.image.url="https://github.com/nslifecycle/nslifecycle" \
      org.opencontainers.image.source="https://github.com/nslifecycle/nslifecycle" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /
COPY --from=builder /workspace/manager .
USER 65532:65532

ENTRYPOINT ["/manager"]
