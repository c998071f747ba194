#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs a program that hack/tools.txt lists: bin/NAME is a link to bin/NAME-VERSION, so that a new version is
# installed when it is pinned, and an old version is kept:
#
#   hack/tool.sh NAME

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly name="${1:?usage: hack/tool.sh NAME}"
read -r _ package version variables < <(grep "^${name} " hack/tools.txt) || {
  echo "hack/tools.txt does not list ${name}." >&2
  exit 1
}

module=.
source="${package}@${version}"
if [[ -f "${version}/go.mod" ]]; then
  module="${version}"
  source="${package}"
  # go list would download the dependencies.
  version="$(awk -v package="${package}" 'index(package, $1 "/") == 1 { print $2 }' "${module}/go.mod")"
fi

if [[ ! -x "bin/${name}-${version}" ]]; then
  echo "Installing ${name} ${version} ..." >&2
  mkdir -p bin
  # The temporary directory prevents the use of an incomplete installation.
  tmp="$(mktemp -d "${PWD}/bin/.${name}.XXXXXX")"
  trap 'rm -rf "${tmp}"' EXIT
  # The program runs on this machine, even if the caller cross-compiles or uses the race detector.
  # shellcheck disable=SC2086
  env GOBIN="${tmp}" GOOS= GOARCH= GOFLAGS= CGO_ENABLED=0 ${variables} go install -C "${module}" -trimpath "${source}"
  mv -f "${tmp}/${name}" "bin/${name}-${version}"
fi
ln -sfn "${name}-${version}" "bin/${name}"
