#!/bin/sh
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# An initializer that creates a LimitRange in each new namespace, depending on the size label. It
# requires kubectl and jq, has no state, and can be killed at any time.
me=limits.corp.example.com
cd "$(dirname "$0")" || exit
seen='{.metadata.name} {.metadata.annotations.nslifecycle\.dev/pending-initializers}{"\n"}'

# Prints the patch that completes this initializer for the Namespace on stdin. Prints nothing if this
# initializer is not the first pending one.
end='.metadata | (.annotations["nslifecycle.dev/pending-initializers"] // "") as $list | ($list / ",") as $names
  | select($names[0] == $me and .deletionTimestamp == null
      and .annotations["nslifecycle.dev/initialization-result"] == null)
  | "/metadata/annotations/nslifecycle.dev~1" as $of
  | [{op: "test", path: "/metadata/uid", value: .uid}, {op: "test", path: ($of + "pending-initializers"), value: $list},
     if $failure == "" then {op: "replace", path: ($of + "pending-initializers"), value: ($names[1:] | join(","))}
     else {op: "add", path: ($of + "initialization-result"),
           value: ({status: "Failure", reason: "UnknownSize", message: $failure} | tojson)} end]'

serve() {
  namespace=$(kubectl get namespace "$1" --ignore-not-found --output=json --request-timeout=10s) || return
  size=$(printf %s "$namespace" | jq --raw-output '.metadata.labels["corp.example.com/size"] // "small"') || return
  [ -f sizes/small.yaml ] || return # Without the directory, the valid sizes are unknown.
  failure=; [ -f "sizes/$size.yaml" ] || failure="size $size does not exist: use small or large"
  patch=$(printf %s "$namespace" | jq --compact-output --arg me "$me" --arg failure "$failure" "$end") || return
  [ -n "$patch" ] || return 0
  # The initialization must be idempotent.
  [ -n "$failure" ] || kubectl apply --server-side --force-conflicts --field-manager="$me" --namespace="$1" \
    --filename="sizes/$size.yaml" --request-timeout=10s || return
  kubectl patch namespace "$1" --type=json --patch="$patch" --request-timeout=10s
}

# After a failure or a conflict, retries once immediately. The watch restarts with a list every
# minute, which retries all other failures.
while sleep 1; do
  kubectl get namespaces --selector=nslifecycle.dev/initializing --watch --output=jsonpath="$seen" \
    --request-timeout=60s |
    while read -r name names; do
      case $names in "$me" | "$me",*) serve "$name" || serve "$name" ;; esac
    done
done
