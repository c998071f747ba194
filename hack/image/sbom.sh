#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes the software bill of materials of a Go program, as CycloneDX in JSON:
#
#   hack/image/sbom.sh bin/manager v0.1.0 manager.cdx.json
#
# It lists the standard library and the modules that the linker records. It contains neither a time nor hashes of the tool,
# which depend on the machine.

set -euo pipefail

bin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../bin" && pwd)"
"${bin}/cyclonedx-gomod" bin -json -output-version=1.5 -std -noserial -notimestamp -version="$2" "$1" |
  "${bin}/gojq" 'del(.metadata.tools)' >"$3"
