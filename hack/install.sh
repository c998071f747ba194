#!/usr/bin/env bash
# Copyright The nslifecycle Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs nslifecycle in the cluster of KUBECONFIG, or removes it, with the kustomizations in config and KUBECTL:
#
#   hack/install.sh deploy      installs everything, with the manager's image from IMG
#   hack/install.sh undeploy    removes everything
#   hack/install.sh install     installs the CRDs
#   hack/install.sh uninstall   removes the CRDs, the policies that read them, and all configurations
#   hack/install.sh manifests   writes dist/install.yaml and the generated parts of dist/chart instead
#
# UNDEPLOY_TIMEOUT (60s) limits the time to delete the templates, and the time to delete the system namespace before a
# manager is run to finalize the namespace.

# shellcheck disable=SC2086 # KUBECTL and lists contain several words.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly namespace=nslifecycle-system label=app.kubernetes.io/name=nslifecycle timeout="${UNDEPLOY_TIMEOUT:-60s}"

kubectl() { command ${KUBECTL:-kubectl} "$@"; }

# Renders config/default with the image IMG to ${overlay}/install.yaml. The overlay is in bin/, which git ignores: a
# deployment must not change the tree.
render() {
  overlay="$(mktemp -d bin/.overlay.XXXXXX)"
  trap 'rm -rf "${overlay}"' EXIT
  printf '%s\n' 'resources:' '- ../../config/default' 'sortOptions:' '  order: fifo' >"${overlay}/kustomization.yaml"
  (cd "${overlay}" && ../kustomize edit set image "ghcr.io/nslifecycle/nslifecycle=${IMG}")
  bin/kustomize build "${overlay}" >"${overlay}/install.yaml"
  grep -qF -- "image: ${IMG}" "${overlay}/install.yaml" || {
    echo "The Deployment does not use the image ${IMG}." >&2
    exit 1
  }
}

deploy() {
  render
  kubectl apply -f "${overlay}/install.yaml"

  # Delete what an earlier version or another variant has installed and install.yaml does not contain, since a
  # ServiceAccount would keep its permissions. Separately applied objects have other names or the label component, and
  # objects that commands print have no label managed-by.
  local installed wanted obsolete
  installed="$(kubectl get \
    deployments,poddisruptionbudgets,clusterrolebindings,clusterroles,rolebindings,roles,serviceaccounts \
    --namespace="${namespace}" --output=name \
    --selector="${label},app.kubernetes.io/managed-by=kustomize,!app.kubernetes.io/component")"
  wanted="$(kubectl get -f "${overlay}/install.yaml" --output=name)"
  obsolete="$(grep '/nslifecycle-' <<<"${installed}" | grep -vxF "${wanted}" || :)"
  if [[ -n "${obsolete}" ]]; then
    kubectl delete --namespace="${namespace}" ${obsolete}
  fi
}

# Both outputs are committed, so that users can download them from a tag.
manifests() {
  render
  mv "${overlay}/install.yaml" dist/install.yaml
  echo "Wrote dist/install.yaml."
  printf '%s\n' "namespace: ${namespace}" 'namePrefix: nslifecycle-' 'sortOptions:' '  order: fifo' 'resources:' \
    '- ../../config/'{protection,owners,prometheus,manager/finalization} >"${overlay}/kustomization.yaml"
  {
    bin/kustomize build "${overlay}"
    echo ---
    bin/kustomize build config/provisioner
    for file in config/mutating/*.yaml; do
      echo ---
      cat "${file}"
    done
  } >"${overlay}/optional.yaml"
  go run ./hack/chart dist/install.yaml "${overlay}/optional.yaml" dist/chart/files
}

delete_templates() {
  if kubectl get crd namespacetemplates.nslifecycle.dev >/dev/null 2>&1; then
    kubectl delete namespacetemplates.nslifecycle.dev --all --timeout="${timeout}"
  fi
}

# Deletes bindings before policies, and both before all other objects, so that no policy refers to a missing object: API
# servers reload policies once a second, and one that starts while the CRD of a policy's parameters is missing rejects
# every request that the policy matches: all new namespaces. The operator does not apply its policies again without the
# bindings of the gate. API servers before 1.36 do not serve all four kinds. `kubectl api-resources` would fail if the
# API server of any APIService is unavailable.
delete_policies() {
  local served kind
  served="$(kubectl get --raw /apis/admissionregistration.k8s.io/v1)"
  for kind in mutatingwebhookconfigurations validatingadmissionpolicybindings mutatingadmissionpolicybindings \
    mutatingadmissionpolicies validatingadmissionpolicies; do
    if grep -q "\"name\": *\"${kind}\"" <<<"${served}"; then
      kubectl delete "${kind}.admissionregistration.k8s.io" -l "${label}" --ignore-not-found
    fi
  done
  sleep 2
}

install() { bin/kustomize build config/crd | kubectl apply -f -; }

uninstall() {
  delete_templates
  delete_policies
  bin/kustomize build config/crd | kubectl delete --ignore-not-found -f -
}

# The namespace of the sources of copies, which contains Secrets of users, remains. The manager loses its permissions,
# and never deletes the content of its own namespace. If the built-in namespace controller is off, a local manager
# finalizes the namespace. At this point, all policies are already deleted.
undeploy() {
  delete_templates
  delete_policies
  bin/kustomize build config/default |
    kubectl delete --wait=false --ignore-not-found --selector='app.kubernetes.io/component!=sources' -f -
  # What commands and messages of nslifecycle have printed, such as permissions for templates, and what has been applied
  # separately. Otherwise, users who may create namespaces could create the subjects of the bindings again.
  kubectl delete clusterrolebindings,clusterroles,rolebindings,roles --all-namespaces \
    --selector="${label}" --ignore-not-found

  if ! wait_for_deletion "${timeout}" 2>/dev/null; then
    echo "Namespace ${namespace} was not finalized within ${timeout}. Running a manager locally until it is deleted." >&2
    # In a separate process group, the manager receives each signal only once.
    set -m
    bin/manager --controllers=finalization --leader-elect=false --health-probe-bind-address=0 \
      --log-format=text --log-level=error &
    manager=$!
    set +m
    trap 'kill "${manager}" 2>/dev/null || :; wait "${manager}" || :' EXIT
    wait_for_deletion 5m
  fi
}

wait_for_deletion() {
  local found
  found="$(kubectl get namespace "${namespace}" --ignore-not-found --output=name)" || return # set -e has no effect in if.
  [[ -z "${found}" ]] || kubectl wait --for=delete "namespace/${namespace}" --timeout="$1"
}

case "${1:-}" in
  deploy | undeploy | install | uninstall | manifests) "$1" ;;
  *) sed -n '/^# Installs/,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 1 ;;
esac
