#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the image of the manager and writes it to an archive, without a registry or a container engine:
#
#   hack/image/build.sh ghcr.io/nslifecycle/nslifecycle:v0.1.0 linux/amd64,linux/arm64 dist/image.tar
#
# The archive is a tar file of an OCI image layout. ko builds the images, and oras attaches the software bill of
# materials of each image as a referrer. The same commit, Go release and image name result in the same file.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root="${PWD}"
name="$1" platforms="$2" archive="$3"

VERSION="${VERSION:-$(git describe --always --dirty)}"
REVISION="$(git rev-parse HEAD)"
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export VERSION REVISION SOURCE_DATE_EPOCH

# ko only accepts paths in lower case.
work=dist/image
rm -rf "${work}"
trap 'rm -rf "${work}"' EXIT

# ko reads base images from registries and from this cache.
mkdir -p "${work}/cache"
cp -R hack/image/scratch "${work}/cache/img"

label=org.opencontainers.image
KOCACHE="${root}/${work}/cache" bin/ko build ./cmd/manager --push=false --oci-layout-path="${work}/layout" \
  --platform="${platforms}" --sbom=none \
  --image-label="${label}.title=nslifecycle,${label}.description=Initializes and finalizes Kubernetes namespaces." \
  --image-label="${label}.url=https://github.com/nslifecycle/nslifecycle,${label}.licenses=Apache-2.0" \
  --image-label="${label}.source=https://github.com/nslifecycle/nslifecycle" \
  --image-label="${label}.version=${VERSION},${label}.revision=${REVISION}" >/dev/null

digest="$(bin/gojq -r '.manifests[0].digest' "${work}/layout/index.json")"

bom=application/vnd.cyclonedx+json
for platform in ${platforms//,/ }; do
  hack/image/sbom.sh "${work}/cache/bin/github.com/nslifecycle/nslifecycle/cmd/manager/${platform}/out" "${VERSION}" \
    "${work}/manager.cdx.json"
  # oras would set the current time.
  (cd "${work}" && "${root}/bin/oras" attach --oci-layout "layout@${digest}" --platform="${platform}" --no-tty \
    --artifact-type="${bom}" --annotation="${label}.created=1970-01-01T00:00:00Z" "manager.cdx.json:${bom}")
done

# containerd reads the full name, other tools the tag.
bin/gojq --arg name "${name}" --arg digest "${digest}" '
  .manifests |= sort_by(.digest != $digest, .digest) |
  .manifests[0] |= del(.artifactType) |
  .manifests[0].annotations = {
    "io.containerd.image.name": $name, "org.opencontainers.image.ref.name": ($name | split(":")[-1])
  }' "${work}/layout/index.json" >"${work}/index.json"
mv "${work}/index.json" "${work}/layout/index.json"

mkdir -p "$(dirname "${archive}")"
find "${work}/layout" -exec touch -t 197001020000 {} +
tar --create --file="${archive}" --directory="${work}/layout" --format=ustar --sort=name --owner=0 --group=0 \
  --numeric-owner --mode=u=rwX,go=rX blobs index.json oci-layout
echo "Wrote ${archive}: ${name}@${digest}"
