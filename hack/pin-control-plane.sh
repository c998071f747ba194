#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Pins the kube-apiserver of another minor release, for make test-versions:
#
#   hack/pin-control-plane.sh 1.35           the latest patch release in the module proxy
#   hack/pin-control-plane.sh 1.35 v1.35.4   the given patch release
#
# It writes go.mod and go.sum in hack/controlplane/<minor>/, based on the go.mod of
# k8s.io/kubernetes: each staging module is replaced by its published version, since
# k8s.io/kubernetes replaces them with directories that its module does not contain. If
# the module proxy does not have that version, the script uses the previous patch release.

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly root

die() {
  echo "pin-control-plane: $*" >&2
  exit 1
}

[[ "$#" -ge 1 && "$1" =~ ^1\.[0-9]+$ ]] || die "Specify a minor release, for example: hack/pin-control-plane.sh 1.35"
readonly minor="$1"
version="${2:-}"

export GOWORK=off GOFLAGS=-mod=mod
scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT
cd "${scratch}"
# go list requires a module.
echo "module scratch" >go.mod

if [[ -z "${version}" ]]; then
  # Sorted by version, without pre-releases.
  version="$(go list -m -versions k8s.io/kubernetes | tr ' ' '\n' | { grep -E "^v${minor//./\\.}\.[0-9]+$" || true; } |
    sort -t . -k 3 -n | tail -n 1)"
  [[ -n "${version}" ]] || die "The module proxy has no release of Kubernetes ${minor}."
fi
[[ "${version}" == "v${minor}."* ]] || die "${version} is not a release of Kubernetes ${minor}."
readonly version
readonly staging="v0.${version#v1.}"

download="$(go mod download -json "k8s.io/kubernetes@${version}")"
upstream="$(sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p' <<<"${download}")"
[[ -f "${upstream}" ]] || die "There is no go.mod of k8s.io/kubernetes ${version}."

staged="$(sed -n 's|^[[:space:]]*\(k8s\.io/[a-z0-9-]*\) => \./staging/.*|\1|p' "${upstream}")"
[[ -n "${staged}" ]] || die "The go.mod of k8s.io/kubernetes ${version} replaces no staging modules."

published() {
  local module="$1" patch
  for ((patch = ${version##*.}; patch >= 0; patch--)); do
    if go mod download "${module}@${staging%.*}.${patch}" >/dev/null 2>&1; then
      echo "${staging%.*}.${patch}"
      return
    fi
    echo "There is no ${module} ${staging%.*}.${patch}; trying the previous patch release." >&2
  done
  return 1
}

# The GODEBUG settings of this release.
default="$(sed -n 's/^[[:space:]]*\(godebug[[:space:]]*\)\{0,1\}default=\(go[0-9.]*\)$/\2/p' "${upstream}" | head -n 1)"
[[ -n "${default}" ]] || die "The go.mod of k8s.io/kubernetes ${version} sets no default GODEBUG."

{
  echo "module github.com/nslifecycle/nslifecycle/hack/controlplane/${minor}"
  echo
  sed -n '/^go /p' "${root}/hack/controlplane/go.mod"
  echo
  echo "godebug default=${default}"
  echo
  echo "replace ("
  while read -r module; do
    found="$(published "${module}")" || die "The module proxy has no ${module} ${staging%.*}."
    echo "	${module} => ${module} ${found}"
  done <<<"${staged}"
  echo ")"
  echo
  echo "tool k8s.io/kubernetes/cmd/kube-apiserver"
  echo
  echo "require k8s.io/kubernetes ${version}"
} >go.mod.new
mv go.mod.new go.mod
go mod tidy

mkdir -p "${root}/hack/controlplane/${minor}"
cp go.mod go.sum "${root}/hack/controlplane/${minor}/"
echo "Pinned Kubernetes ${version} in hack/controlplane/${minor}." >&2
