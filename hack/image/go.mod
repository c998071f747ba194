module github.com/nslifecycle/nslifecycle/hack/image

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/go-containerregistry v0.22.1
)
