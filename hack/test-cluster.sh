#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end tests or the conformance specs of Kubernetes, with the image IMG in dist/image.tar:
#
#   hack/test-cluster.sh e2e|conformance [FLAG]...
#
# The command LOAD_IMAGE loads the image in IMAGE_ARCHIVE into the cluster of KUBECONFIG. Without it, the tests run in a
# new Kind cluster with the node image KIND_NODE_IMAGE and the configuration KIND_CONFIG, which is deleted after the
# tests, even if they fail.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly tests="$1" cluster=nslifecycle-test-e2e upstream=test/conformance/upstream
shift
export IMAGE_ARCHIVE="${PWD}/dist/image.tar"

# Kubernetes has the version that the module pins, which must be that of the cluster.
if [[ "${tests}" == conformance ]]; then
  version="$(go list -C "${upstream}" -m -f '{{.Version}}' k8s.io/kubernetes)"
  go build -C "${upstream}" -o "${PWD}/bin/conformance/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
  go test -C "${upstream}" -c -o "${PWD}/bin/conformance/e2e.test" \
    -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=${version}" k8s.io/kubernetes/test/e2e
fi

if [[ -n "${LOAD_IMAGE:-}" ]]; then
  eval "${LOAD_IMAGE}"
else
  KUBECONFIG="$(mktemp)"
  export KUBECONFIG
  trap 'bin/kind delete cluster --name="${cluster}"; rm -f "${KUBECONFIG}"' EXIT
  bin/kind create cluster --name="${cluster}" --wait=3m ${KIND_NODE_IMAGE:+"--image=${KIND_NODE_IMAGE}"} \
    ${KIND_CONFIG:+"--config=${KIND_CONFIG}"}
  bin/kind load image-archive "${IMAGE_ARCHIVE}" --name="${cluster}"
fi

if [[ "${tests}" == e2e ]]; then
  # The build tag ensures that go test ./... does not require a cluster.
  go test -tags=e2e -count=1 ./test/e2e -timeout 60m -v -ginkgo.v "$@"
  exit
fi
for state in ${STATES:-without user admin}; do
  # In the state without, nslifecycle is not installed yet.
  [[ "${state}" == without ]] || hack/install.sh deploy
  go run ./test/conformance --state="${state}" "$@"
done
go run ./test/conformance --compare
