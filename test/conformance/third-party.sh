#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs integration suites of Kueue, unmodified, on the cluster of KUBECONFIG. With nslifecycle:
#
#   go run ./test/conformance --state=user test/conformance/third-party.sh
#   go run ./test/conformance --state=user test/conformance/third-party.sh scheduler -ginkgo.focus=NamespaceSelector
#
# The suites write the status of Jobs and Pods themselves. So the cluster must be new and have no nodes, and
# kube-controller-manager must run only these controllers:
#
#   kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
#     --controllers=namespace-controller,resourcequota-controller
#
# Before a suite is run again, delete the webhook configurations that it created.

set -euo pipefail

readonly module=sigs.k8s.io/kueue version=v0.17.0
# The suite of jobs must come first: the webhooks of the other suites remain, without a server.
suites=(controller/jobs/job controller/core webhook/core scheduler)
if [[ $# -gt 0 && "$1" != -* ]]; then
  suites=("$1")
  shift
fi

# The Go modules are read-only, and the cache outlives the script.
work="$(mktemp -d)"
readonly work
trap 'rm -rf "${work}"' EXIT

mkdir "${work}/module"
cd "${work}/module"
export GOFLAGS=-mod=mod GOWORK=off
go mod init third-party
go get -t "${module}/test/integration/singlecluster/...@${version}"
source="$(go list -m -f '{{.Dir}}' "${module}")"

# What Kueue's make target compile-crd-manifests generates.
project="${work}/project"
mkdir -p "${project}/config/components/crd/_output"
kubectl kustomize "${source}/config/components/crd" >"${project}/config/components/crd/_output/crds-with-webhooks.yaml"
cp -r "${source}/config/components/webhook" "${project}/config/components/"
chmod -R u+w "${project}"

failed=0
for suite in "${suites[@]}"; do
  USE_EXISTING_CLUSTER=true PROJECT_DIR="${project}/" ARTIFACTS="${work}" \
    E2E_TEST_AGNHOST_IMAGE=registry.k8s.io/e2e-test-images/agnhost:2.59 \
    go test "${module}/test/integration/singlecluster/${suite}" -count=1 -v -timeout 60m "$@" || failed=1
done
exit "${failed}"
