# Allows only users with the "initialize" verb or the "provision" verb to write to a namespace that is
# being initialized.
# The first binding selects such namespaces by their label, so the policy is not evaluated for
# requests to other namespaces.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: gate
  labels:
    nslifecycle.dev/policy: gate
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["*"]
      # This includes all subresources, such as exec, eviction, token, scale and status.
      resources: ["*/*"]
      scope: Namespaced
  # The checks specify no namespace, so they apply at cluster scope. A Role in the namespace cannot
  # grant the verbs, but a ClusterRole with resourceNames can. The ServiceAccounts of
  # NamespaceTemplates have "provision", with which the guard policy allows no change of the list. A match
  # condition costs initializers less than a validation, whose messages the API server always evaluates.
  matchConditions:
  - name: may-not-write
    expression: >-
      !({{include "mayProvision" "namespace" "request.namespace"}})
  variables:
  # In a terminating namespace, controllers without the verb must be able to delete objects, and to
  # remove their finalizers from objects that are being deleted. The gate admits no other requests
  # from users without the verb: an UPDATE of another object, or of the ephemeral containers of a
  # Pod, could run code in Pods that initializers have created.
  - name: cleansUp
    expression: >-
      {{include "cleansUp"}}
  - name: pending
    expression: "namespaceObject.metadata.?annotations[?'nslifecycle.dev/pending-initializers'].orValue('').split(',')"
  - name: first
    expression: "namespaceObject.metadata.?annotations[?'nslifecycle.dev/pending-initializers'].orValue('').split(',', 6)"
  validations:
  - expression: >-
      !(namespaceObject.metadata.?labels[?'nslifecycle.dev/initializing'].hasValue()) ||
      variables.cleansUp
    reason: Forbidden
    # The API server limits the size of messages, so the message contains only the first five names.
    # Iterating over all names would exceed the cost limit, and slice() requires Kubernetes 1.35.
    # The names are unique.
    messageExpression: >-
      'namespace "' + request.namespace + '" is being initialized; only its initializers may write to it until the'
      + ' initialization is complete; pending: '
      + variables.first.filter(n, variables.first.indexOf(n) < 5).join(', ')
      + (variables.pending.size() > 5 ? ' and ' + string(variables.pending.size() - 5) + ' more' : '')
      + '. To see its state, run: kubectl get namespace ' + request.namespace + ' --output=yaml'
      + '; if the request is rejected, repeat it after the initialization'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: gate
  labels:
    nslifecycle.dev/policy: gate
spec:
  policyName: gate
  validationActions: ["Deny"]
  matchResources:
    namespaceSelector:
      # The label selects the namespace regardless of its value.
      matchExpressions:
      - key: nslifecycle.dev/initializing
        operator: Exists
---
# For CREATE and UPDATE of a resource named "namespaces" in any API group, the API server matches a
# namespaceSelector against the labels of the object itself
# (k8s.io/apiserver, pkg/admission/plugin/webhook/predicates/namespace). This binding has no
# namespaceSelector and covers such custom resources. The policy reads the label of their namespace.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: gate-resources-named-namespaces
  labels:
    nslifecycle.dev/policy: gate
spec:
  policyName: gate
  validationActions: ["Deny"]
  matchResources:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaces"]
      scope: Namespaced
