# The builder runs on the build platform and cross-compiles, which for Go is much faster than
# emulating the target platform. The tag selects the latest patch release of Go, so this build is
# not reproducible. Released images are built by `make image-archive`, which is reproducible.
FROM --platform=$BUILDPLATFORM golang:1.26 AS builder
ARG TARGETOS
ARG TARGETARCH
WORKDIR /workspace

# Modules change less often than sources, so they have a separate layer.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

# .dockerignore limits the build context to the required directories.
COPY . .
# The version that the manager reports. `make docker-build` sets both arguments.
ARG VERSION=""
ARG REVISION=""
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags="-s -w \
      -X github.com/nslifecycle/nslifecycle/internal/version.version=${VERSION} \
      -X github.com/nslifecycle/nslifecycle/internal/version.revision=${REVISION}" -o manager ./cmd

# The base image contains CA certificates and time zone data, but no shell and no package manager.
# Dependabot updates the digest.
FROM gcr.io/distroless/static:nonroot@sha256:e2e927ec666bae08560abb3c55d0659eceabb657f56b6782ab500a9fc7f555e3
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="nslifecycle" \
      org.opencontainers.image.description="Initializes and finalizes Kubernetes namespaces." \
      org.opencontainers.image.url="https://github.com/nslifecycle/nslifecycle" \
      org.opencontainers.image.source="https://github.com/nslifecycle/nslifecycle" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /
COPY --from=builder /workspace/manager .
USER 65532:65532

ENTRYPOINT ["/manager"]
