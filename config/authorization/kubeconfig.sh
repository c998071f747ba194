#!/bin/sh
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Enables the authorization webhook, and prints the kubeconfig with which API servers ask it. The file contains a token:
# only API servers may read it. A further run prints the same file.
#
#   ./kubeconfig.sh [URL] > authorization.kubeconfig
#
# The URL is that of the Service by default. Its address, because API servers cannot resolve the names of Services.
# KUBECTL is the command of kubectl, NAMESPACE the system namespace.
set -eu

run() { ${KUBECTL:-kubectl} --namespace="$namespace" "$@"; }
secret() { run get secret nslifecycle-webhook-certificate --output=jsonpath="{.data.$1}"; }

namespace=${NAMESPACE:-nslifecycle-system}
ca=$(secret 'ca\.crt')
[ -n "$ca" ] || { echo "The manager has not issued its certificate yet." >&2; exit 1; }
token=$(secret authorization-token | base64 -d)
if [ -z "$token" ]; then
  token=$(od -A n -t x1 -N 32 /dev/urandom | tr -d ' \n')
  printf '{"stringData":{"authorization-token":"%s"}}' "$token" |
    run patch secret nslifecycle-webhook-certificate --patch-file=/dev/stdin >&2
fi
if [ $# -gt 0 ]; then
  url=$1
else
  address=$(run get service nslifecycle-webhook --output='jsonpath={.spec.clusterIP}')
  case $address in *:*) address="[$address]" ;; esac
  url=https://$address
fi
cat <<END
apiVersion: v1
kind: Config
clusters:
- name: nslifecycle
  cluster:
    server: $url/authorize
    tls-server-name: nslifecycle-webhook.$namespace.svc
    certificate-authority-data: $ca
users:
- name: api-server
  user:
    token: $token
contexts:
- name: authorization
  context: {cluster: nslifecycle, user: api-server}
current-context: authorization
END
