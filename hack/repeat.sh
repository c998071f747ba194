#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs make several times, and prints which tests failed in how many runs:
#
#   hack/repeat.sh TIMES [ARGUMENT OF MAKE]...

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

times="$1"
shift
export GINKGO_NO_COLOR=TRUE
logs="$(mktemp -d)"
failed=0
for ((run = 1; run <= times; run++)); do
  log="${logs}/${run}.log"
  start="${SECONDS}"
  if make "$@" >"${log}" 2>&1; then
    echo "Run ${run} of ${times} passed after $((SECONDS - start)) s."
    rm "${log}"
  else
    echo "Run ${run} of ${times} failed after $((SECONDS - start)) s: ${log}"
    failed=$((failed + 1))
  fi
done

echo "${failed} of ${times} runs failed."
if ((failed == 0)); then
  rmdir "${logs}"
  exit
fi
echo "Tests by the number of runs in which they failed:"
for log in "${logs}"/*.log; do
  # The names of specs, of tests, and of packages that could not be built.
  { grep --text -oE '\[FAIL\] .*|--- FAIL: [^ ]+|^FAIL.*\[.*\]' "${log}" || echo 'no failed test in the log'; } | sort -u
done | sort | uniq -c | sort -rn
exit 1
